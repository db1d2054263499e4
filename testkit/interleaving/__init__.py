"""Runs every pair of operations on one table, one inside the other, against an oracle."""
