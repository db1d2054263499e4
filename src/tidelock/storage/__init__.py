"""Object stores with conditional writes: one contract, five implementations."""
