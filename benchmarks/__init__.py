"""Benchmarks of locks, tables, services and streams, compared with other systems."""
