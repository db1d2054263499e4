"""What every source is to the streamer: a place to go on from gives a batch and the next place.

A source chooses the bounds of a batch in the driver, before anything is read: offsets of a topic,
names of files, a completion time, a largest value. Whoever reads between the same bounds gets the
same records, so a batch that is tried again is the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MALFORMED: Final = "_tidelock_malformed"
REASON: Final = "_tidelock_reason"
"""Columns of a batch that may hold records that could not be read: the record, and why not."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records between two places of a source.

    `frame` reads them when it is asked to. `end` is where the next batch begins, `taken` how much
    this is in the units of the source's limit. `size_bytes` is how large they may be, None if
    nobody knows. `source_epoch_ms` is when the newest of them came to be there, if it is known.
    """

    frame: DataFrame
    end: str
    taken: int
    size_bytes: int | None = None
    source_epoch_ms: int | None = None


class Source(Protocol):
    """Where records come from."""

    @property
    def name(self) -> str:
        """What is read, without secrets; part of the checkpoint."""
        ...

    @property
    def limit(self) -> int:
        """How much a batch takes unless the user says otherwise, in units of this source."""
        ...

    @property
    def least(self) -> int:
        """How little of it a slow table makes a batch take: below, the commits are what is slow."""
        ...

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return what follows `since`, or everything's beginning; None while there is nothing.

        Raises: `NotFound`, `Unavailable`, `DataCorrupt`, `ConfigInvalid`.
        """
        ...

    def hudi_place(self, at: str) -> str | None:
        """Return a place as Hudi's streamer writes it; None if it has no such source."""
        ...

    def done_with(self, at: str) -> None:
        """Forget what was kept for batches before the place `at`, which is committed."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...
