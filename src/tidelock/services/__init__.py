"""Table services: each a pure plan and its execution."""
