"""Marks: a batch of an application is committed once, by whoever tries, however late (C78-C83)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_fold import NOTHING, A, B, commit, folded
from tidelock.base.errors import InvalidInput, RecordFromFuture
from tidelock.table.timeline.instant import Action
from tidelock.txn import checkpoint, entry
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.content import Inline
from tidelock.txn.draft import CommitDraft, Committed, Overtaken
from tidelock.txn.entry import Commit, Entry, Undo
from tidelock.txn.fold import Fold, lawful
from tidelock.txn.mark import (
    APPLICATIONS_MAX,
    DATA_CHARACTERS_MAX,
    Applied,
    Mark,
    marked,
    taken_back,
)
from tidelock.txn.verdict import Rebase, Repeated

ORDERS = Mark("orders", 7, {"streamer.checkpoint.key.v2": "topic,0:120"})


def marking(instant: str, mark: Mark) -> Commit:
    """Return a commit that carries a mark."""
    return Commit(instant, Action.COMMIT, 1, NOTHING, Inline(b""), mark=mark)


def with_mark(mark: Mark, *created: str) -> CommitDraft:
    """Return a draft of some batch."""
    return replace(draft(created=created), mark=mark)


@pytest.mark.parametrize(("version", "may"), [(6, False), (7, False), (8, True), (900, True)])
def test_a_batch_is_lawful_only_after_the_last_of_its_application(version: int, may: bool) -> None:
    fold = folded(marking(A, ORDERS))
    problem = lawful(marking(B, Mark("orders", version)), fold)
    assert (problem is None) is may
    assert may or "orders" in str(problem)


def test_applications_do_not_know_each_other_and_a_plain_commit_forgets_nothing() -> None:
    fold = folded(marking(A, ORDERS), commit(B))
    assert lawful(marking("20260103000000000", Mark("clicks", 0)), fold) is None
    assert fold.marks["orders"].mark == ORDERS
    assert fold.marks["orders"].instant == A


def test_a_zombie_of_an_applied_batch_is_told_that_it_is_repeated() -> None:
    bench = Bench()
    zombie = bench.begin(bench.writer())
    done = bench.begin(bench.writer()).commit(with_mark(ORDERS, "a"))
    assert isinstance(done, Committed)
    late = zombie.commit(with_mark(ORDERS, "b"))
    assert isinstance(late, Overtaken)
    assert isinstance(late.verdict, Repeated)
    assert late.verdict.applied == Applied(ORDERS, done.instant, done.completion)
    zombie.rollback(overtaken=late)
    assert [each.requested for each in bench.completed()] == [done.instant]
    assert bench.pending() == ()


@pytest.mark.parametrize("asleep_at", range(12))
def test_wherever_a_zombie_slept_the_batch_lands_once(asleep_at: int) -> None:
    """T15: one request at a time, the other's whole commit between any two of them."""
    bench = Bench()
    home = bench.writer()
    zombie = bench.begin(home)
    steps = zombie.commit_steps(with_mark(ORDERS, "a"))
    done, answer = 0, None
    other = late = None
    while late is None:
        if done == asleep_at:
            other = bench.begin(bench.writer()).commit(with_mark(ORDERS, "b"))
        try:
            effect = steps.send(answer)
        except StopIteration as end:
            late = end.value
        else:
            answer = home.ledger.world._answer(effect, None)
            done += 1
    other = other or bench.begin(bench.writer()).commit(with_mark(ORDERS, "b"))
    ended = sorted(type(each).__name__ for each in (late, other))
    assert ended == ["Committed", "Overtaken"]
    assert len(bench.completed()) == 1
    marks = bench.writer().ledger.refresh().marks
    assert marks["orders"].instant == bench.completed()[0].requested


def test_a_commit_that_landed_unheard_is_found_and_not_called_repeated() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer())
    first = transaction.commit(with_mark(ORDERS, "a"))
    transaction.phase = type(transaction.phase).UNKNOWN
    assert isinstance(first, Committed)
    again = transaction.commit(with_mark(ORDERS, "a"))
    assert isinstance(again, Committed)
    assert (again.instant, again.completion) == (first.instant, first.completion)


def test_what_others_rolled_back_is_written_again_and_not_called_repeated() -> None:
    bench = Bench()
    home = bench.writer()
    given_up = bench.begin(home)
    given_up.rollback("by hand")
    given_up.phase = type(given_up.phase).RUNNING
    bench.begin(home).commit(with_mark(ORDERS, "a"))
    late = given_up.commit(with_mark(ORDERS, "b"))
    assert isinstance(late, Overtaken)
    assert isinstance(late.verdict, Rebase)


def test_a_cold_process_finds_marks_in_checkpoint_and_tail() -> None:
    bench = Bench()
    home = bench.writer()
    for version in range(80):
        mark = Mark("orders" if version % 2 else "clicks", version, f"at {version}")
        done = bench.begin(home).commit(with_mark(mark, f"g{version}"))
        assert isinstance(done, Committed)
    assert bench.keys(checkpoint.CHECKPOINT_KEY)
    marks = bench.writer().ledger.refresh().marks
    assert {name: held.mark.data for name, held in marks.items()} == {
        "orders": "at 79",
        "clicks": "at 78",
    }


def test_a_checkpoint_of_the_time_before_marks_is_read() -> None:
    body = checkpoint.encode(Checkpoint(folded(commit(A)), "n"))
    fields = json.loads(body)
    assert fields["format"] == 1
    assert "marks" not in fields
    assert dict(checkpoint.decode(body, where="here").fold.marks) == {}


def test_whoever_does_not_know_marks_stops_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Entry(1, A, "me", "n", "", 0, commit(A))
    carrying = replace(plain, fact=marking(A, ORDERS))
    kept = checkpoint.encode(Checkpoint(folded(marking(A, ORDERS)), "n"))
    monkeypatch.setattr(entry, "ENTRY_FORMAT", 1)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_FORMAT", 1)
    assert entry.decode(entry.encode(plain), where="here") == plain
    body = json.loads(entry.encode(carrying)) | {"format": 2}
    with pytest.raises(RecordFromFuture):
        entry.decode(json.dumps(body).encode(), where="here")
    with pytest.raises(RecordFromFuture):
        checkpoint.decode(kept, where="here")


def test_an_undo_that_takes_marks_back_is_read_as_it_was_written() -> None:
    """C82: an older release would go on to refuse the batch."""
    left = {"orders": Applied(Mark("orders", 3, {"at": "7"}), A, B), "clicks": None}
    fact = Undo(Action.RESTORE, (B,), Inline(b""), complete=True, marks=left)
    told = Entry(2, "20990101000000000", "me", "n", "b", 0, fact)
    body = entry.encode(told)
    assert entry.decode(body, where="here") == told
    assert json.loads(body)["format"] == entry.ENTRY_FORMAT
    before = {name: Applied(Mark(name, 9), B, B) for name in ("orders", "clicks", "others")}
    assert dict(taken_back(before, left)) == {"others": before["others"], "orders": left["orders"]}


def test_the_application_that_is_silent_the_longest_is_forgotten() -> None:
    marks = Fold().marks
    for number in range(APPLICATIONS_MAX):
        marks = marked(marks, Applied(Mark(f"a{number}", 1), A, B))
    marks = marked(marks, Applied(Mark("a0", 2), A, B))
    marks = marked(marks, Applied(Mark("one more", 1), A, B))
    assert len(marks) == APPLICATIONS_MAX
    assert "a0" in marks
    assert "a1" not in marks


@pytest.mark.parametrize(
    ("application", "version", "data"),
    [("", 1, ""), ("a", -1, ""), ("a", 2**63, ""), ("a", 1, "x" * DATA_CHARACTERS_MAX)],
)
def test_a_mark_that_says_nothing_or_too_much_is_refused(
    application: str, version: int, data: str
) -> None:
    with pytest.raises(InvalidInput):
        Mark(application, version, data)
