"""Which instants leave the active timeline: the oldest, and none that somebody needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import ConfigInvalid
from tidelock.table.timeline.instant import Action, Instant

_FOLLOWERS: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
"""They say what was done to commits, so they go when the commits around them have gone."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many completed writes stay: when there are more than `most`, down to `least`."""

    least: int = 20
    most: int = 30

    def __post_init__(self) -> None:
        """Refuse bounds that would archive everything, or for ever. Raises: `ConfigInvalid`."""
        if not 0 < self.least < self.most:
            raise ConfigInvalid(
                f"hoodie.keep.min.commits = {self.least} must be above 0 and below"
                f" hoodie.keep.max.commits = {self.most}"
            )

    def beyond_cleaning(self, retained: int) -> Bounds:
        """Return bounds that keep every commit which cleaning retains, as Hudi raises them."""
        if self.least > retained:
            return self
        return Bounds(retained + 10, retained + 10 + max(10, self.most - self.least))


def to_archive(
    instants: Sequence[Instant], bounds: Bounds, *, needed: Collection[str] = ()
) -> tuple[Instant, ...]:
    """Return the instants to archive, oldest first, from those of the active timeline.

    Nothing goes past the first instant that is pending, savepointed, or in `needed` (a replacing
    commit whose files are not cleaned, or a write whose strays are not swept): what is archived is
    always the oldest part of the history, without holes (T10).
    """
    writes = [i for i in instants if i.is_completed and i.action.writes_data]
    if len(writes) <= bounds.most:
        return ()
    barrier = _barrier(instants, needed)
    leaving = [i for i in writes[: len(writes) - bounds.least] if i.requested < barrier]
    if not leaving:
        return ()
    first_kept = next((i.requested for i in writes if i.requested > leaving[-1].requested), "~")
    followers = [
        i
        for i in instants
        if i.is_completed and i.action in _FOLLOWERS and i.requested < min(first_kept, barrier)
    ]
    return tuple(sorted([*leaving, *followers]))


def _barrier(instants: Sequence[Instant], needed: Collection[str]) -> str:
    """Return the request time from which on everything stays."""
    holding = [i.requested for i in instants if not i.is_completed]
    holding += [i.requested for i in instants if i.action is Action.SAVEPOINT]
    holding += needed
    return min(holding, default="~")
