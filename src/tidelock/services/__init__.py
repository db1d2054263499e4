"""Table services: planning and execution."""
