"""Hudi's table format, versions 8 and 9: the names and the content of its files."""
