"""Hudi's table format, versions 8 and 9: what the files are called and what is in them."""
