"""A set of texts that grows by sharing what it has with its earlier selves.

Pure. Adding to a frozenset copies it; a ledger adds one text per entry for years.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_CHUNK_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Grown:
    """Texts in chunks: the last one small and copied, the others merged when they are of a size."""

    chunks: tuple[frozenset[str], ...] = ()
    recent: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Grown:
        """Return a set of these texts."""
        return cls((frozenset(texts),))

    def __contains__(self, text: object) -> bool:
        """Tell whether `text` was added."""
        return text in self.recent or any(text in chunk for chunk in self.chunks)

    def __iter__(self) -> Iterator[str]:
        """Yield every text once."""
        for chunk in self.chunks:
            yield from chunk
        yield from self.recent

    def __len__(self) -> int:
        """Return how many texts were added."""
        return sum(len(chunk) for chunk in self.chunks) + len(self.recent)

    def add(self, text: str) -> Grown:
        """Return the set with `text` in it."""
        if text in self:
            return self
        recent = self.recent | {text}
        if len(recent) < _CHUNK_MAX:
            return Grown(self.chunks, recent)
        chunks = [*self.chunks, recent]
        while len(chunks) > 1 and len(chunks[-2]) <= len(chunks[-1]):
            last = chunks.pop()
            chunks[-1] = chunks[-1] | last
        return Grown(tuple(chunks))

    def above(self, least: str) -> Grown:
        """Return the set without the texts below `least`."""
        return Grown.of(text for text in self if text >= least)
