"""Tables in people's pipelines: Spark's own reads and writes."""
