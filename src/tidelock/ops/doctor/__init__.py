"""What may be wrong with a lock, in findings, and what can safely be mended."""
