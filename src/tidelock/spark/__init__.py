"""Spark integration: data source, Structured Streaming and SQL."""
