"""Structured Streaming: tables as sinks and sources."""
