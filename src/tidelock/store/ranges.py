"""Byte ranges, in the half-open form of the contract and the closed form of HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.errors import InvalidInput
from tidelock.store.contract import ObjectStore, StoredObject


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes `start` to `end`, exclusive; to the end of the object if `end` is None."""

    start: int
    end: int | None

    def __post_init__(self) -> None:
        """Refuse a range that counts from the end, which stores understand differently."""
        if self.start < 0 or (self.end is not None and self.end < self.start):
            raise InvalidInput(
                f"bytes {self.start} to {self.end} are no range", hint="give 0 <= start <= end"
            )

    @property
    def is_empty(self) -> bool:
        """Whether no byte is asked for, which HTTP cannot say."""
        return self.end == self.start

    def header(self) -> dict[str, str]:
        """Return the header that asks for these bytes; none if all are wanted."""
        if self.start == 0 and self.end is None:
            return {}
        last = "" if self.end is None else self.end - 1
        return {"range": f"bytes={self.start}-{last}"}


def cut(body: bytes, wanted: Range, *, partial: bool) -> bytes:
    """Return the wanted bytes of a reply; a server may ignore the range and send all."""
    return body if partial else body[wanted.start : wanted.end]


def nothing_of(store: ObjectStore, key: str, wanted: Range) -> StoredObject | None:
    """Return no bytes of the object, with its version: the range is empty or behind its end."""
    meta = store.head(key)
    if meta is None:
        return None
    if not wanted.is_empty and wanted.start < meta.size_bytes:
        # The object has grown since the store refused the range.
        return store.get(key, start=wanted.start, end=wanted.end)
    return StoredObject(b"", meta.version, meta.modified_epoch_ms)
