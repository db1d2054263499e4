"""A comparison with other table formats: the same rows are loaded, changed and read."""
