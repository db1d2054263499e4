"""Exhaustive search of the lock machine: every interleaving of two or three clients and faults."""

from tidelock.testing.explore.bounds import DEEP, SCENES, Bounds
from tidelock.testing.explore.mutants import MUTANTS, Mutant
from tidelock.testing.explore.search import Found, Violation, replay, search

__all__ = [
    "DEEP",
    "MUTANTS",
    "SCENES",
    "Bounds",
    "Found",
    "Mutant",
    "Violation",
    "replay",
    "search",
]
