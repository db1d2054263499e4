"""Restore: the table as it was, by taking back everything that came after."""
