"""Proving a table consistent: what is looked at, and what may be wrong with it."""
