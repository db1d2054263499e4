"""Writing and reading one large table, compared with plain Spark and polars."""
