"""The interface of every compared system. Independent of this project."""

from __future__ import annotations

from pathlib import Path

KEY = "id"
PARTITION = "l_shipmode"
"""The partition column of partitioned tables: seven values with the same frequency."""
HOT = "AIR"
"""The partition of the batches for one partition."""
ROUNDS = 5
"""The number of rounds of changes after which queries are measured again."""
COMMITS = 20
"""The number of small upserts before a merge-on-read table is read."""
NOT_OFFERED = "not offered"


class NotOffered(Exception):
    """The system does not support the operation."""


class Lake:
    """A table of one system. `by` is its partition column, if it has one."""

    def __init__(self, inputs: Path, work: Path, by: str | None = None) -> None:
        self.inputs, self.work, self.by = inputs, work, by

    def load(self) -> None:
        """Write all rows to a new table."""
        raise NotOffered

    def upsert(self, batch: str) -> None:  # noqa: ARG002 - every one of these is overridden
        """Update and insert rows by key."""
        raise NotOffered

    def delete(self) -> None:
        """Delete rows by key."""
        raise NotOffered

    def read_all(self) -> None:
        """Read every column of every row, and discard them."""
        raise NotOffered

    def read_column(self) -> float:
        """Return the sum of one column."""
        raise NotOffered

    def point(self, key: int) -> int:  # noqa: ARG002
        """Return the number of rows with a key."""
        raise NotOffered

    def between(self, low: int, high: int) -> int:  # noqa: ARG002
        """Return the number of rows in a range of keys; read all their columns."""
        raise NotOffered

    def start_changes(self) -> None:
        """Set the start of `changes` to the current version."""
        raise NotOffered

    def changes(self) -> int:
        """Return the number of rows written since `start_changes`; read all their columns."""
        raise NotOffered

    def compact(self) -> None:
        """Compact the table after some rounds of changes, if the system needs it."""

    def path(self, name: str) -> str:
        return str(self.inputs / f"{name}.parquet")
