"""Unique ids and jitter as the rest of the code sees them."""

from __future__ import annotations

from typing import Protocol


class IdSource(Protocol):
    """A source of unique ids and jitter."""

    def uuid(self) -> str:
        """Return an id that no other process will ever draw."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1) for spreading retries; not for secrets."""
        ...

    def process(self) -> tuple[str, int]:
        """Return the host and process id by which an operator finds this process."""
        ...
