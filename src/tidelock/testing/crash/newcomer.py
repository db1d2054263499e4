"""What a process that comes after a crash must find, and must be able to do."""

from __future__ import annotations

from tidelock.base.clock import Clock, Now, SystemClock
from tidelock.base.errors import TidelockError
from tidelock.base.outcome import Landed
from tidelock.lock.driver import Lock
from tidelock.lock.objects import LOCK_KEY
from tidelock.lock.record import decode
from tidelock.store.contract import Create, Match, ObjectStore, Overwrite
from tidelock.testing.crash.ledger import Ledger
from tidelock.testing.crash.victim import LEASE, NoHeartbeat, quiet_lock

_TURN_MS_MAX = 2_000
_AHEAD_MS = LEASE.validity_ms + LEASE.drift_ms + LEASE.grace_ms + 1_000


class AheadClock:
    """The machine's clocks some time later, so that a lease is over without waiting for it."""

    def __init__(self, ahead_ms: int) -> None:
        """Be `ahead_ms` ahead."""
        self._clock: Clock = SystemClock()
        self._ahead_ms = ahead_ms

    def now(self) -> Now:
        """Read both clocks."""
        now = self._clock.now()
        return Now(now.monotonic_ms + self._ahead_ms, now.wall_epoch_ms + self._ahead_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait for real."""
        self._clock.sleep_ms(duration_ms)


def inspect(store: ObjectStore, ledger: Ledger) -> list[str]:
    """Return everything that is wrong with what the victim left."""
    problems = list(ledger.bugs)
    for look in (_objects, _list, _writes, _lock):
        try:
            problems += look(store, ledger)
        except TidelockError as error:
            problems.append(f"{look.__name__.strip('_')}: {error}")
    return problems


def _objects(store: ObjectStore, ledger: Ledger) -> list[str]:
    """Each object is the old or the new one, byte for byte."""
    problems = []
    for key, possible in ledger.possible.items():
        found = store.get(key)
        body = None if found is None else found.body
        if body not in possible:
            problems.append(f"{key} is {body!r:.80}, which nobody wrote whole")
    return problems


def _list(store: ObjectStore, ledger: Ledger) -> list[str]:
    """A list shows objects, and nothing that a crash left over."""
    listed = {meta.key for meta in store.list("")}
    known = {key for key, possible in ledger.possible.items() if possible != {None}}
    certain = {key for key in known if None not in ledger.possible[key]}
    return [f"the list shows {key}" for key in listed - known] + [
        f"the list lacks {key}" for key in certain - listed
    ]


def _writes(store: ObjectStore, ledger: Ledger) -> list[str]:
    """Nobody is left in the turn: a newcomer writes every object in no time."""
    clock = SystemClock()
    began_ms = clock.now().monotonic_ms
    problems = []
    for key in (key for key in ledger.possible if key.startswith("data/")):
        found = store.get(key)
        mode = Create() if found is None else Match(found.version)
        if not isinstance(store.put(key, b"by a newcomer", mode), Landed):
            problems.append(f"{key} could not be written")
        store.put(key, b"by a newcomer, again", Overwrite())
    waited_ms = clock.now().monotonic_ms - began_ms
    if waited_ms > _TURN_MS_MAX:
        problems.append(f"the newcomer waited {waited_ms} ms for its turn")
    return problems


def _lock(store: ObjectStore, ledger: Ledger) -> list[str]:
    """A free lock is granted at once, a held one after its lease; the token grows either way."""
    problems = []
    found = store.get(LOCK_KEY)
    record = decode(found.body) if found else None
    free = record is None or record.expired
    least = max([*ledger.tokens, record.token if record else 0])
    problems += _attempt(quiet_lock(store), expected=free, above=least)
    if not free:
        later = Lock(
            store,
            LEASE,
            probe=False,
            clock=AheadClock(_AHEAD_MS),
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
