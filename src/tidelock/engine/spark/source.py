"""What Spark's planner knows of a user's frame before anything runs: its size, and its source."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

_LOCAL: Final = ("LocalRelation", "OneRowRelation", "EmptyRelation")
_CHEAP: Final = frozenset({*_LOCAL, "LogicalRelation", "Range", "Project", "Filter"})
"""Plans of these alone only read: what they give may be read again instead of being kept."""

_FANTASY_BYTES: Final = 2**45


def estimated_bytes(frame: DataFrame) -> int | None:
    """Return how large Spark thinks the frame is; None when it cannot say.

    It knows files and local rows; what joins and Python functions give it multiplies to fantasies.
    """
    size = int(str(plan_of(frame).stats().sizeInBytes()))
    return size if size < _FANTASY_BYTES else None


def is_local(frame: DataFrame) -> bool:
    """Tell whether the rows are in the driver already."""
    return _name(plan_of(frame)) in _LOCAL


def can_be_read_again(frame: DataFrame) -> bool:
    """Tell whether the frame only reads files, so that reading it twice costs little.

    What is computed (joins, shuffles, functions in Python) or may differ the second time (random
    values) is kept instead.
    """
    plan = plan_of(frame)
    return bool(plan.deterministic()) and _all_cheap(plan)


def _all_cheap(plan: Any) -> bool:
    if _name(plan) not in _CHEAP:
        return False
    children = plan.children()
    return all(_all_cheap(children.apply(i)) for i in range(children.length()))


def plan_of(frame: DataFrame) -> Any:
    """Return what Spark's planner makes of a frame."""
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the planner is not public


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
