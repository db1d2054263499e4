"""Bugs to plant in the production code, to see that the simulator finds each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidelock.base.errors import Unavailable
from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, Overwrite, Refused, Unclear
from tidelock.table.timeline.instant import Instant, format_time
from tidelock.testing.txnsim.plan import Fault, Plan
from tidelock.txn import (
    appending,
    beginning,
    checkpoint,
    conflict,
    fold,
    reading,
    rules,
    undoing,
)
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.committing import Judge
from tidelock.txn.effects import Effect, Head, Put, Steps
from tidelock.txn.entry import Commit, Entry, entry_key
from tidelock.txn.fold import Fold
from tidelock.txn.grown import Grown
from tidelock.txn.publishing import Publisher
from tidelock.txn.recovery import Recovery
from tidelock.txn.view import View

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug, how the complaint about it begins, and within how many schedules it must come.

    With `needs`, only schedules with these faults are run and counted, with `where` only those
    whose plan it likes.
    """

    bug: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    within: int = 100
    needs: tuple[Fault, ...] = ()
    where: Callable[[Plan], bool] = lambda _plan: True

    @property
    def name(self) -> str:
        """The bug in words."""
        return self.bug.__name__.replace("_", " ")


def _answering(patch: Patch, module: Any, name: str, change: Callable[[Effect, Any], Any]) -> None:
    """Let some steps hear other answers than the store gave: `change(effect, answer)`."""
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

    _answering(patch, appending, "_create", change)


def a_refused_append_counts_as_landed(patch: Patch) -> None:
    def change(effect: Effect, answer: Any) -> Any:
        return Landed("1") if isinstance(effect, Put) and isinstance(answer, Refused) else answer

    _answering(patch, appending, "_create", change)


def entries_are_written_without_a_condition(patch: Patch) -> None:
    """A check, but no compare-and-swap."""
    true = appending._create

    def create(entry: Entry) -> Steps[Any]:
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

    patch.setattr(appending, "_create", create)


def the_boundary_is_not_read_after_the_append(patch: Patch) -> None:
    def look(view: View) -> Steps[View]:
        yield Head(entry_key(view.position + 1))
        return view

    patch.setattr(appending, "look_at_checkpoint", look)


def entries_behind_the_boundary_are_believed(patch: Patch) -> None:
    """Neither the chain of nonces nor the checkpoint is asked."""
    patch.setattr(Fold, "precedes", lambda _fold, _entry: True)
    patch.setattr(reading, "look_at_checkpoint", _nothing)
    patch.setattr(appending, "look_at_checkpoint", _nothing)


def _nothing(view: View) -> Steps[View]:
    yield from ()
    return view


def nobody_judges_the_entries_that_came_between(patch: Patch) -> None:
    patch.setattr(Judge, "verdict", lambda _judge, _view: None)


def new_keys_are_not_compared(patch: Patch) -> None:
    without_rule(patch, rules.same_keys)


def a_writer_publishes_its_own_commit_first(patch: Patch) -> None:
    true = View.unpublished
    patch.setattr(View, "unpublished", lambda view: tuple(reversed(true(view))))


def nobody_helps(patch: Patch) -> None:
    """What a crashed writer left is left."""
    true = Publisher._publish

    def publish(self: Publisher, entry: Entry, fact: Any, *, own: bool) -> Steps[bool]:
        if not own:
            return False
        return (yield from true(self, entry, fact, own=own))

    patch.setattr(Publisher, "_publish", publish)


def a_roll_back_is_not_decided_in_the_ledger(patch: Patch) -> None:
    def decide(held: Recovery, instant: Instant, _known: object) -> Steps[None]:
        folder = held.home.ledger.publisher.folder
        yield from undoing.remove_undone(instant.requested, folder=folder, marked=False)

    patch.setattr(Recovery, "_decide", decide)


def a_completion_may_lie_before_its_request(patch: Patch) -> None:
    patch.setattr(appending, "_floor", lambda _fact: "")


def entry_times_come_from_the_clock_alone(patch: Patch) -> None:
    def next_time(_fold: Fold, wall_epoch_ms: int, *, above: str = "") -> str:
        del above
        return format_time(wall_epoch_ms)

    patch.setattr(Fold, "next_time", next_time)
    patch.setattr(Fold, "after", _unordered)


def _unordered(held: Fold, entry: Entry) -> Fold:
    changes = fold._changes(held, entry)
    return replace(held, position=entry.position, time=entry.time, nonce=entry.nonce, **changes)


def what_was_rolled_back_may_be_committed(patch: Patch) -> None:
    true = fold._commit_problem

    def problem(commit: Commit, held: Fold, owner: str) -> str | None:
        return true(commit, replace(held, void=Grown()), owner)

    patch.setattr(fold, "_commit_problem", problem)


def the_checkpoint_forgets_what_was_rolled_back(patch: Patch) -> None:
    true = checkpoint.encode

    def encode(held: Checkpoint) -> bytes:
        return true(replace(held, fold=replace(held.fold, void=Grown())))

    patch.setattr(checkpoint, "encode", encode)


def the_checkpoint_forgets_what_was_committed(patch: Patch) -> None:
    true = checkpoint.encode

    def encode(held: Checkpoint) -> bytes:
        return true(replace(held, fold=replace(held.fold, committed=Grown())))

    patch.setattr(checkpoint, "encode", encode)


def an_instant_is_not_reserved_by_its_name(patch: Patch) -> None:
    true = beginning._create

    def create(key: str, body: bytes, *mode: Any, **options: Any) -> Steps[str | None]:
        version = yield from true(key, body, *mode, **options)
        return version or "1"

    patch.setattr(beginning, "_create", create)


def without_rule(patch: Patch, *checks: rules.Check) -> None:
    """Let commits be judged without some rules."""
    for pair, found in conflict.MATRIX.items():
        kept = tuple(rule for rule in found if rule.check not in checks)
        patch.setitem(conflict.MATRIX, pair, kept)


def an_overwrite_does_not_look_for_what_came_since(patch: Patch) -> None:
    without_rule(patch, rules.unplanned_groups)


def a_replaced_file_group_may_be_written_to(patch: Patch) -> None:
    without_rule(patch, rules.gone_groups)


def one_bucket_may_be_begun_twice(patch: Patch) -> None:
    """Two writes of one bucket are compared by file group, not by bucket."""
    patch.setattr(rules, "bucket_of", lambda group: group)


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
        entries_behind_the_boundary_are_believed,
        ("T5", "T3", "T10", "T14", "T4", "InvariantBroken"),
        within=400,
        needs=(Fault.ARCHIVE, Fault.PAUSE),
    ),
    Plant(nobody_judges_the_entries_that_came_between, ("T14", "T4")),
    Plant(new_keys_are_not_compared, ("T4",)),
    Plant(
        a_writer_publishes_its_own_commit_first,
        ("T7", "T10"),
        within=400,
        needs=(Fault.CRASH, Fault.PAUSE),
    ),
    Plant(nobody_helps, ("T7", "T10", "liveness")),
    # What is left inflight without a heartbeat stops every writer (C111): liveness.
    Plant(
        a_roll_back_is_not_decided_in_the_ledger,
        ("T10", "T12", "T3", "T4", "liveness"),
        within=600,
    ),
    Plant(a_completion_may_lie_before_its_request, ("T2", "T4"), within=200, needs=(Fault.CLOCK,)),
    Plant(entry_times_come_from_the_clock_alone, ("T2",), needs=(Fault.CLOCK,)),
    Plant(what_was_rolled_back_may_be_committed, ("T3",), within=400, needs=(Fault.PAUSE,)),
    Plant(the_checkpoint_forgets_what_was_rolled_back, ("T10",)),
    Plant(the_checkpoint_forgets_what_was_committed, ("T10",)),
    Plant(an_instant_is_not_reserved_by_its_name, ("T1", "T3"), within=400),
    Plant(an_overwrite_does_not_look_for_what_came_since, ("T4", "T14"), where=_mixed),
    Plant(a_replaced_file_group_may_be_written_to, ("T4", "T14"), where=_mixed),
    Plant(one_bucket_may_be_begun_twice, ("T4", "T14"), where=_bucketed),
)
