"""Where metrics, spans and events go: an endpoint, a gateway, a tracer, lines of JSON."""
