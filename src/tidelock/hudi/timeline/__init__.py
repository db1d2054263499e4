"""The timeline: the actions on a table, their states and their metadata."""
