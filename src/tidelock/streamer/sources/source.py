"""The contract of a source: from a position, it returns a batch and the next position.

A source chooses the bounds of a batch in the driver, before it reads any record: offsets of a
topic, names of files, a completion time, a maximum value. Reading the same bounds again returns the
same records, so a retried batch is the same batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MALFORMED: Final = "_tidelock_malformed"
REASON: Final = "_tidelock_reason"
"""Columns of a batch for malformed records: the record, and the reason."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records between two positions of a source.

    `frame` reads them lazily. `end` is the start of the next batch, `units` the size in the units
    of the source's limit. `size_bytes` is an upper estimate, None if unknown. `source_epoch_ms` is
    the time of the newest record, if known.
    """

    frame: DataFrame
    end: str
    units: int
    size_bytes: int | None = None
    source_epoch_ms: int | None = None


class Source(ABC):
    """A source of records."""

    limit_min: ClassVar[int] = 1
    """The smallest limit of a batch: below it, the commits dominate the duration."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source, without secrets; part of the checkpoint."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """The default limit of a batch, in units of this source."""

    @abstractmethod
    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the batch after `since`, or the first one; None if there is nothing new.

        Raises: `NotFound`, `Unavailable`, `DataCorrupt`, `ConfigInvalid`.
        """

    def hudi_checkpoint(self, position: str) -> str | None:
        """Return a position in the format of Hudi's streamer; None if there is no equivalent."""
        return position

    def on_committed(self, position: str) -> None:  # noqa: B027 - a hook
        """Release resources of batches before `position`, which is now committed."""

    def close(self) -> None:  # noqa: B027 - a hook
        """Release all resources."""
