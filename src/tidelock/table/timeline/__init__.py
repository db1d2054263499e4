"""The timeline: what was done to a table, when, and what came of it."""
