"""Lock provider for a lock of the lock service, over HTTP.

Every request carries an id, so that a request whose reply was lost is repeated or cancelled. The
lease is counted from the sending of the last renewal that succeeded (L3), so that the holder stops
in time whatever happens to the service, the network or this process. A restart of the service
keeps all locks: the next renewal succeeds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from tidelock.core.errors import InvalidInput, PermissionDenied, TidelockError, Unavailable
from tidelock.core.system import SystemClock
from tidelock.core.threads import start_thread
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.json_api import (
    JsonReply,
    JsonService,
    checked_origin,
    request_timeout_ms,
)
from tidelock.lock.providers.leased import ConfiguredProvider
from tidelock.lock.server.auth import TOKEN_HEADER
from tidelock.lock.server.errors import LockNotFound, Unauthenticated
from tidelock.lock.server.resource import validate_id

T = TypeVar("T")

_RENEWALS_PER_TTL = 4
_WAIT_S = 600
"""How long one request waits in the queue of the service before it is repeated."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A lock service: its origin, the lock store (empty: the only one) and the API token."""

    origin: str
    store: str = ""
    token: str = field(default="", repr=False)

    @staticmethod
    def read(settings: Mapping[str, object]) -> ServiceAddress:
        """Read the settings; the token may come from the environment. Raises: `ConfigInvalid`."""
        url = config.SERVICE_URL.required(settings)
        origin = checked_origin(url, config.SERVICE_URL.key)
        token = config.SERVICE_TOKEN.value(settings) or os.environ.get("TIDELOCK_API_TOKEN", "")
        return ServiceAddress(origin, config.SERVICE_STORE.value(settings) or "", token)


@dataclass(slots=True)
class _QueuedRequest:
    """A request that waits in the queue of the service."""

    changed: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    lock_id: str = ""
    failed: bool = False


class ServiceBackend:
    """One lock of one lock service over HTTP."""

    features = Features(
        blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True, watch=True
    )

    def __init__(self, address: ServiceAddress, resource: str, terms: b.LeaseTerms) -> None:
        self.uri = f"{address.origin}/v1.0-alpha2/lock/{quote(resource, safe='')}"
        self.terms = terms
        self._path = f"/v1.0-alpha2/lock/{quote(validate_id(resource), safe='')}"
        if address.store:
            self._path += f"?store={quote(address.store, safe='')}"
        self._token = address.token
        connect = partial(JsonService, address.origin, clock=SystemClock(), credentials=self._sign)
        self._service = connect(timeout_ms=request_timeout_ms(terms))
        self._queue = connect(timeout_ms=(_WAIT_S + 10) * 1000)
        self._queued: dict[str, _QueuedRequest] = {}

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Request the lock; if it is held, wait in the queue of the service."""
        queued = self._queued.get(attempt.id)
        if queued is not None and not queued.lock_id and not queued.failed:
            return b.HeldByOther(queued=True, changed=queued.changed)
        if queued is not None:
            del self._queued[attempt.id]
            if queued.lock_id:
                return self._confirmed(attempt, queued.lock_id)
        answer = self._request("POST", self._lock_options(attempt) | {"immediate": True})
        if isinstance(answer, b.BackendUnclear):
            return answer
        if answer.ok:
            return b.BackendAcquired(_grant(attempt, answer))
        if answer.body.get("errorCode") == "ERR_RESOURCE_LOCKED":
            queued = self._queued[attempt.id] = _QueuedRequest()
            start_thread("tidelock-queue", lambda: self._wait(attempt, queued))
            return b.HeldByOther(queued=True, changed=queued.changed)
        raise self._refused(answer)

    def cancel(self, attempt: b.Attempt) -> bool:
        """Cancel the request, whether it waits, is granted or has not arrived yet."""
        queued = self._queued.pop(attempt.id, None)
        if queued is not None:
            queued.cancelled = True
        answer = self._request("DELETE", {"requestID": attempt.id, "force": False})
        if isinstance(answer, b.BackendUnclear):
            raise answer.error(self.uri)
        return answer.ok

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        return self._change("PUT", grant, b.RenewedLease(grant))

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        return self._change("DELETE", grant, b.GrantReleased())

    def _change(
        self, method: str, grant: b.BackendGrant, success: T
    ) -> T | b.GrantLost | b.BackendUnclear:
        answer = self._request(method, {"lockID": grant.handle})
        if isinstance(answer, b.BackendUnclear):
            return answer
        if answer.ok:
            return success
        if answer.status == 404:
            return b.GrantLost("the service reports that the lock has ended")
        raise self._refused(answer)

    def abandon(self, grant: b.BackendGrant) -> None:
        """Let the lock expire: only renewals keep it alive."""

    def holder(self) -> Holder | None:
        answer = self._request("GET", None)
        if isinstance(answer, b.BackendUnclear):
            raise answer.error(self.uri)
        if not answer.ok:
            raise self._refused(answer)
        if not answer.body.get("locked"):
            return None
        return Holder(
            str(answer.body.get("owner") or answer.body.get("principal")),
            token=int(answer.body["token"]),
            since_epoch_ms=int(answer.body["since"]),
            waiters=int(answer.body["waiters"]),
        )

    def force_release(self) -> bool:
        """Release the lock of any holder; needs the permission to force."""
        answer = self._request("DELETE", {"force": True})
        if isinstance(answer, b.BackendUnclear):
            raise answer.error(self.uri, hint="check the status before trying again")
        if answer.ok or answer.status == 404:
            return answer.ok
        raise self._refused(answer)

    def close(self) -> None:
        for queued in self._queued.values():
            queued.cancelled = True
        self._service.close()
        self._queue.close()

    def _confirmed(self, attempt: b.Attempt, lock_id: str) -> b.AcquireReply:
        """L3: renew a grant that arrived in the background, and count the lease from there."""
        answer = self._request("PUT", {"lockID": lock_id})
        if isinstance(answer, b.BackendUnclear):
            return answer
        return b.BackendAcquired(_grant(attempt, answer)) if answer.ok else b.HeldByOther()

    def _wait(self, attempt: b.Attempt, queued: _QueuedRequest) -> None:
        """Wait in the queue until the lock is granted or the request is cancelled."""
        options = self._lock_options(attempt) | {"wait": f"{_WAIT_S}s"}
        try:
            while not queued.cancelled:
                answer = self._queue.send("POST", self._path, options)
                if isinstance(answer, JsonReply) and answer.ok:
                    queued.lock_id = str(answer.body["lockID"])
                    break
                if isinstance(answer, b.BackendUnclear) or answer.status != 409:
                    queued.failed = True
                    break
        except TidelockError:
            queued.failed = True
        queued.changed.set()

    def _lock_options(self, attempt: b.Attempt) -> dict[str, object]:
        return {
            "ttl": f"{self.terms.validity_ms}ms",
            "autoRenew": False,
            "requestID": attempt.id,
            "owner": "",
        }

    def _request(self, method: str, body: dict[str, object] | None) -> JsonReply | b.BackendUnclear:
        return self._service.send(method, self._path, body)

    def _sign(self, _method: str, _path: str, headers: dict[str, str], _body: bytes) -> None:
        if self._token:
            headers[TOKEN_HEADER] = self._token

    def _refused(self, answer: JsonReply) -> TidelockError:
        message = f"{self.uri}: HTTP {answer.status}: {answer.body.get('message', '')}"
        hint = str(answer.body.get("hint", ""))
        match answer.status:
            case 401:
                return Unauthenticated(message, hint=f"set {config.SERVICE_TOKEN.key}")
            case 403:
                return PermissionDenied(message, hint=hint)
            case 404:
                return LockNotFound(message, hint=hint)
            case 400 | 405:
                return InvalidInput(message, hint=hint)
            case _:
                return Unavailable(message, hint=hint or "try again")


def _grant(attempt: b.Attempt, answer: JsonReply) -> b.BackendGrant:
    return b.BackendGrant(attempt, str(answer.body["lockID"]), int(answer.body["token"]))


class ServiceLockProvider(ConfiguredProvider):
    """A lock of the lock service at `tidelock.lockservice.url`.

    with closing(ServiceLockProvider.at("http://127.0.0.1:3500", "nightly")) as lock:
        if lock.try_lock(60_000):
            publish(lock.check())
            lock.unlock()
    """

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        """Return the lock in the service. Raises: `ConfigInvalid`, `ResourceInvalid`."""
        ttl = config.ttl_terms(settings)
        assert ttl.validity_ms is not None
        return ServiceBackend(
            ServiceAddress.read(settings),
            config.resource_name(settings),
            b.LeaseTerms(ttl.validity_ms, ttl.validity_ms // _RENEWALS_PER_TTL),
        )

    @classmethod
    def at(
        cls, url: str, resource: str, *, token: str = "", store: str = "", ttl_ms: int = 30_000
    ) -> ServiceLockProvider:
        """Return the lock `resource` of the service at `url`."""
        settings: dict[str, object] = {
            config.SERVICE_URL.key: url,
            config.SERVICE_STORE.key: store,
            config.RESOURCE.key: resource,
            config.TTL_MS.key: ttl_ms,
        }
        if token:
            settings[config.SERVICE_TOKEN.key] = token
        return cls(settings)
