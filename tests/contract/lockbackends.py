"""Every lock backend, each as a resource that many providers can be opened on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.contract.stores import Place, local_place, memory_place, s3_place
from tests.unit.doubles import ScriptedStore, landing
from tidelock.base.clock import SystemClock
from tidelock.lock.driver import Lock
from tidelock.lock.force import Operator
from tidelock.lock.inspect import inspect_lock
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LOCK_KEY
from tidelock.lock.provider import LockProvider
from tidelock.lock.record import Record, encode
from tidelock.lockproviders.storage import StorageLockProvider
from tidelock.store.contract import Overwrite, Unclear
from tidelock.store.readback import Patience

LEASE = Lease(validity_ms=1_000, renew_ms=100)


@dataclass(frozen=True, slots=True)
class Backend:
    """One resource of one backend. A thing that a backend cannot do is None, and its test skips."""

    open: Callable[[], LockProvider]
    free_after_ms: int
    """How long a holder that vanished keeps others out, at the most."""

    rob: Callable[[], None]
    """Let somebody outside take the lock from its holder."""

    force: Callable[[], None] | None = None
    """Release the lock as an operator."""

    drop_reply: Callable[[], None] | None = None
    """Let the next grant land and its reply be lost."""

    opened: list[LockProvider] = field(default_factory=list)

    def provider(self) -> LockProvider:
        """Open another client of the resource; the suite closes it."""
        self.opened.append(self.open())
        return self.opened[-1]


def storage_backend(place: Place) -> Backend:
    """Return RFC-91's lock on a place of a store."""
    outside = place.open()
    scripted: list[ScriptedStore] = []

    def open_storage() -> LockProvider:
        scripted.append(ScriptedStore(place.open()))
        return StorageLockProvider.over(Lock(scripted[-1], LEASE, probe=False))

    def rob() -> None:
        record = Record(expired=False, valid_until_epoch_ms=2**42, owner="a robber")
        outside.put(LOCK_KEY, encode(record), Overwrite())

    def force() -> None:
        Operator(outside, Patience()).force_release(inspect_lock(outside, LEASE, SystemClock()))

    def drop_reply() -> None:
        scripted[-1].puts.append(landing(Unclear("the reply was lost")))

    return Backend(
        open=open_storage,
        free_after_ms=LEASE.validity_ms + LEASE.drift_ms + LEASE.grace_ms,
        rob=rob,
        force=force,
        drop_reply=drop_reply,
    )


Make = Callable[[pytest.FixtureRequest], Backend]

BACKENDS: Mapping[str, Make] = {
    "storage-memory": lambda request: storage_backend(memory_place()),
    "storage-local": lambda request: storage_backend(
        local_place(request.getfixturevalue("tmp_path"))
    ),
    "storage-s3-seaweedfs": lambda request: storage_backend(
        s3_place(request.getfixturevalue("seaweedfs_server"))
    ),
}
