"""The blocking lock client, with manual clocks and scripted stores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tidelock.core.errors import (
    AcquireTimeout,
    DataCorrupt,
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    PermissionDenied,
    StoreUnreachable,
    Throttled,
    Unavailable,
)
from tidelock.core.telemetry import Metrics
from tidelock.lock.client import Lock
from tidelock.lock.heartbeat import Renewable, Renewals
from tidelock.lock.lease import Lease, RenewalSchedule
from tidelock.lock.record import LockRecord, decode, encode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.lock.state import Standing
from tidelock.storage.contract import Busy, Overwrite, Refused, Unclear
from tidelock.storage.memory import MemoryStore

LEASE = Lease(validity_ms=10_000, renew_ms=1_000)


class ManualHeartbeats(Renewals):
    """Registers heartbeats without running them: the test triggers renewals."""

    def add(self, holding: Renewable, beat: RenewalSchedule) -> None:
        """Register the heartbeat."""
        self.beats().append(beat)

    def remove(self, holding: Renewable) -> None:
        """Do nothing."""

    def beats(self) -> list[RenewalSchedule]:
        """Return every heartbeat started here."""
        return _beats.setdefault(id(self), [])


_beats: dict[int, list[RenewalSchedule]] = {}


class Bench:
    """One store, one clock, any number of locks."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(f"bench-{id(self)}", clock=self.clock)
        self.store = ScriptedStore(self.memory)
        self.metrics = Metrics()
        self.renewals = ManualHeartbeats(self.clock)

    def lock(self, *, bind_thread: bool = True) -> Lock:
        return Lock(
            self.store,
            LEASE,
            clock=self.clock,
            probe=False,
            renewals=self.renewals,
            metrics=self.metrics,
            bind_thread=bind_thread,
        )

    def record(self) -> LockRecord:
        found = self.memory.get(LOCK_KEY)
        assert found is not None
        return decode(found.body)

    def overwrite(self, record: LockRecord) -> None:
        self.memory.put(LOCK_KEY, encode(record), Overwrite())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def fail_after(bench: Bench, duration_ms: float) -> None:
    bench.clock.advance(duration_ms)
    raise ZeroDivisionError


def state_of(lock: Lock) -> Standing:
    """Return the current state; it may change between two statements."""
    return lock.state


def eventually(holds: Callable[[], bool], *, within_s: float = 60.0) -> bool:
    until = time.monotonic() + within_s
    while not holds() and time.monotonic() < until:
        time.sleep(0.002)
    return holds()


# Acquire and release


def test_free_lock_is_granted_and_released(bench: Bench) -> None:
    lock = bench.lock()
    assert state_of(lock) is Standing.FREE
    token = lock.acquire(0)
    assert state_of(lock) is Standing.HELD
    assert lock.token == lock.check() == token
    lock.release()
    assert state_of(lock) is Standing.FREE
    assert bench.record().expired
    with pytest.raises(HoldingLost):
        lock.check()


def test_held_lock_is_refused_to_another_and_its_holder_reported(bench: Bench) -> None:
    holder, other = bench.lock(), bench.lock()
    holder.acquire(0)
    assert not other.try_acquire()
    with pytest.raises(AcquireTimeout, match=holder.owner):
        other.acquire(3)
    assert sum(bench.clock.slept_ms) <= 3_001


def test_dead_holder_is_replaced_only_after_lease_drift_and_grace(bench: Bench) -> None:
    holder, other = bench.lock(), bench.lock()
    first = holder.acquire(0)
    began_ms = bench.clock.now().monotonic_ms
    second = other.acquire(60)
    waited_ms = bench.clock.now().monotonic_ms - began_ms
    # L2, L9: after the lease, the drift and the grace, and within two polls of that.
    assert 11_000 < waited_ms < 11_000 + 2_000
    assert second > first
    assert state_of(holder) is Standing.LOST


def test_reacquire_returns_the_same_token(bench: Bench) -> None:
    lock = bench.lock()
    token = lock.acquire(0)
    puts = bench.store.count("put")
    assert lock.acquire(0) == token
    assert lock.try_acquire()
    assert bench.store.count("put") == puts


def test_reacquire_after_the_lease_is_a_new_holding(bench: Bench) -> None:
    lock = bench.lock()
    token = lock.acquire(0)
    bench.clock.advance(20_000)
    assert lock.acquire(0) > token


def test_release_by_non_holder_changes_nothing(bench: Bench) -> None:
    holder, other = bench.lock(), bench.lock()
    holder.acquire(0)
    before = bench.record()
    other.release()
    assert bench.record() == before
    holder.release()
    holder.release()
    assert bench.store.count("put") == 3  # the token range, the grant, one release


def test_known_version_costs_two_requests_and_an_unknown_one_three(bench: Bench) -> None:
    lock, other = bench.lock(), bench.lock()
    for each in (lock, other):
        each.acquire(0)
        each.release()
    other.acquire(0)
    other.release()
    bench.store.requests.clear()
    other.acquire(0)
    other.release()
    assert [verb for verb, _ in bench.store.requests] == ["put", "put"]
    bench.store.requests.clear()
    # `lock` knows nothing of what `other` did: its attempt on the old version is refused first
    # (P17).
    lock.acquire(0)
    lock.release()
    assert [verb for verb, _ in bench.store.requests] == ["put", "get", "put", "put"]
    stranger = bench.lock()
    bench.store.requests.clear()
    stranger.acquire(0)
    stranger.release()
    verbs = [verb for verb, key in bench.store.requests if "audit" not in key]
    assert verbs == ["get", "put", "put"]


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan")])
def test_invalid_timeout_is_refused(bench: Bench, timeout_s: float) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        bench.lock().acquire(timeout_s)


def test_unreadable_record_is_reported_and_left_alone(bench: Bench) -> None:
    bench.memory.put(LOCK_KEY, b"not json", Overwrite())
    with pytest.raises(DataCorrupt, match=r"table_lock\.json"):
        bench.lock().acquire(5)
    with pytest.raises(DataCorrupt):
        bench.lock().try_acquire()
    assert bench.clock.slept_ms == []
    found = bench.memory.get(LOCK_KEY)
    assert found is not None
    assert found.body == b"not json"


def test_refused_credentials_end_the_wait_at_once(bench: Bench) -> None:
    bench.store.gets.append(PermissionDenied("no entry"))
    with pytest.raises(PermissionDenied, match="no entry"):
        bench.lock().acquire(60)
    assert bench.clock.slept_ms == []


def test_retry_after_of_the_store_is_honoured(bench: Bench) -> None:
    bench.store.gets.append(Throttled("slow down", retry_after_ms=4_000))
    bench.lock().acquire(60)
    assert bench.clock.slept_ms[0] >= 4_000


def test_unreachable_store_fails_one_attempt_and_a_wait_continues(
    bench: Bench,
) -> None:
    bench.store.gets.append(StoreUnreachable("no route"))
    with pytest.raises(StoreUnreachable, match="no route"):
        bench.lock().try_acquire()
    bench.store.gets.append(StoreUnreachable("no route"))
    assert bench.lock().acquire(60) > 0


# Lost replies


def test_grant_with_a_lost_reply_is_a_ghost_and_released(bench: Bench) -> None:
    warm = bench.lock()
    warm.acquire(0)
    warm.release()
    lock = bench.lock()
    bench.store.puts.append(landing(Unclear("reset")))
    assert not lock.try_acquire()
    assert bench.record().expired
    assert bench.metrics.counter("lock.ghost") == 1
    assert lock.try_acquire()


def test_refused_grant_that_had_landed_is_never_a_grant(bench: Bench) -> None:
    bench.lock().acquire(0)
    bench.clock.advance(30_000)
    lock = bench.lock()
    bench.store.puts.extend([None, landing(Refused())])  # the token range, then the grant
    assert not lock.try_acquire()
    assert state_of(lock) is Standing.FREE
    assert bench.record().expired


def test_late_ghost_is_found_by_close(bench: Bench) -> None:
    warm = bench.lock()
    warm.acquire(0)
    warm.release()
    lock = bench.lock()
    late: list[Callable[[], object]] = []

    def delayed(through: Callable[[], object]) -> Unclear:
        late.append(through)
        return Unclear("timed out")

    bench.store.puts.append(delayed)
    with pytest.raises(StoreUnreachable):
        lock.try_acquire()
    late[0]()
    assert not bench.record().expired
    lock.close()
    assert bench.record().expired


def test_refused_renewal_that_had_landed_is_read_and_resent(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    bench.clock.advance(1_000)
    bench.store.puts.append(landing(Refused()))
    lock.renew()
    assert state_of(lock) is Standing.HELD
    assert lock.deadline_monotonic_ms() == bench.clock.now().monotonic_ms + 9_500
    lock.release()
    assert bench.record().expired


def test_renewal_refused_because_of_another_owner_is_an_immediate_loss(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    bench.overwrite(LockRecord(expired=False, valid_until_epoch_ms=2**41, owner="java"))
    lock.renew()
    assert state_of(lock) is Standing.LOST
    with pytest.raises(HoldingLost, match="java"):
        lock.check()
    with pytest.raises(HoldingLost, match="java"):
        lock.release()
    assert bench.record().owner == "java"


@pytest.mark.parametrize("reply", [Unclear("reset"), Busy(cause="503")])
def test_unclear_renewal_makes_the_holder_unsure(bench: Bench, reply: Unclear | Busy) -> None:
    lock = bench.lock()
    lock.acquire(0)
    deadline_ms = lock.deadline_monotonic_ms()
    bench.clock.advance(1_000)
    bench.store.puts.append(answer(reply))
    lock.renew()
    assert state_of(lock) is Standing.UNSURE
    assert lock.deadline_monotonic_ms() == deadline_ms
    lock.check()
    bench.clock.advance(8_499)
    lock.check()
    bench.clock.advance(1)
    with pytest.raises(HoldingLost):
        lock.check()


def test_release_followed_by_another_owner_is_a_release(bench: Bench) -> None:
    lock, other = bench.lock(), bench.lock()
    lock.acquire(0)

    def acquired_by_another(through: Callable[[], object]) -> Refused:
        through()
        other.acquire(0)
        return Refused()

    bench.store.puts.append(acquired_by_another)
    lock.release()
    assert bench.record().owner == other.owner


def test_release_of_a_stolen_lock_is_a_loss(bench: Bench) -> None:
    lock, other = bench.lock(), bench.lock()
    lock.acquire(0)

    def stolen(through: Callable[[], object]) -> Refused:
        # The clock of the new owner is far ahead.
        bench.clock.wall_offset_ms = 60_000
        other.acquire(0)
        bench.clock.wall_offset_ms = 0
        return Refused()

    bench.store.puts.append(stolen)
    with pytest.raises(HoldingLost, match=other.owner):
        lock.release()
    assert not bench.record().expired


def test_unresolvable_release_is_unknown(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)

    def replaced(through: Callable[[], object]) -> Unclear:
        bench.overwrite(LockRecord(expired=False, valid_until_epoch_ms=2**41, owner="java"))
        return Unclear("reset")

    bench.store.puts.append(replaced)
    with pytest.raises(OutcomeUnknown, match=r"table_lock\.json"):
        lock.release()
    assert bench.metrics.counter("lock.release.failure") == 1


# Loss


def test_expired_lease_is_lost_and_its_owner_notified_once(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    causes: list[str] = []
    lock.on_lost(causes.append)
    bench.clock.advance(9_500)
    lock.check_deadline()
    lock.check_deadline()
    assert eventually(lambda: len(causes) == 1)
    assert "deadline" in causes[0]
    assert state_of(lock) is Standing.LOST
    puts = bench.store.count("put")
    lock.renew()
    assert bench.store.count("put") == puts  # L11
    with pytest.raises(HoldingLost):
        lock.release()
    assert len(causes) == 1


def test_check_after_the_loss_reports_it_too(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    bench.clock.advance(9_500)
    causes: list[str] = []
    lock.on_lost(causes.append)
    assert eventually(lambda: len(causes) == 1)


def test_failing_callback_does_not_affect_other_callbacks(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    causes: list[str] = []

    def broken(cause: str) -> None:
        raise ValueError(cause)

    lock.on_lost(broken)
    lock.on_lost(causes.append)
    bench.clock.advance(9_500)
    lock.check_deadline()
    assert eventually(lambda: len(causes) == 1)


def test_callback_can_release_the_lost_lock(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    ended = threading.Event()

    def give_up(cause: str) -> None:
        try:
            lock.release()
        except HoldingLost:
            ended.set()

    lock.on_lost(give_up)
    bench.clock.advance(9_500)
    lock.check_deadline()
    assert ended.wait(60)


def test_wall_clock_step_does_not_extend_a_holding(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    bench.clock.wall_offset_ms = -3_600_000
    bench.clock.advance(9_499)
    assert state_of(lock) is Standing.HELD
    bench.clock.advance(1)
    assert state_of(lock) is Standing.LOST


def test_with_block_raises_the_loss_unless_another_error_is_raised(bench: Bench) -> None:
    with pytest.raises(HoldingLost), bench.lock():
        bench.clock.advance(9_500)
    bench.clock.advance(10_000)
    with pytest.raises(ZeroDivisionError), bench.lock():
        fail_after(bench, 9_500)


# Heartbeat


def test_first_renewal_counts_from_the_request_of_the_grant(bench: Bench) -> None:
    sent_ms: list[int] = []

    def slow(through: Callable[[], object]) -> object:
        sent_ms.append(bench.clock.now().monotonic_ms)
        bench.clock.advance(9_000)
        return through()

    warm = bench.lock()
    warm.acquire(0)
    warm.release()
    bench.store.puts.append(slow)  # type: ignore[arg-type]
    lock = bench.lock()
    lock.acquire(0)
    # P27. Counted from the reply, the first renewal would come after the deadline.
    assert bench.renewals.beats()[-1].due_monotonic_ms == sent_ms[0] + LEASE.renew_ms


def test_heartbeat_that_cannot_start_releases_the_lock(bench: Bench) -> None:
    class NoThreads(Renewals):
        def add(self, holding: Renewable, beat: RenewalSchedule) -> None:
            raise RuntimeError("can't start new thread")

    lock = Lock(
        bench.store,
        LEASE,
        clock=bench.clock,
        probe=False,
        renewals=NoThreads(bench.clock),
        metrics=bench.metrics,
    )
    with pytest.raises(Unavailable, match="heartbeat"):
        lock.acquire(0)
    assert bench.record().expired
    assert state_of(lock) is Standing.FREE
    assert bench.metrics.counter("lock.provider.fatal.error") == 1


def test_death_of_the_owning_thread_stops_renewal(bench: Bench) -> None:
    lock = bench.lock()
    owner = threading.Thread(target=lock.acquire, args=(0,))
    owner.start()
    owner.join()
    puts = bench.store.count("put")
    causes: list[str] = []
    lock.on_lost(causes.append)
    lock.renew()
    lock.renew()
    assert bench.store.count("put") == puts  # L10
    assert state_of(lock) is Standing.LOST
    assert eventually(lambda: len(causes) == 1)
    assert "thread" in causes[0]


def test_unbound_lock_outlives_the_thread_that_acquired_it(bench: Bench) -> None:
    lock = bench.lock(bind_thread=False)
    owner = threading.Thread(target=lock.acquire, args=(0,))
    owner.start()
    owner.join()
    bench.clock.advance(1_000)
    lock.renew()
    assert state_of(lock) is Standing.HELD


def test_bug_in_a_renewal_is_reported_as_a_loss(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    bench.store.puts.append(failing(KeyError("bug")))
    lock.renew()
    assert state_of(lock) is Standing.LOST
    assert bench.metrics.counter("lock.provider.fatal.error") == 1


# Close


def test_interrupt_during_acquire_leaves_no_ghost_after_close(bench: Bench) -> None:
    lock = bench.lock()

    def interrupted(through: Callable[[], object]) -> Unclear:
        through()
        raise KeyboardInterrupt

    bench.store.puts.extend([None, interrupted])
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(0)
    assert state_of(lock) is Standing.FREE
    assert not bench.record().expired
    lock.close()
    assert bench.record().expired


def test_closed_lock_reports_it(bench: Bench) -> None:
    lock = bench.lock()
    lock.acquire(0)
    lock.close()
    lock.close()
    assert bench.record().expired
    with pytest.raises(InvalidInput, match="closed"):
        lock.acquire(0)
    with pytest.raises(InvalidInput, match="closed"):
        lock.try_acquire()


def test_close_ends_the_wait_of_another_thread() -> None:
    store = MemoryStore(f"close-{uuid_of()}")
    lease = Lease(validity_ms=60_000, renew_ms=1_000)
    holder = Lock(store, lease, probe=False)
    holder.acquire(0)
    waiter = Lock(store, lease, probe=False)
    ended: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            waiter.acquire(60)
        except InvalidInput as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(60)
    time.sleep(0.05)  # let the thread start to wait
    waiter.close()
    thread.join(60)
    holder.close()
    assert len(ended) == 1
    assert "closed" in str(ended[0])


def uuid_of() -> str:
    return os.urandom(8).hex()


# Metrics, by Hudi's names


def test_metrics_have_the_names_and_meanings_of_hudi(bench: Bench) -> None:
    lock, other = bench.lock(), bench.lock()
    lock.acquire(0)
    assert not other.try_acquire()
    bench.clock.advance(700)
    lock.release()
    counted = bench.metrics.snapshot()
    assert counted.counters["lock.acquire.attempts"] == 1
    assert counted.counters["lock.acquire.success"] == 1
    assert counted.counters["lock.acquire.failure"] == 1
    assert counted.counters["lock.release.success"] == 1
    # Hudi calls the time the lock was held its "acquire duration".
    assert counted.timers["lock.acquire.duration"].total_ms == 700
    assert counted.timers["lock.request.latency"].count == 2
    assert counted.gauges["lock.expiration.deadline"] > 0


def test_metrics_count_failures(bench: Bench) -> None:
    warm = bench.lock()
    warm.acquire(0)
    warm.release()
    bench.store.puts.append(answer(Busy(cause="429")))
    assert not bench.lock().try_acquire()
    assert bench.metrics.counter("lock.throttled") == 1
    bench.store.puts.append(answer(Refused()))
    assert not bench.lock().try_acquire()
    assert bench.metrics.counter("lock.acquire.precondition.failure") == 1
    bench.store.puts.append(answer(Unclear("reset")))
    with pytest.raises(StoreUnreachable):
        bench.lock().try_acquire()
    assert bench.metrics.counter("lock.state.unknown") == 1
    dead = bench.lock()
    dead.acquire(0)
    bench.clock.advance(20_000)
    bench.lock().acquire(0)
    assert bench.metrics.counter("lock.dangling") == 1
    dead.renew()
    assert bench.metrics.counter("lock.lost") == 1
