"""What may be rolled back, and why not. Pure.

A write that never completed may always go once its writer is dead. What has completed was seen by
readers: it goes only while it is the last thing that happened to the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidelock.table.timeline.instant import Action, Instant

_BUILDS: frozenset[Action] = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN}
)
"""Plans that were made of the table as it was, so that what they read must stay."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands on the timeline: completed writes, commits with savepoints, pending instants."""

    writes: Sequence[Instant]
    savepoints: Collection[str]
    pending: Sequence[Instant]

    def before(self, instant: Instant) -> Instant | None:
        """Return the write that completed last before `instant` did."""
        earlier = [each for each in self.writes if each.completion < instant.completion]
        return max(earlier, key=lambda each: each.completion, default=None)


def in_the_way(instant: Instant, standing: Standing) -> str | None:
    """Return why a completed write cannot be taken back; None if it can."""
    if instant.requested in standing.savepoints:
        return f"a savepoint keeps {instant.requested}"
    later = [each.requested for each in standing.writes if each.completion > instant.completion]
    if later:
        return f"{', '.join(sorted(later)[-3:])} came after {instant.requested}"
    for plan in standing.pending:
        if plan.action in _BUILDS and plan.requested > instant.completion:
            return f"the pending {plan.action} {plan.requested} was planned on top of it"
    return None
