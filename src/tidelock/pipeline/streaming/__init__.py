"""Structured Streaming: tables as sinks and as sources of streams."""
