"""Objects with conditional writes: one contract, five implementations."""
