"""What Spark's planner knows about a frame before it runs: its size and its source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

_LOCAL: Final = ("LocalRelation", "OneRowRelation", "EmptyRelation")
_CHEAP: Final = frozenset({*_LOCAL, "LogicalRelation", "Range", "Project", "Filter"})
"""Plans with only these nodes can be read again instead of being persisted."""

_IMPLAUSIBLE_BYTES: Final = 2**45


def estimated_bytes(frame: DataFrame) -> int | None:
    """Return Spark's estimate of the frame's size; None if there is none.

    Spark knows the size of files and local rows; its estimates of joins and Python functions are
    not meaningful.
    """
    size = int(str(plan_of(frame).stats().sizeInBytes()))
    return size if size < _IMPLAUSIBLE_BYTES else None


def is_local(frame: DataFrame) -> bool:
    """Return whether the rows are already in the driver."""
    return _name(plan_of(frame)) in _LOCAL


def is_rereadable(frame: DataFrame) -> bool:
    """Return whether the frame only reads files, so that reading it twice is cheap.

    Computed rows (joins, shuffles, Python functions) and nondeterministic ones are persisted
    instead.
    """
    plan = plan_of(frame)
    return bool(plan.deterministic()) and _is_cheap(plan)


def _is_cheap(plan: Any) -> bool:
    if _name(plan) not in _CHEAP:
        return False
    children = plan.children()
    return all(_is_cheap(children.apply(i)) for i in range(children.length()))


def plan_of(frame: DataFrame) -> Any:
    """Return the optimized plan of a frame."""
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the planner is not public


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


SMALL_BYTES_MAX: Final = 8 * 1024 * 1024
"""After a batch up to this size, the next one is collected without measuring it first.

It may be many times larger and still fit; otherwise Spark's result size limit fails the job.
"""


@dataclass(slots=True)
class ExpectedSize:
    """The size of the last batch as Arrow; None before the first."""

    size_bytes: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether the next batch can be collected without measuring."""
        return self.size_bytes is not None and self.size_bytes <= SMALL_BYTES_MAX


_current: ContextVar[ExpectedSize | None] = ContextVar("expected", default=None)


@contextmanager
def expect_size(expected: ExpectedSize) -> Iterator[None]:
    """Expect frames written in this context to be as large as before, and record their size."""
    token = _current.set(expected)
    try:
        yield
    finally:
        _current.reset(token)


def is_expected_small() -> bool:
    """Return whether a frame of unknown size is expected to be small."""
    expected = _current.get()
    return expected is not None and expected.is_small


def record_size(size_bytes: int) -> None:
    """Record the size of a batch."""
    expected = _current.get()
    if expected is not None:
        expected.size_bytes = size_bytes
