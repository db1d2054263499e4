"""What a restore takes back: what completed after its target, and what stands on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelock.table.timeline.instant import Action, Instant

_SERVICES: frozenset[Action] = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING}
)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What goes, in that order: what never completed, then completed writes, the newest first."""

    pending: tuple[Instant, ...]
    completed: tuple[Instant, ...]

    @property
    def instants(self) -> tuple[Instant, ...]:
        """All of it, in the order of removal."""
        return (*self.pending, *self.completed)


def to_take_back(instants: Sequence[Instant], target: Instant) -> TakenBack:
    """Return what a restore to `target` takes back of these instants.

    By completion: a write that was requested before the target and completed after it was not part
    of the table then. A plan of before the target reads only what stays, so it stays itself; one
    made later goes, whether it is one that stays or not.
    """
    completed = [
        each
        for each in instants
        if each.is_completed and each.action.writes_data and each.completion > target.completion
    ]
    pending = [each for each in instants if not each.is_completed and _goes(each, target)]
    return TakenBack(
        tuple(sorted(pending, key=lambda each: each.requested, reverse=True)),
        tuple(sorted(completed, key=lambda each: each.completion, reverse=True)),
    )


def _goes(each: Instant, target: Instant) -> bool:
    if each.action in _SERVICES:
        return each.requested > target.completion
    return each.action.writes_data


def kept_above(savepoints: Iterable[Instant], taken: TakenBack) -> tuple[str, ...]:
    """Return the commits with a savepoint among what would be taken back."""
    gone = {each.requested for each in taken.completed}
    return tuple(sorted(each.requested for each in savepoints if each.requested in gone))
