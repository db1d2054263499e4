"""Planted bugs that only rows show: in conflict rules, reads and refusals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from testkit.txnsim.plan import Fault
from testkit.txnsim.rows.parameters import ExternalAct, Op, Parameters, Work, draw_rows
from tests.txnsim import planted
from tests.txnsim.planted import without_rule
from tidelock.hudi.file_groups import GroupId, Visibility
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import format_time
from tidelock.operations.partitioner import Partitioner
from tidelock.services.archive import ArchiveService
from tidelock.txn import commit, conflicts, state, transaction
from tidelock.txn.commit import Preconditions
from tidelock.txn.conflicts import Overlap, PendingTxn
from tidelock.txn.effects import Steps
from tidelock.txn.footprint import Footprint, ReadDependencies
from tidelock.txn.ledger import Ledger
from tidelock.txn.state import CommittedTxn

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Plant(planted.Plant):
    """A planted bug; `ops` and `parameters` change a schedule so that the bug can show."""

    within: int = 60
    ops: tuple[Op, ...] = ()
    parameters: dict[str, Any] | None = None

    def parameters_of(self, seed: int) -> Parameters:
        """Return the parameters of a schedule."""
        quiet = {"external_act": ExternalAct.NOTHING, "reads": 0}
        return replace(draw_rows(seed, self.ops), **{**quiet, **(self.parameters or {})})


_BUCKETS = {"merges": True, "index": "BUCKET", "mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
_UNREAD = {**_BUCKETS, "mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
_COMPACTIONS = ((Work.COMPACT_PLAN, Work.COMPACT) * 8,) * 2


def _with_check(patch: Patch, old: conflicts.Check, new: conflicts.Check) -> None:
    for pair, found in conflicts.MATRIX.items():
        changed = (replace(rule, check=new) if rule.check is old else rule for rule in found)
        patch.setitem(conflicts.MATRIX, pair, tuple(changed))


def a_base_file_may_precede_a_compaction_without_it(patch: Patch) -> None:
    without_rule(patch, conflicts.newer_base)


def file_groups_created_by_both_are_not_compared(patch: Patch) -> None:
    true = conflicts.same_groups

    def same_groups(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
        ours = replace(mine.footprint, created=frozenset())
        theirs = replace(other.footprint, created=frozenset())
        return true(replace(mine, footprint=ours), replace(other, footprint=theirs))

    _with_check(patch, true, same_groups)


def a_base_file_counts_as_a_blind_log_file(patch: Patch) -> None:
    def unread_logs(ours: Footprint, _theirs: Footprint) -> frozenset[GroupId]:
        return ours.written if ours.nonblocking else frozenset()

    patch.setattr(conflicts, "_unread_logs", unread_logs)


def _relying(patch: Patch, **changes: Any) -> None:
    true = Partitioner._dependencies

    def dependencies(held: Partitioner, *values: Any, **options: Any) -> ReadDependencies:
        return replace(true(held, *values, **options), **changes)

    patch.setattr(Partitioner, "_dependencies", dependencies)


def a_delete_reads_only_existing_partitions(patch: Patch) -> None:
    _relying(patch, anywhere=False)


def a_delete_without_a_bucket_depends_on_nothing(patch: Patch) -> None:
    _relying(patch, absent=frozenset(), empty=frozenset())


def schemas_are_not_compared(patch: Patch) -> None:
    without_rule(patch, conflicts.other_schema, conflicts.service_schema)


def a_read_as_of_shows_groups_replaced_later(patch: Patch) -> None:
    """`Visibility.until` also hides file groups that were replaced after that time."""
    true = Visibility.until

    def until(seen: Visibility, completion: str) -> Visibility:
        return replace(true(seen, completion), replaced=seen.replaced)

    patch.setattr(Visibility, "until", until)


def tokens_of_another_counter_are_compared(patch: Patch) -> None:
    for module in (state, transaction):
        patch.setattr(module, "fencing_epoch", lambda _token, before: before.epoch)


def rollbacks_are_forgotten_by_time(patch: Patch) -> None:
    """After seven days, without a check by readers. Too rare here: it has its own test."""
    true = TableSnapshot._with_history

    def forgotten(held: ArchiveService, now: state.LedgerState, _archive: Any) -> str:
        wall_ms = held.writer.transactions.clock.now().wall_epoch_ms
        return min(now.archived, format_time(wall_ms - 7 * 86_400_000))

    def with_history(seen: TableSnapshot, *values: Any, **options: Any) -> Visibility:
        return true(replace(seen, forgotten=None), *values, **options)

    patch.setattr(ArchiveService, "_forgotten", forgotten)
    patch.setattr(TableSnapshot, "_with_history", with_history)


def commits_without_an_entry_are_ignored(patch: Patch) -> None:
    """A process looks for them only once, at its start."""
    true = Ledger.import_steps

    def import_steps(held: Ledger) -> Steps[state.LedgerState]:
        if held._scan is None:
            return (yield from true(held))
        return (yield from held.view_steps()).state

    patch.setattr(Ledger, "import_steps", import_steps)


def properties_are_read_once(patch: Patch) -> None:
    true = Preconditions.check

    def check(held: Preconditions) -> Steps[None]:
        if not held._version:
            yield from true(held)

    patch.setattr(Preconditions, "check", check)


def nothing_prevents_reading_changes(patch: Patch) -> None:
    patch.setattr(commit, "obstacles", lambda *_values: iter(()))


PLANTS = (
    Plant(
        a_base_file_may_precede_a_compaction_without_it,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.OVERWRITE, Op.BULK_INSERT),
        parameters={**_UNREAD, "services": _COMPACTIONS},
    ),
    Plant(
        file_groups_created_by_both_are_not_compared,
        ("R1", "R3", "R4", "T13"),
        ops=(Op.UPSERT, Op.INSERT, Op.OVERWRITE),
        parameters=_BUCKETS,
    ),
    Plant(
        a_base_file_counts_as_a_blind_log_file,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.BULK_INSERT),
        parameters=_UNREAD,
    ),
    Plant(
        a_delete_reads_only_existing_partitions,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.DELETE_ANYWHERE),
    ),
    Plant(
        a_delete_without_a_bucket_depends_on_nothing,
        ("R1", "R3", "R4"),
        ops=(Op.UPSERT, Op.INSERT, Op.DELETE),
        parameters={"index": "BUCKET"},
    ),
    Plant(
        schemas_are_not_compared,
        ("R1", "R2", "R3", "R4", "T13"),
        ops=(Op.UPSERT, Op.ADD_COLUMN, Op.WIDEN),
    ),
    Plant(
        a_read_as_of_shows_groups_replaced_later,
        ("R3", "R4", "T13"),
        ops=(Op.UPSERT, Op.OVERWRITE),
        parameters={"index": "SIMPLE", "mode": "OPTIMISTIC_CONCURRENCY_CONTROL"},
    ),
    Plant(
        tokens_of_another_counter_are_compared,
        ("liveness",),
        parameters={"restarts": True},
        where=lambda plan: plan.lease_ms > 0,
    ),
    Plant(
        commits_without_an_entry_are_ignored,
        ("R1", "R3", "R4", "T13"),
        ops=(Op.UPSERT,),
        parameters={
            "merges": False,
            "index": "SIMPLE",
            "external_act": ExternalAct.COMMIT,
            "services": (),
        },
        where=lambda plan: Fault.CLOCK not in plan.faults,
    ),
    Plant(
        properties_are_read_once,
        ("R7",),
        parameters={"external_act": ExternalAct.LOCAL_TIME},
        where=lambda plan: Fault.CLOCK not in plan.faults,
    ),
    Plant(
        nothing_prevents_reading_changes,
        ("R7",),
        parameters={"external_act": ExternalAct.METADATA_TABLE},
        where=lambda plan: Fault.CLOCK not in plan.faults,
    ),
)
