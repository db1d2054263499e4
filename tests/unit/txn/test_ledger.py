"""The ledger: one create-if-absent decides, and unclear outcomes are resolved by reading."""

from __future__ import annotations

import zlib
from base64 import b64encode

import pytest

from tests.unit.doubles import ScriptedStore, answer, failing, landing
from tests.unit.txn.bench import Bench, draft, groups, stopping
from tidelock.core.errors import DataCorrupt, RecordFromFuture, StoreUnreachable, Unavailable
from tidelock.core.outcome import Unknown
from tidelock.hudi.timeline.instant import Action
from tidelock.storage.contract import Busy, Create, Overwrite, Refused, Unclear
from tidelock.txn import ledger_io
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.effects import Steps
from tidelock.txn.entries import (
    Boundary,
    Fact,
    InlineContent,
    LedgerEntry,
    PriorityTicket,
    Rollback,
    decode,
    encode,
    entry_key,
)
from tidelock.txn.external_writers import Importer, TimelineScan
from tidelock.txn.ledger import Ledger
from tidelock.txn.ledger_io import (
    CHECKPOINT_EVERY,
    Appended,
    Decline,
    Declined,
    Undetermined,
    write_checkpoint,
)
from tidelock.txn.state import View, validate_entry
from tidelock.txn.writers import verify

TICKET = PriorityTicket("20260101000000000", groups("a"))


def ticket(_: View) -> Fact | Decline[str]:
    """Propose a harmless entry."""
    return TICKET


def ledger(bench: Bench, store: object = None, owner: str = "me") -> Ledger:
    """Return a process's ledger."""
    return bench.writer(store or bench.store, owner=owner).ledger  # type: ignore[arg-type]


def position(result: Appended | Declined[str] | Undetermined) -> int:
    """Return the position of an appended entry."""
    assert isinstance(result, Appended), result
    return result.entry.position


def test_entries_are_numbered_without_gaps_and_chained() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    assert [position(each.append(ticket)) for each in (one, two, one, one, two)] == [1, 2, 3, 4, 5]
    assert verify(bench.store) == ()


def test_times_increase_with_any_clock() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    times: list[str] = []
    for each, offset_ms in ((one, 0), (two, 3_600_000), (one, 0), (two, -3_600_000)):
        bench.clock.wall_offset_ms = offset_ms
        result = each.append(ticket)
        assert isinstance(result, Appended)
        times.append(result.entry.time)
    assert times == sorted(set(times))


def test_writer_that_loses_a_position_reads_it_and_is_checked_again() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    one.refresh()
    two.append(ticket)
    seen: list[int] = []

    def propose(view: View) -> Fact | Decline[str]:
        seen.append(view.position)
        return TICKET

    assert position(one.append(propose)) == 2
    assert seen == [0, 1]


def test_proposal_that_is_no_longer_valid_appends_nothing() -> None:
    bench = Bench()
    one, two = ledger(bench, owner="one"), ledger(bench, owner="two")
    one.refresh()
    two.append(ticket)

    def only_first(view: View) -> Fact | Decline[str]:
        return TICKET if view.position == 0 else Decline("too late")

    assert isinstance(one.append(only_first), Declined)
    assert bench.keys(".hoodie/.tidelock/ledger/") == [entry_key(1)]


@pytest.mark.parametrize("reply", [Refused(), Unclear("time-out"), Unclear("503")])
def test_entry_with_a_lost_reply_is_recognised(reply: Refused | Unclear) -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.append(landing(reply))
    assert position(mine.append(ticket)) == 1
    assert position(mine.append(ticket)) == 2
    assert verify(bench.store) == ()


def test_entry_with_a_lost_request_is_resent() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.extend([answer(Unclear("reset")), answer(Busy()), None])
    assert position(mine.append(ticket)) == 1


def test_unclear_reply_that_cannot_be_read_back_stays_in_doubt() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.append(landing(Unclear("reset")))
    store.gets.append(StoreUnreachable("no network"))
    result = mine.append(ticket)
    assert isinstance(result, Undetermined)
    assert result.position == 1
    assert position(mine.append(ticket)) == 2, "the entry in doubt was found when it mattered"


def test_refused_request_leaves_nothing() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine = ledger(bench, store)
    mine.refresh()
    store.puts.append(failing(StoreUnreachable("no network")))
    with pytest.raises(StoreUnreachable):
        mine.append(ticket)
    store.puts.extend([answer(Busy())] * 6)
    with pytest.raises(Unavailable):
        mine.append(ticket)
    assert bench.keys(".hoodie/.tidelock/ledger/") == []


def test_another_writers_entry_after_an_unclear_reply_is_not_mistaken_for_ours() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    mine, other = ledger(bench, store), ledger(bench, owner="other")
    mine.refresh()
    other.append(ticket)
    store.puts.append(answer(Unclear("reset")))
    assert position(mine.append(ticket)) == 2


def test_new_process_reads_checkpoint_and_tail_into_the_same_state() -> None:
    bench = Bench()
    warm = bench.writer()
    for number in range(CHECKPOINT_EVERY + 5):
        bench.commit_one(warm, f"g{number}")
    cold = bench.writer().ledger
    state = cold.refresh()
    assert sorted(state.committed) == sorted(warm.ledger.state.committed)
    assert (state.position, state.time, state.nonce) == (
        warm.ledger.state.position,
        warm.ledger.state.time,
        warm.ledger.state.nonce,
    )
    assert cold.view.checkpointed == CHECKPOINT_EVERY


def test_missing_entry_is_corruption_and_not_the_end() -> None:
    bench = Bench()
    mine = ledger(bench)
    for _ in range(3):
        mine.append(ticket)
    bench.store.delete(entry_key(2))
    with pytest.raises(DataCorrupt, match="has a gap below"):
        ledger(bench, owner="cold").refresh()


def test_entry_of_a_newer_version_stops_every_process() -> None:
    bench = Bench()
    mine = ledger(bench)
    mine.append(ticket)
    bench.store.put(
        entry_key(2),
        b'{"format":1,"n":2,"time":"20990101000000000","owner":"x","nonce":"y","before":"z",'
        b'"published":0,"kind":"merge"}',
        Create(),
    )
    with pytest.raises(RecordFromFuture):
        mine.refresh()


# --- the boundary ---------------------------------------------------------------------------------


def archived(bench: Bench, txns: Ledger, upto: int, *, before: str = "") -> None:
    """Move the boundary, write a checkpoint, and delete the entries behind it."""

    def propose(_: View) -> Fact | Decline[str]:
        return Boundary(upto, before)

    result = txns.append(propose)
    assert isinstance(result, Appended), result
    txns.publish()
    txns.advance(txns.run(write_checkpoint(txns.view, every=1)))
    assert txns.view.boundary == upto
    for position_read in range(1, upto + 1):
        bench.store.delete(entry_key(position_read))


def test_entry_behind_the_boundary_is_invalid() -> None:
    """C14: the name was deleted, so creating it again succeeds, and decides nothing."""
    bench = Bench()
    suspended, other = bench.writer(), bench.writer()
    paused = bench.begin(suspended)
    for number in range(5):
        bench.commit_one(other, f"g{number}")
    archived(bench, other.ledger, 4)
    result = paused.commit(draft(touched=("g0",)))
    assert isinstance(result, Conflicted)
    assert paused.instant not in {instant.requested for instant in bench.completed()}
    assert paused.instant not in bench.writer().ledger.refresh().committed


def test_invalid_entry_is_accepted_without_the_boundary_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail: this is what it guards against."""

    def blind(view: View) -> Steps[View]:
        yield from ()
        return view

    bench = Bench()
    suspended, other = bench.writer(), bench.writer()
    paused = bench.begin(suspended)
    for number in range(5):
        bench.commit_one(other, f"g{number}")
    archived(bench, other.ledger, 4)
    monkeypatch.setattr(ledger_io, "refresh_checkpoint", blind)

    # Nor does a read of the timeline, which shows the commits of others, make it read on.
    def blind_look(view: View) -> Steps[tuple[View, TimelineScan]]:
        yield from ()
        return view, TimelineScan(frozenset(), view.state.time)

    monkeypatch.setattr(Importer, "scan", lambda _, view, __: blind_look(view))
    assert isinstance(paused.commit(draft(touched=("g0",))), Committed)


def test_process_behind_the_boundary_notices_on_refresh() -> None:
    bench = Bench()
    suspended, other = ledger(bench, owner="sleeper"), bench.writer()
    suspended.refresh()
    for number in range(5):
        bench.commit_one(other, f"g{number}")
    archived(bench, other.ledger, 4)
    assert suspended.refresh().position == other.ledger.state.position


def test_entry_left_by_a_zombie_behind_the_boundary_is_never_read() -> None:
    bench = Bench()
    reader, zombie, other = (ledger(bench, owner=name) for name in ("r", "z", "o"))
    reader.refresh()
    zombie.refresh()
    for _ in range(6):
        other.append(ticket)
    archived(bench, other, 4)
    late = LedgerEntry(1, "20260101000000000", "z", "zombie", "", 0, Rollback("20250101000000000"))
    bench.store.put(entry_key(1), encode(late), Create())
    state = reader.refresh()
    assert state.position == other.state.position
    assert "20250101000000000" not in state.aborted
    assert "20250101000000000" not in ledger(bench, owner="cold").refresh().aborted


def test_boundary_does_not_pass_a_pending_plan_or_the_end() -> None:
    bench = Bench()
    txns = bench.writer()
    bench.commit_one(txns, "a")
    state = txns.ledger.refresh()
    txns.schedule(Action.COMPACTION, draft().metadata, groups("a"), base=state)
    bench.commit_one(txns, "b")
    bench.commit_one(txns, "c")
    assert validate_entry(Boundary(2), txns.ledger.state) is None
    assert validate_entry(Boundary(3), txns.ledger.state) is not None, (
        "what came after the plan is needed"
    )
    without = bench.writer()
    for name in "de":
        bench.commit_one(without, name)
    assert validate_entry(Boundary(without.ledger.state.position), without.ledger.state) is not None


def test_plan_is_requested_at_the_time_of_its_entry() -> None:
    bench = Bench()
    txns = bench.writer()
    bench.commit_one(txns, "a")
    plan = txns.schedule(
        Action.COMPACTION, draft().metadata, groups("a"), base=txns.ledger.refresh()
    )
    assert plan.instant == txns.ledger.state.time
    assert [instant.requested for instant in bench.pending()] == [plan.instant]


# --- checkpoints ----------------------------------------------------------------------------------


def test_checkpoints_are_periodic_and_never_go_back() -> None:
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


def test_corrupt_checkpoint_is_reported() -> None:
    bench = Bench()
    bench.store.put(CHECKPOINT_KEY, b"{}", Overwrite())
    with pytest.raises(DataCorrupt, match=r"checkpoint\.json"):
        bench.writer().ledger.refresh()


# --- unclear commits ------------------------------------------------------------------------------


def test_unclear_commit_is_resolved_by_committing_again() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    txns = bench.writer(store)
    transaction = bench.begin(txns)
    store.puts.append(landing(Unclear("reset")))
    store.gets += [None, StoreUnreachable("no network")]  # the properties, then the entry
    assert isinstance(transaction.commit(draft(touched=("a",))), Unknown)
    again = transaction.commit(draft(touched=("a",)))
    assert isinstance(again, Committed)
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_entry_round_trips() -> None:
    bench = Bench()
    txns = bench.writer()
    bench.commit_one(txns, "a")
    for entry in txns.ledger.view.tail:
        assert decode(encode(entry), where="here") == entry


def test_stopped_process_has_executed_its_effects() -> None:
    bench = Bench()
    txns = bench.writer()
    txns.ledger.refresh()
    runner = stopping(txns, 10**6)
    bench.commit_one(txns, "a")
    assert runner.done


@pytest.mark.parametrize(
    "text", ["not base64!", "AAAA", b64encode(zlib.compress(b"x" * 300_000)).decode()]
)
def test_corrupt_content_is_reported(text: str) -> None:
    with pytest.raises(DataCorrupt, match="content of a ledger entry"):
        _ = InlineContent.packed(text).data


def test_content_round_trips() -> None:
    held = InlineContent(b"metadata")
    assert InlineContent.packed(held.text) == held
    assert hash(InlineContent.packed(held.text)) == hash(held)
