"""`spark.read.format("tidelock")` and `df.write.format("tidelock")`, with Hudi's options."""
