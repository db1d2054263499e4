"""Exports telemetry: Prometheus metrics, OpenTelemetry spans, and events as JSON lines."""
