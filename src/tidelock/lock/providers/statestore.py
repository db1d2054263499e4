"""Lock provider for key-value stores with etags: one small JSON value per lock.

Any state store in the sense of Dapr can hold a lock; the default is the object store of the table.
Values are never deleted, so tokens keep increasing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tidelock.core.errors import DataCorrupt, Throttled
from tidelock.core.ids import IdSource
from tidelock.core.limits import RECORD_BYTES_MAX
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemIds
from tidelock.lock.config import BASE_PATH
from tidelock.lock.providers import config
from tidelock.lock.providers.backend import Backend, BackendUnclear
from tidelock.lock.providers.leased import ConfiguredProvider
from tidelock.lock.providers.versioned import RecordEntry, ReplaceRefused, VersionedBackend
from tidelock.storage import contract
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

_FOLDER = ".hoodie/.tidelock/locks"


@dataclass(frozen=True, slots=True)
class StateValue:
    """A value and its etag."""

    data: bytes
    etag: str


class StateStore(Protocol):
    """The operations of a key-value store that a lock needs."""

    @property
    def uri(self) -> str:
        """URI of the store, for messages."""

    def get(self, key: str) -> StateValue | None:
        """Return the value, with strong consistency; None if there is none."""

    def set(self, key: str, data: bytes, etag: str | None) -> str | ReplaceRefused | BackendUnclear:
        """Write if the etag is still `etag` (None: if there is no value); return the new etag."""

    def close(self) -> None:
        """Close the connections."""


class ObjectStateStore:
    """A state store in an object store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def uri(self) -> str:
        return self._store.uri

    def get(self, key: str) -> StateValue | None:
        found = self._store.get(key, end=RECORD_BYTES_MAX + 1)
        return None if found is None else StateValue(found.body, found.version)

    def set(self, key: str, data: bytes, etag: str | None) -> str | ReplaceRefused | BackendUnclear:
        mode = contract.Create() if etag is None else contract.Match(etag)
        match self._store.put(key, data, mode):
            case Landed(version):
                return version
            case contract.Refused():
                return ReplaceRefused()
            case contract.Busy(retry_after_ms, cause):
                raise Throttled(f"{self.uri}: {cause}", retry_after_ms=retry_after_ms)
            case contract.Unclear(cause):
                return BackendUnclear(cause)

    def close(self) -> None:
        self._store.close()


class StateRegister:
    """The value of one lock. A nonce makes the bytes, and so the etag, of each write unique."""

    def __init__(self, states: StateStore, resource: str, ids: IdSource) -> None:
        """Use a hash as the key: a resource never becomes a path (L13)."""
        self._states = states
        self._ids = ids
        self._resource = resource
        self._key = f"{hashlib.sha256(resource.encode()).hexdigest()[:40]}.json"
        self.uri = f"{states.uri}/{self._key}"

    def read(self) -> RecordEntry | None:
        found = self._states.get(self._key)
        if found is None:
            return None
        try:
            fields = json.loads(found.data)
            entry = RecordEntry(
                str(fields["holder"]),
                int(fields["duration_ms"]),
                int(fields["token"]),
                found.etag,
                fields["since_epoch_ms"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorrupt(
                f"{self.uri}: expected the state of a lock: {type(error).__name__}",
                hint="inspect it; delete it only if nobody holds the lock",
            ) from error
        if fields.get("resource") != self._resource:
            raise DataCorrupt(
                f"{self.uri}: expected the lock of {self._resource!r},"
                f" got that of {fields.get('resource')!r}"
            )
        return entry

    def write(
        self, entry: RecordEntry, expected: RecordEntry | None
    ) -> RecordEntry | ReplaceRefused | BackendUnclear:
        """Write the value, conditional on the etag of `expected`."""
        body = {
            "resource": self._resource,
            "holder": entry.holder,
            "duration_ms": entry.duration_ms,
            "token": entry.token,
            "since_epoch_ms": entry.since_epoch_ms,
            "nonce": self._ids.uuid(),
        }
        etag = expected.version if expected else None
        reply = self._states.set(self._key, json.dumps(body).encode(), etag)
        return replace(entry, version=reply) if isinstance(reply, str) else reply

    def next_token(self, entry: RecordEntry) -> int:
        return entry.token

    def close(self) -> None:
        self._states.close()


class StateStoreLockProvider(ConfiguredProvider):
    """A lock in `tidelock.statestore.url`, or next to the table."""

    def open_backend(self, settings: Mapping[str, object]) -> Backend:
        location = config.STATE_URL.value(settings)
        if location is None:
            location = f"{BASE_PATH.required(settings).rstrip('/')}/{_FOLDER}"
        states = ObjectStateStore(open_store(location, settings))
        register = StateRegister(states, config.resource_name(settings), SystemIds())
        return VersionedBackend(register, config.ttl_terms(settings))
