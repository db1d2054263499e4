"""What a base file's footer says of its record keys: the least, the greatest, and a filter."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.kernel.context import BloomSettings
from tidelock.table.index.bloom import (
    DYNAMIC,
    FOOTER_FILTER,
    FOOTER_MAX_KEY,
    FOOTER_MIN_KEY,
    FOOTER_TYPE,
    BloomFilter,
    Shape,
    decode_filter,
    encode_filter,
)


class KeyNotes:
    """Takes keys, or what other files' footers say of theirs, and makes a footer of it."""

    def __init__(self, bloom: BloomSettings | None) -> None:
        """Begin without a key."""
        self.least: str | None = None
        self.greatest: str | None = None
        self._bloom = None if bloom is None else _filter(bloom)

    def add(self, keys: pa.ChunkedArray) -> None:
        """Note the keys of some rows."""
        bounds = pc.min_max(keys).as_py()
        self._stretch(bounds["min"], bounds["max"])
        if self._bloom is not None:
            for chunk in keys.chunks:
                self._bloom.add(chunk)

    def include(self, footer: Mapping[str, str], *, where: str) -> None:
        """Note what another file's footer says, which `can_include` has looked at."""
        self._stretch(footer[FOOTER_MIN_KEY], footer[FOOTER_MAX_KEY])
        if self._bloom is not None:
            self._bloom.include(decode_filter(footer[FOOTER_FILTER], where=where))

    def footer(self) -> dict[str, str]:
        """Return the footer's keys and values."""
        found = {}
        if self.least is not None and self.greatest is not None:
            found = {FOOTER_MIN_KEY: self.least, FOOTER_MAX_KEY: self.greatest}
        if self._bloom is not None:
            found |= {FOOTER_FILTER: encode_filter(self._bloom), FOOTER_TYPE: DYNAMIC}
        return found

    def _stretch(self, low: str, high: str) -> None:
        self.least = low if self.least is None else min(self.least, low)
        self.greatest = high if self.greatest is None else max(self.greatest, high)


def can_include(footer: Mapping[str, str], bloom: BloomSettings | None, *, where: str) -> bool:
    """Tell whether a footer says of its keys all that a file with these settings is to say.

    Raises: `DataCorrupt` for a filter that cannot be read.
    """
    if FOOTER_MIN_KEY not in footer or FOOTER_MAX_KEY not in footer:
        return False
    if bloom is None:
        return True
    if FOOTER_FILTER not in footer or footer.get(FOOTER_TYPE) != DYNAMIC:
        return False
    return decode_filter(footer[FOOTER_FILTER], where=where).shape == _filter(bloom).shape


def _filter(bloom: BloomSettings) -> BloomFilter:
    return BloomFilter(Shape.of(bloom.entries, bloom.rate), bloom.entries_max)
