"""The ledger: one create-if-absent decides, and doubt is settled by reading."""

from __future__ import annotations

import zlib
from base64 import b64encode

import pytest

from tests.unit.doubles import ScriptedStore, answer, failing, landing
from tests.unit.txn.bench import Bench, draft, groups, stopping
from tidelock.base.errors import DataCorrupt, RecordFromFuture, StoreUnreachable, Unavailable
from tidelock.base.outcome import Unknown
from tidelock.store.contract import Busy, Create, Overwrite, Refused, Unclear
from tidelock.table.timeline.instant import Action
from tidelock.txn import appending
from tidelock.txn.appending import Appended, Declined, Doubtful, No
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.content import Inline
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.effects import Steps
from tidelock.txn.entry import (
    Boundary,
    Entry,
    Fact,
    Rollback,
    Turn,
    decode,
    encode,
    entry_key,
)
from tidelock.txn.fold import lawful
from tidelock.txn.foreign import Importer, Look
from tidelock.txn.ledger import Ledger
from tidelock.txn.publishing import CHECKPOINT_EVERY, write_checkpoint
from tidelock.txn.view import View
from tidelock.txn.writers import verify

TURN = Turn("20260101000000000", groups("a"))


def turn(_: View) -> Fact | No[str]:
    """Propose something harmless."""
    return TURN


def ledger(bench: Bench, store: object = None, owner: str = "me") -> Ledger:
    """Return a process's ledger."""
    return bench.writer(store or bench.store, owner=owner).ledger  # type: ignore[arg-type]


def position(result: Appended | Declined[str] | Doubtful) -> int:
    """Return where an entry was appended."""
    assert isinstance(result, Appended), result
    return result.entry.position


def test_entries_are_numbered_without_gaps_and_chained() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    assert [position(each.append(turn)) for each in (one, two, one, one, two)] == [1, 2, 3, 4, 5]
    assert verify(bench.store) == ()


def test_times_grow_whatever_the_clocks_say() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    times: list[str] = []
    for each, offset_ms in ((one, 0), (two, 3_600_000), (one, 0), (two, -3_600_000)):
        bench.clock.wall_offset_ms = offset_ms
        result = each.append(turn)
        assert isinstance(result, Appended)
        times.append(result.entry.time)
    assert times == sorted(set(times))


def test_whoever_loses_a_position_reads_it_and_is_judged_again() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    one.refresh()
    two.append(turn)
    seen: list[int] = []

    def propose(view: View) -> Fact | No[str]:
        seen.append(view.position)
        return TURN

    assert position(one.append(propose)) == 2
    assert seen == [0, 1]


def test_whoever_is_not_lawful_any_more_appends_nothing() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    one.refresh()
    two.append(turn)

    def only_first(view: View) -> Fact | No[str]:
        return TURN if view.position == 0 else No("too late")

    assert isinstance(one.append(only_first), Declined)
    assert bench.keys(".hoodie/.tidelock/ledger/") == [entry_key(1)]


@pytest.mark.parametrize("reply", [Refused(), Unclear("time-out"), Unclear("503")])
def test_an_entry_that_landed_without_an_answer_is_recognised(reply: Refused | Unclear) -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.append(landing(reply))
    assert position(mine.append(turn)) == 1
    assert position(mine.append(turn)) == 2
    assert verify(bench.store) == ()


def test_an_entry_whose_request_was_lost_is_sent_again() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.extend([answer(Unclear("reset")), answer(Busy()), None])
    assert position(mine.append(turn)) == 1


def test_an_unclear_answer_that_cannot_be_read_back_stays_in_doubt() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.append(landing(Unclear("reset")))
    store.gets.append(StoreUnreachable("no network"))
    result = mine.append(turn)
    assert isinstance(result, Doubtful)
    assert result.position == 1
    assert position(mine.append(turn)) == 2, "the entry in doubt was found when it mattered"


def test_a_store_that_refuses_to_answer_leaves_nothing() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.append(failing(StoreUnreachable("no network")))
    with pytest.raises(StoreUnreachable):
        mine.append(turn)
    store.puts.extend([answer(Busy())] * 6)
    with pytest.raises(Unavailable):
        mine.append(turn)
    assert bench.keys(".hoodie/.tidelock/ledger/") == []


def test_another_s_entry_after_an_unclear_answer_is_not_taken_for_ours() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine, other = ledger(bench, store), ledger(bench, owner="other")
    mine.refresh()
    other.append(turn)
    store.puts.append(answer(Unclear("reset")))
    assert position(mine.append(turn)) == 2


def test_a_cold_process_reads_checkpoint_and_tail_and_folds_the_same() -> None:
    bench = Bench()
    warm = bench.writer()
    for number in range(CHECKPOINT_EVERY + 5):
        bench.commit_one(warm, f"g{number}")
    cold = bench.writer().ledger
    fold = cold.refresh()
    assert sorted(fold.committed) == sorted(warm.ledger.fold.committed)
    assert (fold.position, fold.time, fold.nonce) == (
        warm.ledger.fold.position,
        warm.ledger.fold.time,
        warm.ledger.fold.nonce,
    )
    assert cold.view.checkpointed == CHECKPOINT_EVERY


def test_a_missing_entry_is_corruption_not_the_end() -> None:
    bench = Bench()
    mine = ledger(bench)
    for _ in range(3):
        mine.append(turn)
    bench.store.delete(entry_key(2))
    with pytest.raises(DataCorrupt, match="broken below"):
        ledger(bench, owner="cold").refresh()


def test_an_entry_of_a_newer_version_stops_everyone() -> None:
    bench = Bench()
    mine = ledger(bench)
    mine.append(turn)
    bench.store.put(
        entry_key(2),
        b'{"format":1,"n":2,"time":"20990101000000000","owner":"x","nonce":"y","before":"z",'
        b'"published":0,"kind":"merge"}',
        Create(),
    )
    with pytest.raises(RecordFromFuture):
        mine.refresh()


# --- the boundary ---------------------------------------------------------------------------------


def archived(bench: Bench, home: Ledger, upto: int, *, before: str = "") -> None:
    """Move the boundary, checkpoint, and delete what lies behind it."""

    def propose(_: View) -> Fact | No[str]:
        return Boundary(upto, before)

    result = home.append(propose)
    assert isinstance(result, Appended), result
    home.publish()
    home.adopt(home.run(write_checkpoint(home.view, every=1)))
    assert home.view.boundary == upto
    for place in range(1, upto + 1):
        bench.store.delete(entry_key(place))


def test_an_entry_behind_the_boundary_is_void() -> None:
    """C14: the name was deleted, so creating it again succeeds, and decides nothing."""
    bench = Bench()
    sleeper, other = bench.writer(), bench.writer()
    paused = bench.begin(sleeper)
    for number in range(5):
        bench.commit_one(other, f"g{number}")
    archived(bench, other.ledger, 4)
    result = paused.commit(draft(touched=("g0",)))
    assert isinstance(result, Overtaken)
    assert paused.instant not in {instant.requested for instant in bench.completed()}
    assert paused.instant not in bench.writer().ledger.refresh().committed


def test_without_a_look_at_the_boundary_a_void_entry_would_be_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail: this is what it guards against."""

    def blind(view: View) -> Steps[View]:
        yield from ()
        return view

    bench = Bench()
    sleeper, other = bench.writer(), bench.writer()
    paused = bench.begin(sleeper)
    for number in range(5):
        bench.commit_one(other, f"g{number}")
    archived(bench, other.ledger, 4)
    monkeypatch.setattr(appending, "look_at_checkpoint", blind)

    # Nor does a look at the timeline, which shows what others have committed, make it read on.
    def blind_look(view: View) -> Steps[tuple[View, Look]]:
        yield from ()
        return view, Look(frozenset(), view.fold.time)

    monkeypatch.setattr(Importer, "look", lambda _, view, __: blind_look(view))
    assert isinstance(paused.commit(draft(touched=("g0",))), Committed)


def test_a_process_left_behind_the_boundary_notices_on_refresh() -> None:
    bench = Bench()
    sleeper, other = ledger(bench, owner="sleeper"), bench.writer()
    sleeper.refresh()
    for number in range(5):
        bench.commit_one(other, f"g{number}")
    archived(bench, other.ledger, 4)
    assert sleeper.refresh().position == other.ledger.fold.position


def test_an_entry_that_a_zombie_left_behind_the_boundary_is_never_read() -> None:
    bench = Bench()
    reader, zombie, other = (ledger(bench, owner=name) for name in ("r", "z", "o"))
    reader.refresh()
    zombie.refresh()
    for _ in range(6):
        other.append(turn)
    archived(bench, other, 4)
    late = Entry(1, "20260101000000000", "z", "zombie", "", 0, Rollback("20250101000000000"))
    bench.store.put(entry_key(1), encode(late), Create())
    fold = reader.refresh()
    assert fold.position == other.fold.position
    assert "20250101000000000" not in fold.void
    assert "20250101000000000" not in ledger(bench, owner="cold").refresh().void


def test_a_boundary_does_not_pass_a_pending_plan_or_the_end() -> None:
    bench = Bench()
    home = bench.writer()
    bench.commit_one(home, "a")
    fold = home.ledger.refresh()
    home.schedule(Action.COMPACTION, draft().metadata, groups("a"), base=fold)
    bench.commit_one(home, "b")
    bench.commit_one(home, "c")
    assert lawful(Boundary(2), home.ledger.fold) is None
    assert lawful(Boundary(3), home.ledger.fold) is not None, "what came after the plan is needed"
    without = bench.writer()
    for name in "de":
        bench.commit_one(without, name)
    assert lawful(Boundary(without.ledger.fold.position), without.ledger.fold) is not None


def test_a_plan_is_requested_at_its_entry_s_time() -> None:
    bench = Bench()
    home = bench.writer()
    bench.commit_one(home, "a")
    plan = home.schedule(
        Action.COMPACTION, draft().metadata, groups("a"), base=home.ledger.refresh()
    )
    assert plan.instant == home.ledger.fold.time
    assert [instant.requested for instant in bench.pending()] == [plan.instant]


# --- checkpoints ----------------------------------------------------------------------------------


def test_checkpoints_come_now_and_then_and_never_go_back() -> None:
    bench = Bench()
    slow, quick = bench.writer(), bench.writer()
    bench.commit_one(slow, "a")
    for number in range(2 * CHECKPOINT_EVERY):
        bench.commit_one(quick, f"g{number}")
    held = bench.store.get(CHECKPOINT_KEY)
    assert held is not None
    slow.ledger.publish()
    slow.ledger.run(write_checkpoint(slow.ledger.view, every=0))
    assert bench.store.get(CHECKPOINT_KEY) == held


def test_a_broken_checkpoint_is_said_to_be_broken() -> None:
    bench = Bench()
    bench.store.put(CHECKPOINT_KEY, b"{}", Overwrite())
    with pytest.raises(DataCorrupt, match=r"checkpoint\.json"):
        bench.writer().ledger.refresh()


# --- doubt at commit ------------------------------------------------------------------------------


def test_a_commit_in_doubt_is_found_out_by_committing_again() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    home = bench.writer(store)
    transaction = bench.begin(home)
    store.puts.append(landing(Unclear("reset")))
    store.gets += [None, StoreUnreachable("no network")]  # the properties, then the entry
    assert isinstance(transaction.commit(draft(touched=("a",))), Unknown)
    again = transaction.commit(draft(touched=("a",)))
    assert isinstance(again, Committed)
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_an_entry_survives_its_codec() -> None:
    bench = Bench()
    home = bench.writer()
    bench.commit_one(home, "a")
    for entry in home.ledger.view.tail:
        assert decode(encode(entry), where="here") == entry


def test_a_stopped_process_has_done_what_it_was_told() -> None:
    bench = Bench()
    home = bench.writer()
    home.ledger.refresh()
    world = stopping(home, 10**6)
    bench.commit_one(home, "a")
    assert world.done


@pytest.mark.parametrize(
    "text", ["not base64!", "AAAA", b64encode(zlib.compress(b"x" * 300_000)).decode()]
)
def test_broken_content_is_said_to_be_broken(text: str) -> None:
    with pytest.raises(DataCorrupt, match="content of a ledger entry"):
        _ = Inline.packed(text).data


def test_content_comes_back_as_it_was() -> None:
    held = Inline(b"metadata")
    assert Inline.packed(held.text) == held
    assert hash(Inline.packed(held.text)) == hash(held)
