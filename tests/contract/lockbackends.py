"""Every lock backend, each as a resource that many providers can be opened on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.contract.stores import Place, local_place, memory_place, s3_place
from tests.unit.doubles import ScriptedStore, landing
from tidelock.base.ids import SystemIds
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LOCK_KEY
from tidelock.lock.provider import LockProvider
from tidelock.lock.record import Record, encode
from tidelock.lockproviders.backend import Attempt, Taken, Terms
from tidelock.lockproviders.filesystem import FileSystemBackend
from tidelock.lockproviders.inprocess import InProcessBackend
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.statestore import FEATURES as STATE_FEATURES
from tidelock.lockproviders.statestore import ObjectStates, StateRegister
from tidelock.lockproviders.storage import StorageLockProvider
from tidelock.lockproviders.versioned import Entry, VersionedBackend
from tidelock.store.contract import Overwrite, Unclear
from tidelock.testing.proxy import TcpGate

LEASE = Lease(validity_ms=1_000, renew_ms=100)
TERMS = Terms(1_000, 100)
PACE = Pace(between_ms=100, between_max_ms=200, retries=100)


@dataclass(frozen=True, slots=True)
class Backend:
    """One resource of one backend. A thing that a backend cannot do is None, and its test skips."""

    open: Callable[[], LockProvider]
    free_after_ms: int
    """How long a holder that vanished keeps others out, at the most."""

    rob: Callable[[], None]
    """Let somebody outside take the lock from its holder."""

    drop_reply: Callable[[], None] | None = None
    """Let the next grant land and its reply be lost."""

    gate: TcpGate | None = None
    """What stands before the server, and can be shut."""

    grant_marker: bytes = b""
    """Bytes of the request that asks for the lock; empty where the gate cannot see them."""

    cycles: int = 100
    """How many times the lock is taken in a row: fewer where a server writes to disk each time."""

    opened: list[LockProvider] = field(default_factory=list)

    @property
    def can_drop_reply(self) -> bool:
        """Tell whether the reply to a grant can be lost on its way."""
        return self.drop_reply is not None or bool(self.grant_marker)

    def drop(self) -> None:
        """Let the next grant land and its reply be lost."""
        if self.drop_reply is not None:
            self.drop_reply()
        else:
            assert self.gate is not None
            self.gate.lose_answer_to(self.grant_marker)

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

    def drop_reply() -> None:
        scripted[-1].puts.append(landing(Unclear("the reply was lost")))

    return Backend(
        open=open_storage,
        free_after_ms=LEASE.validity_ms + LEASE.drift_ms + LEASE.grace_ms,
        rob=rob,
        drop_reply=drop_reply,
    )


def state_backend(place: Place) -> Backend:
    """Return a value in the objects of a store."""
    outside = StateRegister(ObjectStates(place.open()), "contract", SystemIds())
    scripted: list[ScriptedStore] = []

    def open_state() -> LockProvider:
        scripted.append(ScriptedStore(place.open()))
        register = StateRegister(ObjectStates(scripted[-1]), "contract", SystemIds())
        return LeasedProvider(VersionedBackend(register, TERMS, STATE_FEATURES), pace=PACE)

    def rob() -> None:
        for _ in range(20):
            if isinstance(outside.write(Entry("a robber", 60_000, 1_000), outside.read()), Entry):
                return
        raise AssertionError("the value could not be overwritten")

    def drop_reply() -> None:
        scripted[-1].puts.append(landing(Unclear("the reply was lost")))

    # Who comes late has to watch the value for a whole lease, and the grace.
    return Backend(open=open_state, free_after_ms=1_700, rob=rob, drop_reply=drop_reply)


def filesystem_backend(folder: Path) -> Backend:
    """Return the lock file of a folder."""

    def open_file() -> LockProvider:
        return LeasedProvider(FileSystemBackend(folder, expire_ms=1_000), pace=PACE)

    def rob() -> None:
        (folder / "lock").unlink()
        (folder / "lock").write_text('{"lockCreateTime" : "2026-11-15 10:00:00.000"}')

    return Backend(open=open_file, free_after_ms=1_000, rob=rob)


def inprocess_backend() -> Backend:
    """Return a lock of this process."""
    name = uuid.uuid4().hex

    def rob() -> None:
        robber = InProcessBackend(name)
        assert robber.break_lock()
        assert isinstance(robber.take(Attempt("a robber")), Taken)

    return Backend(
        open=lambda: LeasedProvider(InProcessBackend(name), pace=PACE), free_after_ms=500, rob=rob
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
    "statestore-local": lambda request: state_backend(
        local_place(request.getfixturevalue("tmp_path"))
    ),
    "statestore-s3-seaweedfs": lambda request: state_backend(
        s3_place(request.getfixturevalue("seaweedfs_server"))
    ),
    "filesystem": lambda request: filesystem_backend(request.getfixturevalue("tmp_path")),
    "inprocess": lambda request: inprocess_backend(),
}
"""Those without a server of their own; `lockservers.SERVED` has the others."""
