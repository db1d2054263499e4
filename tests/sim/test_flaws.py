"""Flaws that the simulator found in the machine, as the shortest stories that lead to them."""

from __future__ import annotations

from collections.abc import Callable

from tidelock.base.clock import Now
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.machine import step
from tidelock.lock.record import Counter, Record
from tidelock.lock.state import Phase, State
from tidelock.store.contract import Busy, Refused

LEASE = Lease(10_000, 1_000)
FREE = Record(
    expired=True, valid_until_epoch_ms=5, owner="b", token=7, token_ceiling=1_000, nonce="b:1"
)

Happening = Callable[[Now], e.Event]


def _after(*happenings: Happening, now: Now) -> tuple[State, tuple[e.Effect, ...]]:
    """Return where these events lead a fresh client, one millisecond apart."""
    state = State(owner="a", lease=LEASE)
    effects: tuple[e.Effect, ...] = ()
    for passed_ms, happening in enumerate(happenings):
        moment = Now(now.monotonic_ms + passed_ms, now.wall_epoch_ms + passed_ms)
        state, effects = step(state, happening(moment))
    return state, effects


def _read(reading: e.Reading) -> Happening:
    return lambda now: e.ReadDone(now, reading)


def test_a_grant_that_could_not_be_given_back_is_looked_for_at_close() -> None:
    """P18: the range was not the newest, the release met a throttled store, the record lives on."""
    state, effects = _after(
        e.Acquire,
        _read(e.Absent()),
        _read(e.Absent()),
        lambda now: e.WriteDone(now, Landed("1")),
        lambda now: e.WriteDone(now, Landed("2")),
        _read(e.FoundCounter("3", Counter(2_000, "b:1"))),
        lambda now: e.WriteDone(now, Busy()),
        e.Close,
        now=Now(0, 1_000_000),
    )
    assert (state.phase, effects) == (Phase.CLOSING, (e.ReadRecord(),))


def test_a_refusal_that_could_not_be_read_back_is_looked_for_at_close() -> None:
    """P18: a hop may have turned our own success into the refusal."""
    state, effects = _after(
        e.Acquire,
        _read(e.Found("1", FREE)),
        lambda now: e.WriteDone(now, Refused()),
        _read(e.ReadFailed("no answer")),
        e.Close,
        now=Now(0, 1_000_000),
    )
    assert (state.phase, effects) == (Phase.CLOSING, (e.ReadRecord(),))


def test_our_own_record_that_a_clock_brings_back_to_life_is_no_other_owners() -> None:
    """L5: judged dead, its range used up; then the wall clock steps back behind its end."""
    ours = Record(
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
    assert after.phase is Phase.RETURNING
    assert [type(effect) for effect in effects] == [e.WriteRecord]
    ended, done = step(after, e.WriteDone(Now(4, 50_001), Landed("2")))
    assert ended.phase is Phase.IDLE
    assert done[-1] == e.Done(e.NotAcquired(e.Why.GHOST))
