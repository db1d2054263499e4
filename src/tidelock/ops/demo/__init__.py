"""Several programs write one table while one of them is killed: to be watched, and judged."""
