"""Checks of the store and the lock after a crash, in a new process."""

from __future__ import annotations

from testkit.crash.expected import ExpectedState
from testkit.crash.victim import LEASE, NoHeartbeat, lock_without_heartbeat
from tidelock.core.clock import Clock, Now
from tidelock.core.errors import TidelockError
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemClock
from tidelock.lock.client import Lock
from tidelock.lock.record import decode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.storage.contract import Create, Match, ObjectStore, Overwrite

_WRITE_WAIT_MS_MAX = 8_000
"""Less than a write waits for a file lock that is left."""
_OFFSET_MS = LEASE.validity_ms + LEASE.drift_ms + LEASE.grace_ms + 1_000


class OffsetClock:
    """The system clocks with an offset, so that a lease has expired without waiting."""

    def __init__(self, ahead_ms: int) -> None:
        """Add `ahead_ms` to both clocks."""
        self._clock: Clock = SystemClock()
        self._ahead_ms = ahead_ms

    def now(self) -> Now:
        """Read both clocks."""
        now = self._clock.now()
        return Now(now.monotonic_ms + self._ahead_ms, now.wall_epoch_ms + self._ahead_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep on the system clock."""
        self._clock.sleep_ms(duration_ms)


def inspect(store: ObjectStore, expected: ExpectedState) -> list[str]:
    """Return the problems in what the victim left."""
    problems = list(expected.bugs)
    for check in (_objects, _list, _writes, _lock):
        try:
            problems += check(store, expected)
        except TidelockError as error:
            problems.append(f"{check.__name__.strip('_')}: {error}")
    return problems


def _objects(store: ObjectStore, expected: ExpectedState) -> list[str]:
    """Check that each object is the old or the new one, byte for byte."""
    problems = []
    for key, possible in expected.possible.items():
        found = store.get(key)
        body = None if found is None else found.body
        if body not in possible:
            problems.append(f"{key} is {body!r:.80}, which was never written")
    return problems


def _list(store: ObjectStore, expected: ExpectedState) -> list[str]:
    """Check that a listing shows the objects, and no leftovers of a crash."""
    listed = {meta.key for meta in store.list("")}
    known = {key for key, possible in expected.possible.items() if possible != {None}}
    certain = {key for key in known if None not in expected.possible[key]}
    return [f"the listing has {key}" for key in listed - known] + [
        f"the listing lacks {key}" for key in certain - listed
    ]


def _writes(store: ObjectStore, expected: ExpectedState) -> list[str]:
    """Check that no file lock is left: every object can be written without waiting."""
    clock = SystemClock()
    began_ms = clock.now().monotonic_ms
    problems = []
    for key in (key for key in expected.possible if key.startswith("data/")):
        found = store.get(key)
        mode = Create() if found is None else Match(found.version)
        if not isinstance(store.put(key, b"by the inspector", mode), Landed):
            problems.append(f"{key} could not be written")
        store.put(key, b"by the inspector, again", Overwrite())
    waited_ms = clock.now().monotonic_ms - began_ms
    if waited_ms > _WRITE_WAIT_MS_MAX:
        problems.append(f"a write waited {waited_ms} ms")
    return problems


def _lock(store: ObjectStore, expected: ExpectedState) -> list[str]:
    """Check that a free lock is granted at once, a held one after its lease; tokens grow."""
    problems = []
    found = store.get(LOCK_KEY)
    record = decode(found.body) if found else None
    free = record is None or record.expired
    least = max([*expected.tokens, record.token if record else 0])
    problems += _attempt(lock_without_heartbeat(store), expected=free, above=least)
    if not free:
        later = Lock(
            store,
            LEASE,
            probe=False,
            clock=OffsetClock(_OFFSET_MS),
            renewals=NoHeartbeat(SystemClock()),
        )
        problems += _attempt(later, expected=True, above=least)
    return problems


def _attempt(lock: Lock, *, expected: bool, above: int) -> list[str]:
    granted = lock.try_acquire()
    problems = []
    if granted != expected:
        problems.append("the lock was granted while held" if granted else "a free lock was refused")
    if granted and lock.token <= above:
        problems.append(f"L1: token {lock.token} follows token {above}")
    lock.close()
    return problems
