"""Planted bugs in the production code; the simulator must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from testkit.txnsim.plan import Fault, Plan
from tests.simulation import PlantedBug
from tidelock.core.errors import Unavailable
from tidelock.core.outcome import Landed
from tidelock.hudi.timeline.instant import Instant, format_time
from tidelock.storage.contract import Create, Overwrite, Refused, Unclear
from tidelock.txn import checkpoint, conflicts, ledger_io, rollback, state
from tidelock.txn import commit as begin
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.commit import ConflictChecker
from tidelock.txn.effects import Effect, Head, Put, Steps
from tidelock.txn.entries import Commit, LedgerEntry, entry_key
from tidelock.txn.ledger_io import Publisher
from tidelock.txn.recovery import Recovery
from tidelock.txn.state import LedgerState, PersistentSet, View

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Plant(PlantedBug):
    """A planted bug. Only schedules whose plan satisfies `where` are run and counted."""

    where: Callable[[Plan], bool] = lambda _plan: True

    def matches(self, plan: Plan) -> bool:
        """Return whether a schedule is counted."""
        return self.has_faults(plan.faults) and self.where(plan)


def _answering(patch: Patch, module: Any, name: str, change: Callable[[Effect, Any], Any]) -> None:
    """Replace the answers of the store to some steps by `change(effect, answer)`."""
    true = getattr(module, name)

    def steps(*values: Any, **options: Any) -> Steps[Any]:
        inner = true(*values, **options)
        answer: Any = None
        while True:
            try:
                effect = inner.send(answer)
            except StopIteration as end:
                return end.value
            answer = change(effect, (yield effect))

    patch.setattr(module, name, steps)


def an_unclear_append_counts_as_failed(patch: Patch) -> None:
    """No read-back."""

    def change(effect: Effect, answer: Any) -> Any:
        if isinstance(effect, Put) and isinstance(answer, Unclear):
            raise Unavailable(f"{effect.key} was not written")
        return answer

    _answering(patch, ledger_io, "_create", change)


def a_refused_append_counts_as_landed(patch: Patch) -> None:
    def change(effect: Effect, answer: Any) -> Any:
        return Landed("1") if isinstance(effect, Put) and isinstance(answer, Refused) else answer

    _answering(patch, ledger_io, "_create", change)


def entries_are_written_without_a_condition(patch: Patch) -> None:
    """A check, but no compare-and-swap."""
    true = ledger_io._create

    def create(entry: LedgerEntry) -> Steps[Any]:
        inner = true(entry)
        answer: Any = None
        while True:
            try:
                effect = inner.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Put) and isinstance(effect.mode, Create):
                effect = replace(effect, mode=Overwrite())
            answer = yield effect

    patch.setattr(ledger_io, "_create", create)


def the_boundary_is_not_read_after_the_append(patch: Patch) -> None:
    def look(view: View) -> Steps[View]:
        yield Head(entry_key(view.position + 1))
        return view

    patch.setattr(ledger_io, "refresh_checkpoint", look)


def entries_below_the_boundary_are_trusted(patch: Patch) -> None:
    """Neither the chain of nonces nor the checkpoint is checked."""
    patch.setattr(LedgerState, "precedes", lambda _fold, _entry: True)
    patch.setattr(ledger_io, "refresh_checkpoint", _nothing)


def _nothing(view: View) -> Steps[View]:
    yield from ()
    return view


def later_entries_are_not_checked_for_conflicts(patch: Patch) -> None:
    patch.setattr(ConflictChecker, "check", lambda _judge, _view: None)


def new_keys_are_not_compared(patch: Patch) -> None:
    without_rule(patch, conflicts.same_keys)


def a_writer_publishes_its_own_commit_first(patch: Patch) -> None:
    true = View.unpublished
    patch.setattr(View, "unpublished", lambda view: tuple(reversed(true(view))))


def commits_of_others_are_not_published(patch: Patch) -> None:
    """Commits of a crashed writer stay unpublished."""
    true = Publisher._publish

    def publish(self: Publisher, entry: LedgerEntry, fact: Any, *, own: bool) -> Steps[bool]:
        if not own:
            return False
        return (yield from true(self, entry, fact, own=own))

    patch.setattr(Publisher, "_publish", publish)


def a_rollback_is_not_in_the_ledger(patch: Patch) -> None:
    def decide(held: Recovery, instant: Instant, _known: object) -> Steps[None]:
        folder = held.txns.ledger.publisher.folder
        yield from rollback.remove_rolled_back(instant.requested, folder=folder, marked=False)

    patch.setattr(Recovery, "_decide", decide)


def a_completion_may_precede_its_request(patch: Patch) -> None:
    patch.setattr(ledger_io, "_floor", lambda _fact: "")


def entry_times_are_not_monotonic(patch: Patch) -> None:
    def next_time(_fold: LedgerState, wall_epoch_ms: int, *, above: str = "") -> str:
        del above
        return format_time(wall_epoch_ms)

    patch.setattr(LedgerState, "next_time", next_time)
    patch.setattr(LedgerState, "after", _unordered)


def _unordered(held: LedgerState, entry: LedgerEntry) -> LedgerState:
    changes = state._changes(held, entry)
    return replace(held, position=entry.position, time=entry.time, nonce=entry.nonce, **changes)


def a_rolled_back_write_may_be_committed(patch: Patch) -> None:
    true = state._commit_problem

    def problem(commit: Commit, held: LedgerState, owner: str) -> str | None:
        return true(commit, replace(held, aborted=PersistentSet()), owner)

    patch.setattr(state, "_commit_problem", problem)


def the_checkpoint_forgets_rollbacks(patch: Patch) -> None:
    true = checkpoint.encode

    def encode(held: Checkpoint) -> bytes:
        return true(replace(held, state=replace(held.state, aborted=PersistentSet())))

    patch.setattr(checkpoint, "encode", encode)


def the_checkpoint_forgets_commits(patch: Patch) -> None:
    true = checkpoint.encode

    def encode(held: Checkpoint) -> bytes:
        return true(replace(held, state=replace(held.state, committed=PersistentSet())))

    patch.setattr(checkpoint, "encode", encode)


def an_instant_is_not_reserved_by_its_name(patch: Patch) -> None:
    true = begin._create

    def create(key: str, body: bytes, *mode: Any, **options: Any) -> Steps[str | None]:
        version = yield from true(key, body, *mode, **options)
        return version or "1"

    patch.setattr(begin, "_create", create)


def without_rule(patch: Patch, *checks: conflicts.Check) -> None:
    """Check commits for conflicts without some rules."""
    for pair, found in conflicts.MATRIX.items():
        remaining = tuple(rule for rule in found if rule.check not in checks)
        patch.setitem(conflicts.MATRIX, pair, remaining)


def an_overwrite_ignores_later_commits(patch: Patch) -> None:
    without_rule(patch, conflicts.unplanned_groups)


def a_replaced_file_group_may_be_written_to(patch: Patch) -> None:
    without_rule(patch, conflicts.replaced_groups)


def one_bucket_may_be_created_twice(patch: Patch) -> None:
    """Two writes of one bucket are compared by file group, not by bucket."""
    patch.setattr(conflicts, "bucket_of", lambda group: group)


def _mixed(plan: Plan) -> bool:
    return bool(plan.kinds)


def _bucketed(plan: Plan) -> bool:
    return plan.bucketed


PLANTS = (
    Plant(an_unclear_append_counts_as_failed, ("T5",), needs=(Fault.REPLY_LOST,)),
    Plant(a_refused_append_counts_as_landed, ("T5",)),
    Plant(entries_are_written_without_a_condition, ("T3",)),
    Plant(
        the_boundary_is_not_read_after_the_append,
        ("T5", "InvariantBroken"),
        within=400,
        needs=(Fault.ARCHIVE, Fault.PAUSE),
    ),
    Plant(
        entries_below_the_boundary_are_trusted,
        ("T5", "T3", "T10", "T14", "T4", "InvariantBroken"),
        within=400,
        needs=(Fault.ARCHIVE, Fault.PAUSE),
    ),
    Plant(later_entries_are_not_checked_for_conflicts, ("T14", "T4")),
    Plant(new_keys_are_not_compared, ("T4",)),
    Plant(
        a_writer_publishes_its_own_commit_first,
        ("T7", "T10"),
        within=400,
        needs=(Fault.CRASH, Fault.PAUSE),
    ),
    Plant(commits_of_others_are_not_published, ("T7", "T10", "liveness")),
    # An inflight instant without a heartbeat stops every writer (C111): liveness.
    Plant(
        a_rollback_is_not_in_the_ledger,
        ("T10", "T12", "T3", "T4", "liveness"),
        within=600,
    ),
    Plant(a_completion_may_precede_its_request, ("T2", "T4"), within=200, needs=(Fault.CLOCK,)),
    Plant(entry_times_are_not_monotonic, ("T2",), needs=(Fault.CLOCK,)),
    Plant(a_rolled_back_write_may_be_committed, ("T3",), within=400, needs=(Fault.PAUSE,)),
    Plant(the_checkpoint_forgets_rollbacks, ("T10",)),
    Plant(the_checkpoint_forgets_commits, ("T10",)),
    Plant(an_instant_is_not_reserved_by_its_name, ("T1", "T3"), within=400),
    Plant(an_overwrite_ignores_later_commits, ("T4", "T14"), where=_mixed),
    Plant(a_replaced_file_group_may_be_written_to, ("T4", "T14"), where=_mixed),
    Plant(one_bucket_may_be_created_twice, ("T4", "T14"), where=_bucketed),
)
