"""Exhaustive search of the lock machine: all interleavings of two or three clients and faults."""

from testkit.explore.bounds import DEEP, SCENARIOS, Bounds
from testkit.explore.mutants import MUTANTS, Mutant
from testkit.explore.search import SearchResult, Violation, replay, search

__all__ = [
    "DEEP",
    "MUTANTS",
    "SCENARIOS",
    "Bounds",
    "Mutant",
    "SearchResult",
    "Violation",
    "replay",
    "search",
]
