"""Hudi's metadata table, a table in `.hoodie/metadata` from which Hudi's readers list files."""
