"""The Spark engine: the kernel in Spark's Python workers, beside Spark's own Parquet reader."""
