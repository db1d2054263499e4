"""Mistakes that only rows show: in the rules of commits, in reads, in what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.txnsim.planted import without_rule
from tidelock.operation.placing import Placing
from tidelock.table.filegroup.view import GroupId, Visibility
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import format_time
from tidelock.tableservice.archive.execute import Archiving
from tidelock.testing.txnsim.plan import Fault, Plan
from tidelock.testing.txnsim.rows.terms import Beside, Op, Terms, Work, draw_rows
from tidelock.txn import conflict, fold, preconditions, rules, transaction
from tidelock.txn.effects import Steps
from tidelock.txn.footprint import Footprint, Reliance
from tidelock.txn.ledger import Ledger
from tidelock.txn.preconditions import Preconditions
from tidelock.txn.rules import Candidate, Finding, Past

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Plant:
    """A mistake, how complaints about it begin, and within how many schedules one must come.

    `terms` are what is changed of a schedule's terms, so that the mistake can show at all; `ops`
    the kinds of its jobs. With `needs`, only schedules with these faults are run and counted.
    """

    bug: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    terms: dict[str, Any] | None = None
    within: int = 60
    needs: tuple[Fault, ...] = ()
    where: Callable[[Plan], bool] = lambda _plan: True

    def terms_of(self, seed: int) -> Terms:
        """Return the terms of a schedule."""
        quiet = {"beside": Beside.NOTHING, "reads": 0}
        return replace(draw_rows(seed, self.ops), **{**quiet, **(self.terms or {})})


_BUCKETS = {"merges": True, "index": "BUCKET", "mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
_UNREAD = {**_BUCKETS, "mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
_COMPACTIONS = ((Work.COMPACT_PLAN, Work.COMPACT) * 8,) * 2


def _with_check(patch: Patch, old: rules.Check, new: rules.Check) -> None:
    for pair, found in conflict.MATRIX.items():
        changed = (replace(rule, check=new) if rule.check is old else rule for rule in found)
        patch.setitem(conflict.MATRIX, pair, tuple(changed))


def a_base_file_may_lie_below_a_compaction_that_does_not_contain_it(patch: Patch) -> None:
    without_rule(patch, rules.newer_base)


def file_groups_that_both_began_are_not_compared(patch: Patch) -> None:
    true = rules.same_groups

    def same_groups(mine: Candidate, other: Past) -> Finding | None:
        ours = replace(mine.footprint, created=frozenset())
        theirs = replace(other.footprint, created=frozenset())
        return true(replace(mine, footprint=ours), replace(other, footprint=theirs))

    _with_check(patch, true, same_groups)


def a_base_file_passes_for_a_log_file_that_was_written_unread(patch: Patch) -> None:
    def unread_logs(ours: Footprint, _theirs: Footprint) -> frozenset[GroupId]:
        return ours.written if ours.nonblocking else frozenset()

    patch.setattr(rules, "_unread_logs", unread_logs)


def _relying(patch: Patch, **changes: Any) -> None:
    true = Placing._reliance

    def reliance(held: Placing, *values: Any, **options: Any) -> Reliance:
        return replace(true(held, *values, **options), **changes)

    patch.setattr(Placing, "_reliance", reliance)


def a_delete_looks_only_into_partitions_that_were_there(patch: Patch) -> None:
    _relying(patch, anywhere=False)


def a_delete_that_found_no_bucket_depends_on_nothing(patch: Patch) -> None:
    _relying(patch, absent=frozenset(), empty=frozenset())


def schemas_are_not_compared(patch: Patch) -> None:
    without_rule(patch, rules.other_schema, rules.service_schema)


def a_look_back_keeps_what_was_replaced_later(patch: Patch) -> None:
    """`Visibility.until` hides file groups that were replaced after the moment, too."""
    true = Visibility.until

    def until(seen: Visibility, completion: str) -> Visibility:
        return replace(true(seen, completion), replaced=seen.replaced)

    patch.setattr(Visibility, "until", until)


def tokens_of_another_counter_are_compared(patch: Patch) -> None:
    for module in (fold, transaction):
        patch.setattr(module, "fencing_epoch", lambda _token, before: before.epoch)


def roll_backs_are_forgotten_by_the_clock(patch: Patch) -> None:
    """After seven days, and readers ask nobody. Too rare here: it has its own test."""
    true = TableSnapshot._with_history

    def forgotten(held: Archiving, now: fold.Fold, _archive: Any) -> str:
        wall_ms = held.writer.transactions.clock.now().wall_epoch_ms
        return min(now.archived, format_time(wall_ms - 7 * 86_400_000))

    def with_history(seen: TableSnapshot, *values: Any, **options: Any) -> Visibility:
        return true(replace(seen, forgotten=None), *values, **options)

    patch.setattr(Archiving, "_forgotten", forgotten)
    patch.setattr(TableSnapshot, "_with_history", with_history)


def nobody_looks_for_commits_without_an_entry(patch: Patch) -> None:
    """Whoever has looked once, when it came cold, has looked."""
    true = Ledger.look_steps

    def look_steps(held: Ledger) -> Steps[fold.Fold]:
        if held._look is None:
            return (yield from true(held))
        return (yield from held.view_steps()).fold

    patch.setattr(Ledger, "look_steps", look_steps)


def properties_are_read_once(patch: Patch) -> None:
    true = Preconditions.check

    def check(held: Preconditions) -> Steps[None]:
        if not held._version:
            yield from true(held)

    patch.setattr(Preconditions, "check", check)


def nothing_is_in_the_way_of_changes(patch: Patch) -> None:
    patch.setattr(preconditions, "obstacles", lambda *_values: iter(()))


PLANTS = (
    Plant(
        a_base_file_may_lie_below_a_compaction_that_does_not_contain_it,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.OVERWRITE, Op.BULK_INSERT),
        terms={**_UNREAD, "services": _COMPACTIONS},
    ),
    Plant(
        file_groups_that_both_began_are_not_compared,
        ("R1", "R3", "R4", "T13"),
        ops=(Op.UPSERT, Op.INSERT, Op.OVERWRITE),
        terms=_BUCKETS,
    ),
    Plant(
        a_base_file_passes_for_a_log_file_that_was_written_unread,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.BULK_INSERT),
        terms=_UNREAD,
    ),
    Plant(
        a_delete_looks_only_into_partitions_that_were_there,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.DELETE_ANYWHERE),
    ),
    Plant(
        a_delete_that_found_no_bucket_depends_on_nothing,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.INSERT, Op.DELETE),
        terms={"index": "BUCKET"},
    ),
    Plant(
        schemas_are_not_compared,
        ("R1", "R2", "R3", "R4", "T13"),
        ops=(Op.UPSERT, Op.ADD_COLUMN, Op.WIDEN),
    ),
    Plant(
        a_look_back_keeps_what_was_replaced_later,
        ("R3", "R4", "T13"),
        ops=(Op.UPSERT, Op.OVERWRITE),
        terms={"index": "SIMPLE", "mode": "OPTIMISTIC_CONCURRENCY_CONTROL"},
    ),
    Plant(
        tokens_of_another_counter_are_compared,
        ("liveness",),
        terms={"restarts": True},
        where=lambda plan: plan.lease_ms > 0,
    ),
    Plant(
        nobody_looks_for_commits_without_an_entry,
        ("R1", "R3", "R4", "T13"),
        ops=(Op.UPSERT,),
        terms={"merges": False, "index": "SIMPLE", "beside": Beside.COMMIT, "services": ()},
        where=lambda plan: Fault.CLOCK not in plan.faults,
    ),
    Plant(
        properties_are_read_once,
        ("R7",),
        terms={"beside": Beside.LOCAL_TIME},
        where=lambda plan: Fault.CLOCK not in plan.faults,
    ),
    Plant(
        nothing_is_in_the_way_of_changes,
        ("R7",),
        terms={"beside": Beside.METADATA_TABLE},
        where=lambda plan: Fault.CLOCK not in plan.faults,
    ),
)
