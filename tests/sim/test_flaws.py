"""Regression tests for bugs that the simulator found, as the shortest sequences."""

from __future__ import annotations

from collections.abc import Callable

from tidelock.core.clock import Now
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.machine import step
from tidelock.lock.record import LockRecord, TokenCounter
from tidelock.lock.state import LockClientState, Phase
from tidelock.storage.contract import Busy, Refused

LEASE = Lease(10_000, 1_000)
FREE = LockRecord(
    expired=True, valid_until_epoch_ms=5, owner="b", token=7, token_ceiling=1_000, nonce="b:1"
)

EventAt = Callable[[Now], e.Event]


def _after(*events: EventAt, now: Now) -> tuple[LockClientState, tuple[e.Effect, ...]]:
    """Return the state and effects of a new client after these events, one millisecond apart."""
    state = LockClientState(owner="a", lease=LEASE)
    effects: tuple[e.Effect, ...] = ()
    for passed_ms, event in enumerate(events):
        at = Now(now.monotonic_ms + passed_ms, now.wall_epoch_ms + passed_ms)
        state, effects = step(state, event(at))
    return state, effects


def _read(reply: e.ReadReply) -> EventAt:
    return lambda now: e.ReadDone(now, reply)


def test_a_grant_that_could_not_be_released_is_looked_up_at_close() -> None:
    """P18: the range was not the newest, the release was throttled, and the record is live."""
    state, effects = _after(
        e.Acquire,
        _read(e.Absent()),
        _read(e.Absent()),
        lambda now: e.WriteDone(now, Landed("1")),
        lambda now: e.WriteDone(now, Landed("2")),
        _read(e.FoundCounter("3", TokenCounter(2_000, "b:1"))),
        lambda now: e.WriteDone(now, Busy()),
        e.Close,
        now=Now(0, 1_000_000),
    )
    assert (state.phase, effects) == (Phase.CLOSING, (e.ReadRecord(),))


def test_a_refusal_that_could_not_be_read_back_is_looked_up_at_close() -> None:
    """P18: a proxy may have turned our own success into the refusal."""
    state, effects = _after(
        e.Acquire,
        _read(e.Found("1", FREE)),
        lambda now: e.WriteDone(now, Refused()),
        _read(e.ReadFailed("no answer")),
        e.Close,
        now=Now(0, 1_000_000),
    )
    assert (state.phase, effects) == (Phase.CLOSING, (e.ReadRecord(),))


def test_an_own_record_that_is_valid_again_after_a_clock_step_is_not_another_owners() -> None:
    """L5: it was expired and its range used up; then the wall clock steps back before its end."""
    ours = LockRecord(
        expired=False,
        valid_until_epoch_ms=100_000,
        owner="a",
        token=1,
        token_ceiling=1,
        nonce="a:9",
    )
    state, _ = _after(
        e.Acquire, _read(e.Found("1", ours)), _read(e.Absent()), now=Now(0, 1_000_000)
    )
    after, effects = step(state, e.WriteDone(Now(3, 50_000), Landed("1")))
    assert after.phase is Phase.DISCARDING
    assert [type(effect) for effect in effects] == [e.WriteRecord]
    final, done = step(after, e.WriteDone(Now(4, 50_001), Landed("2")))
    assert final.phase is Phase.IDLE
    assert done[-1] == e.OperationDone(e.NotAcquired(e.NotAcquiredReason.GHOST))
