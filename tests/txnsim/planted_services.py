"""Mistakes in table services that the simulation must find, each by the promise it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidelock.table.timeline.archive import Archive
from tidelock.tableservice import adopting
from tidelock.tableservice.archive import execute as archiving
from tidelock.tableservice.archive import plan as archive_plan
from tidelock.tableservice.clean import execute as clean
from tidelock.tableservice.clean import plan as clean_plan
from tidelock.tableservice.clean.plan import Kept
from tidelock.testing.txnsim.plan import Fault, Plan
from tidelock.testing.txnsim.services.terms import Terms
from tidelock.txn import (
    appending,
    committing,
    fold,
    planning,
    recovery,
    rollbacks,
    transaction,
    transactions,
)
from tidelock.txn.committing import Judge
from tidelock.txn.effects import Delete, Head, Steps
from tidelock.txn.fold import Fold
from tidelock.txn.grown import Grown
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.view import View

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Plant:
    """A mistake, how complaints about it begin, and within how many schedules one must come.

    With `needs`, only schedules with these faults are run and counted; `pauses` are those where
    processes often stand still, for longer than a heartbeat lives; `archives`, with an archive;
    with `java`, somebody without a ledger is there.
    """

    bug: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    within: int = 150
    needs: tuple[Fault, ...] = ()
    pauses: bool = False
    archives: bool = False
    java: bool = False

    def takes(self, plan: Plan, terms: Terms) -> bool:
        """Tell whether a schedule is one that counts."""
        often = plan.pause_share > 0.05 and plan.misses == 1
        return (
            set(self.needs) <= set(plan.faults)
            and (often or not self.pauses)
            and (bool(terms.archives) or not self.archives)
        )


def an_attempt_that_was_taken_over_may_commit(patch: Patch) -> None:
    true = fold._commit_problem

    def problem(commit: Any, held: Fold, owner: str) -> str | None:
        others = {key: plan for key, plan in held.plans.items() if key != commit.instant}
        return true(commit, replace(held, plans=others), owner)

    patch.setattr(fold, "_commit_problem", problem)


def a_plan_is_claimed_without_a_look_at_the_heartbeat(patch: Patch) -> None:
    true = planning._free_heartbeat

    def free(*values: Any, **options: Any) -> Steps[Any]:
        return (yield from true(*values, **{**options, "guard": False}))

    patch.setattr(planning, "_free_heartbeat", free)


def claims_are_not_counted(patch: Patch) -> None:
    patch.setattr(fold, "_claim_problem", lambda _claim, _fold, _seen: None)


def what_is_complete_may_be_rolled_back(patch: Patch) -> None:
    """No schedule gets that far: whoever rolls back has looked before. The rules' own test does."""
    true = fold._rollback_problem

    def problem(rollback: Any, held: Fold, *values: Any, **options: Any) -> str | None:
        return true(rollback, replace(held, committed=Grown()), *values, **options)

    patch.setattr(fold, "_rollback_problem", problem)


def what_is_rolled_back_may_be_rolled_back_again(patch: Patch) -> None:
    true = fold._rollback_problem

    def problem(rollback: Any, held: Fold, *values: Any, **options: Any) -> str | None:
        return true(rollback, replace(held, void=Grown()), *values, **options)

    patch.setattr(fold, "_rollback_problem", problem)


def a_clean_rolls_back_plans_that_stay(patch: Patch) -> None:
    true = transactions.Transactions.recover

    def recover(home: Any, **options: Any) -> Any:
        done = true(home, **options)
        for plan in home.ledger.refresh().plans.values():
            if not plan.undoes:
                home.remove_plan(plan.instant, delay_ms=0, forced=True)
        return done

    patch.setattr(transactions.Transactions, "recover", recover)


def a_removable_plan_is_begun_again(patch: Patch) -> None:
    true = planning.claim

    def claim(view: View, instant: str, *values: Any, **options: Any) -> Steps[Any]:
        plans = {key: replace(plan, removable=False) for key, plan in view.fold.plans.items()}
        kept = replace(view, fold=replace(view.fold, plans=plans))
        return (yield from true(kept, instant, *values, **options))

    patch.setattr(transactions, "claim", claim)


def a_zombie_deletes_its_successors_heartbeat(patch: Patch) -> None:
    def drop(instant: str, _held: Any, *before: str) -> Steps[None]:
        for key in (*before, heartbeat_key(instant)):
            yield Delete(key)

    true = planning.release_plan

    def release(*values: Any, **options: Any) -> Steps[None]:
        yield from true(*values, **{**options, "over": False})

    patch.setattr(planning, "drop_heartbeat", drop)
    patch.setattr(transaction, "release_plan", release)


def a_reserved_name_is_deleted_whosever_it_is(patch: Patch) -> None:
    def give_back(time: str, _nonce: str) -> Steps[None]:
        yield Delete(heartbeat_key(time))

    for module in (appending, transactions, rollbacks):
        patch.setattr(module, "give_name_back", give_back)


def two_plans_may_have_one_file_group(patch: Patch) -> None:
    patch.setattr(fold, "_plan_problem", lambda _plan, _fold: None)


def a_plan_is_not_judged_by_what_changed_since(patch: Patch) -> None:
    patch.setattr(planning, "past_of", lambda _entry: None)


def a_service_is_not_judged_by_what_writers_did(patch: Patch) -> None:
    patch.setattr(Judge, "verdict", lambda _judge, _view: None)


def a_clean_forgets_what_pending_plans_read(patch: Patch) -> None:
    """And, since plans mostly read the newest, keeps one version less."""
    patch.setattr(clean, "_kept", lambda snapshot: Kept(replaced=snapshot.replaced))
    patch.setattr(clean_plan, "_before", lambda slices, _earliest: slices[:-1])


def a_clean_deletes_the_newest_version(patch: Patch) -> None:
    patch.setattr(clean_plan, "_before", lambda slices, _earliest: slices)


def the_archive_goes_past_a_pending_plan(patch: Patch) -> None:
    patch.setattr(archive_plan, "_barrier", lambda _instants, _needed: "~")
    patch.setattr(fold, "_boundary_problem", lambda _boundary, _fold: None)
    patch.setattr(archiving, "_first_kept", _after_all)
    patch.setattr(archiving.Archiving, "_has_pending_before", lambda *_: False)


def _after_all(_timeline: Any, leaving: Any, _plans: Any) -> str:
    last: str = max(instant.requested for instant in leaving)
    return f"{int(last) + 1}"


def nothing_is_written_to_the_history(patch: Patch) -> None:
    patch.setattr(Archive, "append", lambda self, _instants: self.manifest)


def files_of_a_dead_attempt_stay(patch: Patch) -> None:
    def nothing(instant: str, _attempts: Any) -> Steps[tuple[str, ...]]:
        yield Head(heartbeat_key(instant))
        return ()

    true = committing.remove_strays

    def strays(instant: Any, metadata: Any, **options: Any) -> Steps[Any]:
        markers = yield from true(instant, metadata, **{**options, "attempt": -1})
        return markers

    def unswept(_home: Any, **_options: Any) -> Steps[tuple[str, ...]]:
        yield Head(heartbeat_key("0"))
        return ()

    patch.setattr(planning, "remove_attempts", nothing)
    patch.setattr(transaction, "remove_strays", strays)
    patch.setattr(recovery, "sweep_marked", unswept)


def a_compaction_that_was_overtaken_stays_for_ever(patch: Patch) -> None:
    patch.setattr(transactions.Transactions, "remove_plan", lambda *_, **__: "left")


def a_plan_of_java_is_not_compared_with_the_table(patch: Patch) -> None:
    patch.setattr(adopting, "_fault", lambda *_values: None)


def what_came_since_a_plan_was_looked_at_is_forgotten(patch: Patch) -> None:
    """Also when it is committed: a clustering has the same file groups in its footprint."""
    patch.setattr(planning, "_changes", lambda *_values: False)


def what_java_left_of_an_attempt_stays(patch: Patch) -> None:
    def nothing(instant: str) -> Steps[tuple[str, ...]]:
        yield Head(heartbeat_key(instant))
        return ()

    patch.setattr(planning, "_everything_of", nothing)


def the_heartbeat_of_java_is_not_looked_at(patch: Patch) -> None:
    a_plan_is_claimed_without_a_look_at_the_heartbeat(patch)
    patch.setattr(adopting, "_check_alone", lambda *_values: None)


PLANTS = (
    Plant(an_attempt_that_was_taken_over_may_commit, ("S1", "S4", "T3"), 1_000, pauses=True),
    Plant(a_plan_is_claimed_without_a_look_at_the_heartbeat, ("S2",)),
    Plant(claims_are_not_counted, ("S1", "S5", "S2", "KeyError"), pauses=True),
    Plant(what_is_rolled_back_may_be_rolled_back_again, ("S6", "T3", "KeyError"), pauses=True),
    Plant(a_clean_rolls_back_plans_that_stay, ("S6",)),
    Plant(a_removable_plan_is_begun_again, ("S5", "S2", "S1", "InvariantBroken"), pauses=True),
    Plant(a_zombie_deletes_its_successors_heartbeat, ("S2", "S7"), 400, pauses=True),
    Plant(a_reserved_name_is_deleted_whosever_it_is, ("S2",), 400, pauses=True),
    Plant(two_plans_may_have_one_file_group, ("S5",)),
    Plant(a_plan_is_not_judged_by_what_changed_since, ("S4", "S5", "G10", "S3"), 400),
    Plant(a_service_is_not_judged_by_what_writers_did, ("S4", "S5", "G10", "G7")),
    Plant(a_clean_forgets_what_pending_plans_read, ("S3",), 300),
    Plant(a_clean_deletes_the_newest_version, ("S3",)),
    Plant(the_archive_goes_past_a_pending_plan, ("S7", "G1"), 1_500, pauses=True, archives=True),
    Plant(nothing_is_written_to_the_history, ("S7", "T13"), 200, archives=True),
    Plant(files_of_a_dead_attempt_stay, ("G14",), 400, pauses=True),
    Plant(a_compaction_that_was_overtaken_stays_for_ever, ("S10",)),
    Plant(a_plan_of_java_is_not_compared_with_the_table, ("S4", "S5", "G10"), 400, java=True),
    Plant(what_came_since_a_plan_was_looked_at_is_forgotten, ("S4", "S5", "G10"), 400, java=True),
    Plant(what_java_left_of_an_attempt_stays, ("G14", "T13", "DataCorrupt"), 400, java=True),
    Plant(the_heartbeat_of_java_is_not_looked_at, ("S2",), 200, java=True),
)
