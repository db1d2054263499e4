"""Exhaustive search of the lock machine."""
