"""Compaction: log files merged into base files."""
