"""Programs that write one table together, and an oracle that knows what must be in it."""
