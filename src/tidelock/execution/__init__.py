"""Execution: reading and writing file groups, locally and on Spark."""
