"""The table's schema: Arrow in memory, Avro in the format, and how one may grow into another."""
