"""Hours of writing, faults and checks on one table, and a report that says how it went."""
