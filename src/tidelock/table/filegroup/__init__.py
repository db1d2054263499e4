"""File groups and their slices."""
