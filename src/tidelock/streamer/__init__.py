"""The streamer: ingests a source into a table in batches, each record exactly once."""
