"""Savepoint: a state of the table that stays readable until it is given up."""
