"""How large the batches of a stream are: Spark cannot say it of the next one, the last one can.

A frame of unknown size is first measured where it lies, which takes three jobs. For the small
batches of a stream that would be most of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

SMALL_BYTES_MAX: Final = 8 * 1024 * 1024
"""After a batch that was no larger, the next one is collected without measuring it first.

It may well be many times larger and still fit; Spark's own limit of results stops one that is not.
"""


@dataclass(slots=True)
class Expected:
    """The size of the last batch as Arrow; None before the first."""

    size_bytes: int | None = None

    @property
    def is_small(self) -> bool:
        """Tell whether the next batch may be collected at once."""
        return self.size_bytes is not None and self.size_bytes <= SMALL_BYTES_MAX


_NOTHING: Final = Expected()
_current: ContextVar[Expected | None] = ContextVar("expected", default=None)


@contextmanager
def expecting(expected: Expected) -> Iterator[None]:
    """Let frames that are written in this block be like those before, and be remembered."""
    token = _current.set(expected)
    try:
        yield
    finally:
        _current.reset(token)


def is_expected_small() -> bool:
    """Tell whether a frame of unknown size is likely small."""
    return (_current.get() or _NOTHING).is_small


def remember(size_bytes: int) -> None:
    """Note how large a batch was."""
    expected = _current.get()
    if expected is not None:
        expected.size_bytes = size_bytes
