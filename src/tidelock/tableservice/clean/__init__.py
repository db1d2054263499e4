"""Clean: old versions of file groups are deleted."""
