"""Arrow functions on one file group: no Spark, no timeline."""
