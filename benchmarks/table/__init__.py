"""Writing and reading one large table, beside what Spark and polars do by themselves."""
