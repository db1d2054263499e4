"""All lock backends, each as a resource that several providers can open."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testkit.proxy import TcpProxy
from tests.contract.stores import StoreLocation, local_location, memory_location, s3_location
from tests.unit.doubles import ScriptedStore, landing
from tidelock.core.system import SystemIds
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers.backend import Attempt, BackendAcquired, LeaseTerms
from tidelock.lock.providers.config import PollingPolicy
from tidelock.lock.providers.filesystem import FileSystemBackend
from tidelock.lock.providers.inprocess import InProcessBackend
from tidelock.lock.providers.leased import LeasedProvider
from tidelock.lock.providers.statestore import ObjectStateStore, StateRegister
from tidelock.lock.providers.storage import StorageLockProvider
from tidelock.lock.providers.versioned import RecordEntry, VersionedBackend
from tidelock.lock.record import LockRecord, encode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.storage.contract import Overwrite, Unclear

RENEW_MS = 100
POLLING = PollingPolicy(between_ms=100, between_max_ms=200, retries=100)


@dataclass(frozen=True, slots=True)
class Backend:
    """One resource of one backend. An operation the backend lacks is None, and its test skips."""

    open: Callable[[], LockProvider]
    free_after_ms: int
    """Upper bound of the time that a crashed holder blocks others."""

    steal: Callable[[], None]
    """Take the lock away from its holder."""

    drop_reply: Callable[[], None] | None = None
    """Let the next grant succeed and drop its reply."""

    proxy: TcpProxy | None = None
    """The proxy in front of the server, which can be closed."""

    grant_marker: bytes = b""
    """Bytes of the acquire request; empty where the proxy cannot see them."""

    cycles: int = 100
    """Consecutive acquires: fewer where a server writes to disk each time."""

    opened: list[LockProvider] = field(default_factory=list)

    @property
    def can_drop_reply(self) -> bool:
        """Return whether the reply to a grant can be dropped."""
        return self.drop_reply is not None or bool(self.grant_marker)

    def drop(self) -> None:
        """Let the next grant succeed and drop its reply."""
        if self.drop_reply is not None:
            self.drop_reply()
        else:
            assert self.proxy is not None
            self.proxy.lose_reply_to(self.grant_marker)

    def provider(self) -> LockProvider:
        """Open another client of the resource; the suite closes it."""
        self.opened.append(self.open())
        return self.opened[-1]


def storage_backend(location: StoreLocation, lease_ms: int) -> Backend:
    """Return RFC-91's storage lock at a store location."""
    lease = Lease(validity_ms=lease_ms, renew_ms=RENEW_MS)
    outside = location.open()
    scripted: list[ScriptedStore] = []

    def open_storage() -> LockProvider:
        scripted.append(ScriptedStore(location.open()))
        return StorageLockProvider.over(Lock(scripted[-1], lease, probe=False))

    def steal() -> None:
        record = LockRecord(expired=False, valid_until_epoch_ms=2**42, owner="another owner")
        outside.put(LOCK_KEY, encode(record), Overwrite())

    def drop_reply() -> None:
        scripted[-1].puts.append(landing(Unclear("the reply was lost")))

    return Backend(
        open=open_storage,
        free_after_ms=lease.validity_ms + lease.drift_ms + lease.grace_ms,
        steal=steal,
        drop_reply=drop_reply,
    )


def state_backend(location: StoreLocation, lease_ms: int) -> Backend:
    """Return a versioned value in the objects of a store."""
    outside = StateRegister(ObjectStateStore(location.open()), "contract", SystemIds())
    scripted: list[ScriptedStore] = []

    def open_state() -> LockProvider:
        scripted.append(ScriptedStore(location.open()))
        register = StateRegister(ObjectStateStore(scripted[-1]), "contract", SystemIds())
        terms = LeaseTerms(lease_ms, RENEW_MS)
        return LeasedProvider(VersionedBackend(register, terms), polling=POLLING)

    def steal() -> None:
        for _ in range(20):
            if isinstance(
                outside.write(RecordEntry("another owner", 60_000, 1_000), outside.read()),
                RecordEntry,
            ):
                return
        raise AssertionError("the value could not be overwritten")

    def drop_reply() -> None:
        scripted[-1].puts.append(landing(Unclear("the reply was lost")))

    # A late client has to watch the value for a whole lease plus the grace period.
    free_after_ms = lease_ms + 700
    return Backend(open=open_state, free_after_ms=free_after_ms, steal=steal, drop_reply=drop_reply)


def filesystem_backend(folder: Path, lease_ms: int) -> Backend:
    """Return a lock file in a folder, which is renewed ten times in its lease."""
    expire_ms = min(lease_ms, 20_000)

    def open_file() -> LockProvider:
        return LeasedProvider(FileSystemBackend(folder, expire_ms=expire_ms), polling=POLLING)

    def steal() -> None:
        (folder / "lock").unlink()
        (folder / "lock").write_text('{"lockCreateTime" : "2026-11-15 10:00:00.000"}')

    return Backend(open=open_file, free_after_ms=expire_ms, steal=steal)


def inprocess_backend() -> Backend:
    """Return an in-process lock."""
    name = uuid.uuid4().hex

    def steal() -> None:
        other = InProcessBackend(name)
        assert other.force_release()
        assert isinstance(other.try_acquire(Attempt("another owner")), BackendAcquired)

    return Backend(
        open=lambda: LeasedProvider(InProcessBackend(name), polling=POLLING),
        free_after_ms=500,
        steal=steal,
    )


Make = Callable[[pytest.FixtureRequest, int], Backend]
"""Makes a backend whose locks expire after so many milliseconds without a renewal."""

BACKENDS: Mapping[str, Make] = {
    "storage-memory": lambda request, lease_ms: storage_backend(memory_location(), lease_ms),
    "storage-local": lambda request, lease_ms: storage_backend(
        local_location(request.getfixturevalue("tmp_path")), lease_ms
    ),
    "storage-s3-seaweedfs": lambda request, lease_ms: storage_backend(
        s3_location(request.getfixturevalue("seaweedfs_server")), lease_ms
    ),
    "statestore-local": lambda request, lease_ms: state_backend(
        local_location(request.getfixturevalue("tmp_path")), lease_ms
    ),
    "statestore-s3-seaweedfs": lambda request, lease_ms: state_backend(
        s3_location(request.getfixturevalue("seaweedfs_server")), lease_ms
    ),
    "filesystem": lambda request, lease_ms: filesystem_backend(
        request.getfixturevalue("tmp_path"), lease_ms
    ),
    "inprocess": lambda request, lease_ms: inprocess_backend(),
}
"""Backends without a server; `lockservers.SERVED` has the others."""
