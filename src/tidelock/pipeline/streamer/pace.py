"""How much the next batch takes, so that batches keep a length of time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_GROWTH_MAX: Final = 2.0
_SHRINK_MAX: Final = 0.25
"""One slow batch, say beside a compaction, should not stop the stream."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The limit of the next batch, in the units of its source; `most` is the user's limit.

    Batches that take longer than `target_s` make the next ones smaller; those that were full and
    took less make them larger again, up to `most`.
    """

    most: int
    target_s: float
    limit: int
    least: int = 1

    @classmethod
    def of(cls, most: int, target_s: float, *, least: int = 1) -> Pace:
        """Begin with all that is allowed."""
        return cls(most, target_s, most, min(least, most))

    def after(self, taken: int, duration_s: float) -> Pace:
        """Return the pace after a batch that took `taken` units and so long."""
        if self.target_s <= 0 or taken <= 0:
            return self
        ratio = self.target_s / max(duration_s, 0.001)
        if ratio >= 1 and taken < self.limit // 2:
            return self  # it was small because the source had no more, which says nothing
        # A batch that overran its limit (a file is never split) is what was measured.
        wanted = taken * min(_GROWTH_MAX, max(_SHRINK_MAX, ratio))
        if ratio >= 1:
            wanted = max(wanted, self.limit)
        return replace(self, limit=max(self.least, min(self.most, int(wanted))))
