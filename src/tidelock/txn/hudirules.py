"""Hudi's own strategies: who would be refused by them. Pure.

They are for those who want Hudi's behaviour exactly: the later of two overlapping writers fails.
Where Hudi would let a commit pass that loses data, our own rules still stand behind these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.instant import Action
from tidelock.txn.conflict import report_of
from tidelock.txn.fold import Pending
from tidelock.txn.footprint import Deed, Footprint, bucket_of
from tidelock.txn.rules import Candidate, Finding, Past
from tidelock.txn.strategy import Strategy
from tidelock.txn.verdict import Refuse

_SERVICES = (Deed.COMPACTION, Deed.LOG_COMPACTION, Deed.CLUSTERING)


def hudi_refuses(
    mine: Candidate, past: Sequence[Past], plans: Mapping[str, Pending], strategy: Strategy
) -> Refuse | None:
    """Return the refusal that Hudi's `strategy` would give; None if it lets the commit pass."""
    deed = mine.footprint.deed
    if deed is Deed.COMPACTION or (deed is Deed.CLUSTERING and not _prefers_writer(strategy)):
        return None
    found: list[tuple[Past, Finding]] = []
    ours = _mutated(mine.footprint, own=True)
    for other in past:
        overlap = _overlap(ours, _mutated(other.footprint), strategy)
        if overlap and not _resolved(mine, other):
            found.append((other, Finding("overlapping writes", overlap)))
    if deed not in _SERVICES and not _prefers_writer(strategy):
        for plan in plans.values():
            if plan.action in (Action.CLUSTERING, Action.REPLACE_COMMIT):
                overlap = _overlap(ours, plan.targets, strategy)
                if overlap:
                    pending = Past(plan.position, plan.instant, "", Footprint(Deed.CLUSTERING))
                    found.append((pending, Finding("a clustering is pending", overlap)))
    if not found:
        return None
    advice = "try again, or leave the strategy unset to have such overlaps solved"
    return Refuse(report_of(mine, found, advice))


def _prefers_writer(strategy: Strategy) -> bool:
    return strategy is Strategy.PREFER_WRITER


def _mutated(footprint: Footprint, *, own: bool = False) -> frozenset[GroupId]:
    # Hudi does not count the replaced groups of a delete_partition that is committing.
    if own and footprint.deed is Deed.DELETE_PARTITION:
        return footprint.written
    return footprint.written | footprint.replaced


def _overlap(
    ours: frozenset[GroupId], theirs: frozenset[GroupId], strategy: Strategy
) -> frozenset[GroupId]:
    if strategy is not Strategy.BUCKET:
        return ours & theirs
    buckets = {bucket_of(group) for group in theirs}
    return frozenset(group for group in ours if bucket_of(group) in buckets)


def _resolved(mine: Candidate, other: Past) -> bool:
    """Tell whether Hudi lets the overlap pass: compactions that were planned before, mostly."""
    if other.footprint.deed is Deed.COMPACTION:
        return other.instant < mine.instant or mine.footprint.deed not in _SERVICES
    return mine.footprint.deed is Deed.LOG_COMPACTION
