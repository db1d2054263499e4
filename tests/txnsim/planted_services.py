"""Planted bugs in table services; the simulator must find each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from testkit.txnsim.plan import Plan
from testkit.txnsim.services.parameters import Parameters
from tests.simulation import PlantedBug
from tidelock.hudi.timeline.history import Archive
from tidelock.services import archive as archive_plan
from tidelock.services import archive as archiving
from tidelock.services import clean, plans
from tidelock.services import clean as clean_plan
from tidelock.services.clean import RetainedFiles
from tidelock.txn import commit as committing
from tidelock.txn import ledger_io, recovery, state, transaction, transaction_manager
from tidelock.txn import plans as planning
from tidelock.txn import plans as rollback_plans
from tidelock.txn.commit import ConflictChecker
from tidelock.txn.effects import Delete, Head, Steps
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.state import LedgerState, PersistentSet, View

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Plant(PlantedBug):
    """A planted bug, with conditions on the schedules that are run and counted.

    With `pauses`, processes often pause for longer than the lifetime of a heartbeat. With
    `archives`, an archive runs. With `java`, an external writer runs as well.
    """

    within: int = 150
    pauses: bool = False
    archives: bool = False
    java: bool = False

    def matches(self, plan: Plan, parameters: Parameters) -> bool:
        """Return whether a schedule is counted."""
        often = plan.pause_share > 0.05 and plan.misses == 1
        return (
            self.has_faults(plan.faults)
            and (often or not self.pauses)
            and (bool(parameters.archives) or not self.archives)
        )


def a_superseded_attempt_may_commit(patch: Patch) -> None:
    true = state._commit_problem

    def problem(commit: Any, held: LedgerState, owner: str) -> str | None:
        others = {key: plan for key, plan in held.plans.items() if key != commit.instant}
        return true(commit, replace(held, plans=others), owner)

    patch.setattr(state, "_commit_problem", problem)


def a_plan_is_claimed_despite_its_heartbeat(patch: Patch) -> None:
    true = planning._free_heartbeat

    def free(*values: Any, **options: Any) -> Steps[Any]:
        return (yield from true(*values, **{**options, "guard": False}))

    patch.setattr(planning, "_free_heartbeat", free)


def claims_are_not_counted(patch: Patch) -> None:
    patch.setattr(state, "_claim_problem", lambda _claim, _fold, _seen: None)


def a_completed_write_may_be_rolled_back(patch: Patch) -> None:
    """No schedule finds it, because a rollback checks before. It has its own test."""
    true = state._rollback_problem

    def problem(rollback: Any, held: LedgerState, *values: Any, **options: Any) -> str | None:
        return true(rollback, replace(held, committed=PersistentSet()), *values, **options)

    patch.setattr(state, "_rollback_problem", problem)


def a_write_may_be_rolled_back_twice(patch: Patch) -> None:
    true = state._rollback_problem

    def problem(rollback: Any, held: LedgerState, *values: Any, **options: Any) -> str | None:
        return true(rollback, replace(held, aborted=PersistentSet()), *values, **options)

    patch.setattr(state, "_rollback_problem", problem)


def a_clean_rolls_back_permanent_plans(patch: Patch) -> None:
    true = transaction_manager.TransactionManager.recover

    def recover(txns: Any, **options: Any) -> Any:
        done = true(txns, **options)
        for plan in txns.ledger.refresh().plans.values():
            if not plan.rolls_back:
                txns.remove_plan(plan.instant, delay_ms=0, forced=True)
        return done

    patch.setattr(transaction_manager.TransactionManager, "recover", recover)


def a_removable_plan_is_claimed_twice(patch: Patch) -> None:
    true = planning.claim

    def claim(view: View, instant: str, *values: Any, **options: Any) -> Steps[Any]:
        plans = {key: replace(plan, removable=False) for key, plan in view.state.plans.items()}
        permanent = replace(view, state=replace(view.state, plans=plans))
        return (yield from true(permanent, instant, *values, **options))

    patch.setattr(transaction_manager, "claim", claim)


def a_zombie_deletes_its_successors_heartbeat(patch: Patch) -> None:
    def drop(instant: str, _held: Any, *before: str) -> Steps[None]:
        for key in (*before, heartbeat_key(instant)):
            yield Delete(key)

    true = planning.release_plan

    def release(*values: Any, **options: Any) -> Steps[None]:
        yield from true(*values, **{**options, "over": False})

    patch.setattr(planning, "delete_heartbeat", drop)
    patch.setattr(transaction, "release_plan", release)


def a_reserved_name_of_another_is_deleted(patch: Patch) -> None:
    def give_back(time: str, _nonce: str) -> Steps[None]:
        yield Delete(heartbeat_key(time))

    for module in (ledger_io, transaction_manager, rollback_plans):
        patch.setattr(module, "release_time", give_back)


def two_plans_may_have_one_file_group(patch: Patch) -> None:
    patch.setattr(state, "_plan_problem", lambda _plan, _fold: None)


def a_plan_is_not_checked_for_later_changes(patch: Patch) -> None:
    patch.setattr(planning, "committed_txn", lambda _entry: None)


def a_service_is_not_checked_for_conflicts(patch: Patch) -> None:
    patch.setattr(ConflictChecker, "check", lambda _judge, _view: None)


def a_clean_deletes_inputs_of_pending_plans(patch: Patch) -> None:
    """Plans mostly read the newest version, so it also keeps one version less."""
    patch.setattr(clean, "_retained", lambda snapshot: RetainedFiles(replaced=snapshot.replaced))
    patch.setattr(clean_plan, "_before", lambda slices, _earliest: slices[:-1])


def a_clean_deletes_the_newest_version(patch: Patch) -> None:
    patch.setattr(clean_plan, "_before", lambda slices, _earliest: slices)


def the_archive_passes_a_pending_plan(patch: Patch) -> None:
    patch.setattr(archive_plan, "_barrier", lambda _instants, _needed: "~")
    patch.setattr(state, "_boundary_problem", lambda _boundary, _fold: None)
    patch.setattr(archiving, "_first_kept", _after_all)
    patch.setattr(archiving.ArchiveService, "_has_pending_before", lambda *_: False)


def _after_all(_timeline: Any, leaving: Any, _plans: Any) -> str:
    last: str = max(instant.requested for instant in leaving)
    return f"{int(last) + 1}"


def nothing_is_written_to_the_history(patch: Patch) -> None:
    patch.setattr(Archive, "append", lambda self, _instants: self.manifest)


def files_of_a_dead_attempt_remain(patch: Patch) -> None:
    def nothing(instant: str, _attempts: Any) -> Steps[tuple[str, ...]]:
        yield Head(heartbeat_key(instant))
        return ()

    true = committing.remove_unreferenced_files

    def strays(instant: Any, metadata: Any, **options: Any) -> Steps[Any]:
        markers = yield from true(instant, metadata, **{**options, "attempt": -1})
        return markers

    def unswept(_txns: Any, **_options: Any) -> Steps[tuple[str, ...]]:
        yield Head(heartbeat_key("0"))
        return ()

    patch.setattr(planning, "remove_attempts", nothing)
    patch.setattr(transaction, "remove_unreferenced_files", strays)
    patch.setattr(recovery, "remove_late_files", unswept)


def a_conflicted_compaction_stays_pending(patch: Patch) -> None:
    patch.setattr(transaction_manager.TransactionManager, "remove_plan", lambda *_, **__: "left")


def a_java_plan_is_not_compared_with_the_table(patch: Patch) -> None:
    patch.setattr(plans, "_mismatch", lambda *_values: None)


def changes_after_a_java_plan_are_forgotten(patch: Patch) -> None:
    """Also at its commit: a clustering has the same file groups in its footprint."""
    patch.setattr(planning, "_changes", lambda *_values: False)


def files_of_a_java_attempt_remain(patch: Patch) -> None:
    def nothing(instant: str) -> Steps[tuple[str, ...]]:
        yield Head(heartbeat_key(instant))
        return ()

    patch.setattr(planning, "_everything_of", nothing)


def the_java_heartbeat_is_ignored(patch: Patch) -> None:
    a_plan_is_claimed_despite_its_heartbeat(patch)
    patch.setattr(plans, "_check_not_executing", lambda *_values: None)


PLANTS = (
    Plant(a_superseded_attempt_may_commit, ("S1", "S4", "T3"), 1_000, pauses=True),
    Plant(a_plan_is_claimed_despite_its_heartbeat, ("S2",)),
    Plant(claims_are_not_counted, ("S1", "S5", "S2", "KeyError"), pauses=True),
    Plant(a_write_may_be_rolled_back_twice, ("S6", "T3", "KeyError"), pauses=True),
    Plant(a_clean_rolls_back_permanent_plans, ("S6",)),
    Plant(a_removable_plan_is_claimed_twice, ("S5", "S2", "S1", "InvariantBroken"), pauses=True),
    Plant(a_zombie_deletes_its_successors_heartbeat, ("S2", "S7"), 400, pauses=True),
    Plant(a_reserved_name_of_another_is_deleted, ("S2",), 400, pauses=True),
    Plant(two_plans_may_have_one_file_group, ("S5",)),
    Plant(a_plan_is_not_checked_for_later_changes, ("S4", "S5", "G10", "S3"), 400),
    Plant(a_service_is_not_checked_for_conflicts, ("S4", "S5", "G10", "G7")),
    Plant(a_clean_deletes_inputs_of_pending_plans, ("S3",), 300),
    Plant(a_clean_deletes_the_newest_version, ("S3",)),
    Plant(the_archive_passes_a_pending_plan, ("S7", "G1"), 1_500, pauses=True, archives=True),
    Plant(nothing_is_written_to_the_history, ("S7", "T13"), 200, archives=True),
    Plant(files_of_a_dead_attempt_remain, ("G14",), 400, pauses=True),
    Plant(a_conflicted_compaction_stays_pending, ("S10",)),
    Plant(a_java_plan_is_not_compared_with_the_table, ("S4", "S5", "G10"), 400, java=True),
    Plant(changes_after_a_java_plan_are_forgotten, ("S4", "S5", "G10"), 400, java=True),
    Plant(files_of_a_java_attempt_remain, ("G14", "T13", "DataCorrupt"), 400, java=True),
    Plant(the_java_heartbeat_is_ignored, ("S2",), 200, java=True),
)
