"""Partition TTL: partitions that nobody wrote to for long are deleted."""
