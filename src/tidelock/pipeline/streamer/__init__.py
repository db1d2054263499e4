"""The streamer: from a source into a table, batch by batch, each record once."""
