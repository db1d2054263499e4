"""Batch reads and writes: `spark.read` and `df.write` with `format("tidelock")`."""
