"""Every pair of operations on one table, one placed inside the other, against an oracle."""
