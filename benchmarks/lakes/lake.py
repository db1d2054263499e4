"""What every system is asked to do. Needs nothing of this project."""

from __future__ import annotations

from pathlib import Path

KEY = "id"
PARTITION = "l_shipmode"
"""What a table with partitions is cut by: seven values, each as frequent as the others."""
HOT = "AIR"
"""The one partition that some batches are for."""
ROUNDS = 5
"""Rounds of changes, between which it is asked whether queries get slower."""
COMMITS = 20
"""Small upserts that a merge-on-read table has to bring together when it is read."""
NOT_OFFERED = "not offered"


class NotOffered(Exception):
    """The system has no such thing."""


class Lake:
    """What every system is asked to do. `by` is the column that the table is cut by, or none."""

    def __init__(self, inputs: Path, work: Path, by: str | None = None) -> None:
        self.inputs, self.work, self.by = inputs, work, by

    def load(self) -> None:
        """Write all rows to a new table."""
        raise NotOffered

    def upsert(self, batch: str) -> None:  # noqa: ARG002 - every one of these is overridden
        """Change and add rows by their key."""
        raise NotOffered

    def delete(self) -> None:
        """Delete rows by their key."""
        raise NotOffered

    def read_all(self) -> None:
        """Read every column of every row, and throw it away."""
        raise NotOffered

    def read_column(self) -> float:
        """Return the sum of one column."""
        raise NotOffered

    def point(self, key: int) -> int:  # noqa: ARG002
        """Return how many rows have a key."""
        raise NotOffered

    def between(self, low: int, high: int) -> int:  # noqa: ARG002
        """Return how many rows have a key of a range, their columns read."""
        raise NotOffered

    def mark(self) -> None:
        """Remember now as the beginning of what `changes` reads."""
        raise NotOffered

    def changes(self) -> int:
        """Return how many rows were written since `mark`, their columns read."""
        raise NotOffered

    def settle(self) -> None:
        """Do what the system wants done after some rounds of changes; most want nothing."""

    def path(self, name: str) -> str:
        return str(self.inputs / f"{name}.parquet")
