"""An operator's write is conditional, keeps tokens growing, and is noticed by the old holder."""

from __future__ import annotations

import pytest

from tidelock.base.clock import SystemClock
from tidelock.base.errors import Conflict, HoldingLost, InvalidInput, OutcomeUnknown
from tidelock.lock.driver import Lock
from tidelock.lock.events import Lost
from tidelock.lock.force import Operator
from tidelock.lock.inspect import Condition, inspect_counter, inspect_lock
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LOCK_KEY
from tidelock.lock.state import Standing
from tidelock.store.contract import Match, PutMode, PutReply, Unclear
from tidelock.store.memory import MemoryStore
from tidelock.store.readback import Patience

LEASE = Lease(validity_ms=60_000, renew_ms=6_000)
CLOCK = SystemClock()


def _lock(store: MemoryStore) -> Lock:
    return Lock(store, LEASE, probe=False)


def _operator(store: MemoryStore) -> Operator:
    return Operator(store, Patience(tries=2, clock=CLOCK))


def test_the_old_holder_notices_at_its_next_renewal() -> None:
    store = MemoryStore()
    lock = _lock(store)
    lock.acquire()
    _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    assert isinstance(lock.renew(), Lost)
    assert lock.state is Standing.LOST
    with pytest.raises(HoldingLost):
        lock.check()


def test_the_old_holder_notices_at_its_release() -> None:
    store = MemoryStore()
    lock = _lock(store)
    lock.acquire()
    _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    with pytest.raises(HoldingLost):
        lock.release()


def test_the_record_says_who_it_was_taken_from_and_by_whom() -> None:
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


def test_the_next_token_is_larger() -> None:
    store = MemoryStore()
    first = _lock(store).acquire()
    _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    assert _lock(store).acquire() > first


def test_a_holding_other_than_the_one_shown_is_left_alone() -> None:
    store = MemoryStore()
    lock = _lock(store)
    lock.acquire()
    shown = inspect_lock(store, LEASE, CLOCK)
    lock.renew()
    with pytest.raises(Conflict, match="changed"):
        _operator(store).force_release(shown)
    assert lock.check()
    lock.release()


def test_what_is_free_cannot_be_released() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInput):
        _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
    with pytest.raises(InvalidInput):
        _operator(store).mend_record(inspect_lock(store, LEASE, CLOCK), inspect_counter(store))


class _MuteStore(MemoryStore):
    """Loses the answer to replacements of the lock, and then reads go elsewhere."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        if key == LOCK_KEY and isinstance(mode, Match):
            super().put(key, b"another one's write", mode)
            return Unclear("no answer")
        return super().put(key, body, mode)


def test_an_unclear_outcome_is_called_so() -> None:
    store = _MuteStore()
    _lock(store).acquire()
    with pytest.raises(OutcomeUnknown):
        _operator(store).force_release(inspect_lock(store, LEASE, CLOCK))
