"""Demo and soak: programs that write one table, and an oracle that computes the expected rows."""
