"""The Spark engine: reads into data frames, and writes from the driver or from workers."""
