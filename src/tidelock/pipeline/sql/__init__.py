"""SQL on tables: read by sqlglot, carried out by Spark's frames and by the operations here."""
