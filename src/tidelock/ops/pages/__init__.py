"""The generated pages of the documentation, a module for each."""
