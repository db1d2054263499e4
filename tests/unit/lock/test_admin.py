"""Operator writes are conditional, keep tokens increasing, and are detected by the holder."""

from __future__ import annotations

import pytest

from tidelock.core.errors import Conflict, HoldingLost, InvalidInput, OutcomeUnknown
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.admin import Condition, Operator, inspect_counter, inspect_lock
from tidelock.lock.client import Lock
from tidelock.lock.events import LockLost
from tidelock.lock.lease import Lease
from tidelock.lock.record_store import LOCK_KEY
from tidelock.lock.state import Standing
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import Match, PutMode, PutReply, Unclear
from tidelock.storage.memory import MemoryStore

LEASE = Lease(validity_ms=60_000, renew_ms=6_000)
CLOCK = SystemClock()


def _lock(store: MemoryStore) -> Lock:
    return Lock(store, LEASE, probe=False)


def _operator(store: MemoryStore) -> Operator:
    return Operator(store, ReadbackPolicy(tries=2, clock=CLOCK, ids=SystemIds()))


def test_old_holder_notices_at_its_next_renewal() -> None:
    store = MemoryStore()
    lock = _lock(store)
    lock.acquire()
    _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    assert isinstance(lock.renew(), LockLost)
    assert lock.state is Standing.LOST
    with pytest.raises(HoldingLost):
        lock.check()


def test_old_holder_notices_at_its_release() -> None:
    store = MemoryStore()
    lock = _lock(store)
    lock.acquire()
    _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    with pytest.raises(HoldingLost):
        lock.release()


def test_record_says_from_whom_it_was_taken_and_by_whom() -> None:
    store = MemoryStore()
    lock = _lock(store)
    token = lock.acquire()
    before = inspect_lock(store, LEASE, CLOCK).record
    assert before is not None
    operator = _operator(store)
    operator.force_release(inspect_lock(store, LEASE, CLOCK))
    after = inspect_lock(store, LEASE, CLOCK)
    assert after.condition is Condition.FREE
    assert after.record is not None
    assert after.record.nonce == f"{operator.owner}:1"
    assert after.record.previous == before.as_previous()
    assert (after.record.owner, after.record.token) == (lock.owner, token)
    assert after.record.valid_until_epoch_ms == before.valid_until_epoch_ms


def test_next_token_is_larger() -> None:
    store = MemoryStore()
    first = _lock(store).acquire()
    _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    assert _lock(store).acquire() > first


def test_holding_other_than_the_displayed_one_is_left_alone() -> None:
    store = MemoryStore()
    lock = _lock(store)
    lock.acquire()
    shown = inspect_lock(store, LEASE, CLOCK)
    lock.renew()
    with pytest.raises(Conflict, match="changed"):
        _operator(store).force_release(shown)
    assert lock.check()
    lock.release()


def test_free_lock_cannot_be_released() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInput):
        _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    with pytest.raises(InvalidInput):
        _operator(store).repair_record(inspect_lock(store, LEASE, CLOCK), inspect_counter(store))


class _MuteStore(MemoryStore):
    """Loses the reply to replacements of the lock, and redirects later reads."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        if key == LOCK_KEY and isinstance(mode, Match):
            super().put(key, b"another one's write", mode)
            return Unclear("no answer")
        return super().put(key, body, mode)


def test_unclear_outcome_is_reported_as_such() -> None:
    store = _MuteStore()
    _lock(store).acquire()
    with pytest.raises(OutcomeUnknown):
        _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
