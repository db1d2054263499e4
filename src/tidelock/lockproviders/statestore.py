"""Any key-value store with etags: one small JSON value per lock.

What Dapr calls a state store is enough for a lock; ours default to the object stores that the
tables lie in. Values are never deleted, so tokens go on growing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tidelock.base.errors import DataCorrupt, Throttled
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.limits import RECORD_BYTES_MAX
from tidelock.base.metrics import Metrics
from tidelock.base.outcome import Landed
from tidelock.lock.config import BASE_PATH
from tidelock.lock.provider import Features
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import Unclear
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.versioned import Entry, Refused, VersionedBackend
from tidelock.store import contract
from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store

_PLACE = ".hoodie/.tidelock/locks"
FEATURES = Features(blocking_wait=True, fencing_token=True, force_release=True)


@dataclass(frozen=True, slots=True)
class Value:
    """A value and the etag it was read under."""

    data: bytes
    etag: str


class StateStore(Protocol):
    """The part of a key-value store that a lock needs."""

    @property
    def uri(self) -> str:
        """The store, for messages."""
        ...

    def get(self, key: str) -> Value | None:
        """Return the value, strongly consistent; None if there is none."""
        ...

    def set(self, key: str, data: bytes, etag: str | None) -> str | Refused | Unclear:
        """Write if the etag still is `etag` (None: if there is no value); return the etag."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


class ObjectStates:
    """A state store in the objects of a store."""

    def __init__(self, store: ObjectStore) -> None:
        """Keep values as objects below the root of `store`."""
        self._store = store

    @property
    def uri(self) -> str:
        """The store."""
        return self._store.uri

    def get(self, key: str) -> Value | None:
        """Read the object."""
        found = self._store.get(key, end=RECORD_BYTES_MAX + 1)
        return None if found is None else Value(found.body, found.version)

    def set(self, key: str, data: bytes, etag: str | None) -> str | Refused | Unclear:
        """Write the object under its condition."""
        mode = contract.Create() if etag is None else contract.Match(etag)
        match self._store.put(key, data, mode):
            case Landed(version):
                return version
            case contract.Refused():
                return Refused()
            case contract.Busy(retry_after_ms, cause):
                raise Throttled(f"{self.uri}: {cause}", retry_after_ms=retry_after_ms)
            case contract.Unclear(cause):
                return Unclear(cause)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class StateRegister:
    """One lock's value. Its nonce makes every write's bytes, and so its etag, unlike any other."""

    def __init__(self, states: StateStore, resource: str, ids: IdSource) -> None:
        """Name the value by a hash: a resource never becomes a path (L13)."""
        self._states = states
        self._ids = ids
        self._resource = resource
        self._key = f"{hashlib.sha256(resource.encode()).hexdigest()[:40]}.json"
        self.uri = f"{states.uri}/{self._key}"

    def read(self) -> Entry | None:
        """Read and check the value."""
        found = self._states.get(self._key)
        if found is None:
            return None
        try:
            said = json.loads(found.data)
            entry = Entry(
                str(said["holder"]),
                int(said["duration_ms"]),
                int(said["token"]),
                found.etag,
                said["since_epoch_ms"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorrupt(
                f"{self.uri} is not a lock: {type(error).__name__}",
                hint="look at it; delete it only when nobody holds the lock",
            ) from error
        if said.get("resource") != self._resource:
            raise DataCorrupt(f"{self.uri} is the lock of {said.get('resource')!r}")
        return entry

    def write(self, entry: Entry, over: Entry | None) -> Entry | Refused | Unclear:
        """Write the value over the etag of `over`."""
        body = {
            "resource": self._resource,
            "holder": entry.holder,
            "duration_ms": entry.duration_ms,
            "token": entry.token,
            "since_epoch_ms": entry.since_epoch_ms,
            "nonce": self._ids.uuid(),
        }
        reply = self._states.set(
            self._key, json.dumps(body).encode(), over.version if over else None
        )
        return replace(entry, version=reply) if isinstance(reply, str) else reply

    def draw_token(self, entry: Entry) -> int:
        """Return the token in the value."""
        return entry.token

    def close(self) -> None:
        """Close the store."""
        self._states.close()


class StateStoreLockProvider(LeasedProvider):
    """A lock in `tidelock.statestore.url`, or beside the table."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        place = keys.STATE_URL.value(settings)
        if place is None:
            place = f"{BASE_PATH.required(settings).rstrip('/')}/{_PLACE}"
        states = ObjectStates(open_store(place, settings))
        register = StateRegister(states, keys.resource_name(settings), SystemIds())
        backend = VersionedBackend(register, keys.ttl_terms(settings), FEATURES)
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)
