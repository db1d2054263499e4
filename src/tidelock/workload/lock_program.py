"""One program of the lock demo, run as a process of its own.

    python -m tidelock.workload.lock_program contender NAME FOLDER

It keeps working after it lost the lock, like a program that never checks its lock: only the fencing
token stops it. It ends with its standard input, so it never outlives its parent.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.errors import AcquireTimeout, HoldingLost, OutcomeUnknown, TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.limits import VALIDITY_S_MIN
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.contract import Create, Match, ObjectStore, Overwrite, PutMode
from tidelock.storage.local import LocalStore
from tidelock.workload.fleet import SPEC_FILE, ProcessPool, parent_is_running
from tidelock.workload.journal import ProgramJournal


class LockEvent(StrEnum):
    """The kinds of events in the journal of a contender."""

    WAITING = "waiting"
    GRANTED = "granted"
    BELIEVES = "believes"
    LOST = "lost"
    WRITING = "writing"
    WROTE = "wrote"
    REFUSED = "refused"
    WROTE_PLAIN = "wrote plain"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"
    ENDED = "ended"


class LockRole(Enum):
    """The kind of a program of the lock demo; there is one."""

    CONTENDER = "contender"


SHORTEST_LEASE: Final = Lease(validity_ms=VALIDITY_S_MIN * 1000, renew_ms=1000)
"""The shortest lease that Hudi's settings allow, so that a demo can wait for its end."""


@dataclass(frozen=True, slots=True)
class LockFleetSpec:
    """The lease that all contenders use, and the timing that follows from it."""

    lease: Lease = SHORTEST_LEASE

    @property
    def work_ms(self) -> tuple[float, float]:
        """The shortest and the longest critical section.

        Shorter than the renewal interval: a program suspended inside it is not suspended during a
        renewal, where it would hold the file lock of the local store.
        """
        return self.lease.renew_ms * 0.15, self.lease.renew_ms * 0.5

    @property
    def pause_ms(self) -> tuple[float, float]:
        """The shortest and the longest pause between two critical sections of one program."""
        return self.lease.renew_ms * 0.02, self.lease.renew_ms * 0.3

    def save(self, folder: Path) -> None:
        """Write the spec to the folder."""
        fields = {"validity_ms": self.lease.validity_ms, "renew_ms": self.lease.renew_ms}
        (folder / SPEC_FILE).write_text(json.dumps(fields))

    @classmethod
    def load(cls, folder: Path) -> LockFleetSpec:
        """Read the spec from the folder."""
        return cls(Lease(**json.loads((folder / SPEC_FILE).read_text())))

    def create(self) -> None:
        """Create nothing: the first holder creates the lock file."""


LockPool = ProcessPool[LockFleetSpec, LockRole]


def lock_pool(folder: Path, spec: LockFleetSpec) -> LockPool:
    """Return the process pool of a lock demo, with no program started."""
    return LockPool(folder, spec, "tidelock.workload.lock_program")


FENCED_KEY: Final = "fenced.json"
PLAIN_KEY: Final = "plain.json"


class StaleToken(Exception):
    """A write was rejected because the counter has seen a larger token."""

    def __init__(self, token: int, seen: int) -> None:
        super().__init__(f"token {token} is smaller than token {seen}")
        self.seen = seen


class FencedCounter:
    """A counter that rejects tokens smaller than the largest it has seen."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, token: int) -> int:
        """Return the value, and reject writes with smaller tokens from now on.

        Raises: `StaleToken`.
        """
        return self._update(token, None)

    def write(self, token: int, value: int) -> None:
        """Set the value. Raises: `StaleToken`."""
        self._update(token, value)

    def _update(self, token: int, new: int | None) -> int:
        """Present a token, and set a new value if there is one; return the value."""
        while True:
            mode, current, seen = self._state()
            if seen > token:
                raise StaleToken(token, seen)
            value = current if new is None else new
            if (new is None and seen == token) or self._put(mode, value, token):
                return value

    def value(self) -> int:
        """Return the value without presenting a token."""
        return self._state()[1]

    def _state(self) -> tuple[PutMode, int, int]:
        found = self._store.get(FENCED_KEY)
        if found is None:
            return Create(), 0, 0
        fields = json.loads(found.body)
        return Match(found.version), int(fields["value"]), int(fields["token"])

    def _put(self, mode: PutMode, value: int, token: int) -> bool:
        body = json.dumps({"value": value, "token": token}).encode()
        return isinstance(self._store.put(FENCED_KEY, body, mode), Landed)


class PlainCounter:
    """A counter without fencing: a stale writer overwrites the increments of others."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self) -> int:
        """Return the value."""
        found = self._store.get(PLAIN_KEY)
        return 0 if found is None else int(found.body)

    def write(self, value: int) -> None:
        """Set the value."""
        self._store.put(PLAIN_KEY, str(value).encode(), Overwrite())


_CHECK_EVERY_MS: Final = 20
_WAIT_S: Final = 1.0


class Contender:
    """Acquires the lock, increments both counters and releases the lock, in a loop."""

    def __init__(
        self, lock: Lock, spec: LockFleetSpec, folder: Path, journal: ProgramJournal
    ) -> None:
        store = LocalStore(folder / "counters", fsync=False)
        self._lock = lock
        self._spec = spec
        self._journal = journal
        self._fenced = FencedCounter(store)
        self._plain = PlainCounter(store)
        self._clock: Clock = SystemClock()
        self._ids: IdSource = SystemIds()

    def run(self) -> None:
        """Run until the parent closes standard input."""
        while parent_is_running():
            self._append(LockEvent.WAITING)
            try:
                token = self._lock.acquire(_WAIT_S)
            except AcquireTimeout:
                continue
            except TidelockError as error:
                self._append(LockEvent.FAILED, says=str(error))
                self._clock.sleep_ms(200)
                continue
            self._append(LockEvent.GRANTED, token)
            self._critical_section(token)
            self._release(token)
            self._clock.sleep_ms(self._random(self._spec.pause_ms))

    def _critical_section(self, token: int) -> None:
        """Read both counters, work for a while, write both back."""
        try:
            value, plain = self._fenced.read(token), self._plain.read()
        except StaleToken as error:
            self._append(LockEvent.REFUSED, token, says=str(error.seen))
            return
        self._work(token)
        self._append(LockEvent.WRITING, token)
        try:
            self._fenced.write(token, value + 1)
            self._append(LockEvent.WROTE, token)
        except StaleToken as error:
            self._append(LockEvent.REFUSED, token, says=str(error.seen))
        self._plain.write(plain + 1)
        self._append(LockEvent.WROTE_PLAIN, token)

    def _work(self, token: int) -> None:
        until_ms = self._clock.now().monotonic_ms + self._random(self._spec.work_ms)
        while self._clock.now().monotonic_ms < until_ms:
            # Read the time before the check: a pause between the two must not prolong the claim.
            at_ms = self._clock.now().monotonic_ms
            if not self._still_holds(token):
                return
            self._append(LockEvent.BELIEVES, token, at_ms=at_ms)
            self._clock.sleep_ms(_CHECK_EVERY_MS)
        self._still_holds(token)

    def _still_holds(self, token: int) -> bool:
        try:
            self._lock.check()
        except HoldingLost as error:
            self._append(LockEvent.LOST, token, says=error.message)
            return False
        return True

    def _release(self, token: int) -> None:
        self._append(LockEvent.RELEASING, token)
        try:
            self._lock.release()
        except (HoldingLost, OutcomeUnknown):
            return
        self._append(LockEvent.RELEASED, token)

    def _append(
        self, kind: LockEvent, token: int = 0, *, says: str = "", at_ms: int | None = None
    ) -> None:
        self._journal.append(kind, at_ms=at_ms, token=token, says=says)

    def _random(self, bounds: tuple[float, float]) -> float:
        least, most = bounds
        return least + (most - least) * self._ids.jitter()


def main(args: list[str]) -> None:
    """Run one contender of the lock demo in a folder."""
    _, name, path = args
    folder = Path(path)
    spec = LockFleetSpec.load(folder)
    journal = ProgramJournal(folder / "journals", name, SystemClock())
    with closing(journal), closing(Lock(LocalStore(folder / "table"), spec.lease)) as lock:
        Contender(lock, spec, folder, journal).run()
        journal.append(LockEvent.ENDED)


if __name__ == "__main__":
    main(sys.argv[1:])
