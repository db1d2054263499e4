"""A lock of a lock service as a lock provider: blocking, renewing, telling of a loss.

Every request carries an id, so a reply that was lost is asked for again or called off, never
guessed. The lease is counted from the sending of the last renewal that was answered (L3), so the
holder stops in time whatever the service, the network or a pause of this process does. A service
that is restarted knows its locks: the next renewal finds it, and nothing is lost.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import (
    InvalidInput,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unavailable,
)
from tidelock.base.metrics import Metrics
from tidelock.base.runtime import start_thread
from tidelock.lock.provider import Features, Holder
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
    Unclear,
)
from tidelock.lockproviders.jsonservice import (
    JsonService,
    Said,
    checked_origin,
    request_timeout_ms,
)
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockservice.answers import LockNotFound, Unauthenticated
from tidelock.lockservice.auth import TOKEN_HEADER
from tidelock.lockservice.resource import checked_id

_RENEWALS_PER_TTL = 4
_WAIT_S = 600
"""How long one request waits in the queue of the service; after that it queues again."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a lock is: the service, the store in it (empty: its only one), and the token."""

    origin: str
    store: str = ""
    token: str = field(default="", repr=False)

    @staticmethod
    def read(settings: Mapping[str, object]) -> Address:
        """Read the settings; the token may come from the environment instead.

        Raises: `ConfigInvalid`.
        """
        url = keys.SERVICE_URL.required(settings)
        origin = checked_origin(url, keys.SERVICE_URL.key)
        token = keys.SERVICE_TOKEN.value(settings) or os.environ.get("TIDELOCK_API_TOKEN", "")
        return Address(origin, keys.SERVICE_STORE.value(settings) or "", token)


@dataclass(slots=True)
class _Place:
    """A place in the queue of the service, kept by a request that waits there."""

    changed: threading.Event = field(default_factory=threading.Event)
    left: bool = False
    lock_id: str = ""
    failed: bool = False


class ServiceBackend:
    """One lock of one lock service over HTTP."""

    def __init__(
        self, address: Address, resource: str, terms: Terms, *, owner: str = "", clock: Clock
    ) -> None:
        """Connect to nothing yet."""
        self.uri = f"{address.origin}/v1.0-alpha2/lock/{quote(resource, safe='')}"
        self.terms = terms
        self._path = f"/v1.0-alpha2/lock/{quote(checked_id(resource), safe='')}"
        if address.store:
            self._path += f"?store={quote(address.store, safe='')}"
        self._owner = owner
        self._token = address.token
        timeout_ms = request_timeout_ms(terms)
        self._service = JsonService(
            address.origin, clock=clock, timeout_ms=timeout_ms, credentials=self._sign
        )
        self._queue = JsonService(
            address.origin, clock=clock, timeout_ms=(_WAIT_S + 10) * 1000, credentials=self._sign
        )
        self._places: dict[str, _Place] = {}

    def features(self) -> Features:
        """Return what the lock service can do."""
        return Features(
            blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True, watch=True
        )

    def take(self, attempt: Attempt) -> TakeReply:
        """Ask for the lock; when it is held, wait in the queue of the service from then on."""
        place = self._places.get(attempt.id)
        if place is not None and not place.lock_id and not place.failed:
            return Held(queued=True, changed=place.changed)
        if place is not None:
            del self._places[attempt.id]
            if place.lock_id:
                return self._confirmed(attempt, place.lock_id)
        said = self._tell("POST", self._wish(attempt) | {"immediate": True})
        if isinstance(said, Unclear):
            return said
        if said.ok:
            return Taken(_grant(attempt, said))
        if said.body.get("errorCode") == "ERR_RESOURCE_LOCKED":
            place = self._places[attempt.id] = _Place()
            start_thread("tidelock-queue", lambda: self._wait(attempt, place))
            return Held(queued=True, changed=place.changed)
        raise self._refused(said)

    def leave(self, attempt: Attempt) -> bool:
        """Call the request off, wherever it is."""
        place = self._places.pop(attempt.id, None)
        if place is not None:
            place.left = True
        said = self._tell("DELETE", {"requestID": attempt.id, "force": False})
        if isinstance(said, Unclear):
            raise StoreUnreachable(f"{self.uri}: {said.cause}", hint="try again")
        return said.ok

    def renew(self, grant: Grant) -> RenewReply:
        """Ask for one more TTL."""
        said = self._tell("PUT", {"lockID": grant.handle})
        if isinstance(said, Unclear):
            return said
        if said.ok:
            return Kept(grant)
        if said.status == 404:
            return Gone("the service says that the lock is over")
        raise self._refused(said)

    def release(self, grant: Grant) -> ReleaseReply:
        """Give the lock back."""
        said = self._tell("DELETE", {"lockID": grant.handle})
        if isinstance(said, Unclear):
            return said
        if said.ok:
            return Freed()
        if said.status == 404:
            return Gone("the service says that the lock is over")
        raise self._refused(said)

    def forsake(self, grant: Grant) -> None:
        """Leave it to expire: nothing keeps it alive but renewals."""

    def holder(self) -> Holder | None:
        """Ask who holds the lock."""
        said = self._tell("GET", None)
        if isinstance(said, Unclear):
            raise StoreUnreachable(f"{self.uri}: {said.cause}", hint="try again")
        if not said.ok:
            raise self._refused(said)
        if not said.body.get("locked"):
            return None
        return Holder(
            str(said.body.get("owner") or said.body.get("principal")),
            token=int(said.body["token"]),
            since_epoch_ms=int(said.body["since"]),
            waiters=int(said.body["waiters"]),
        )

    def break_lock(self) -> bool:
        """End the lock whoever holds it; the service must allow this client to."""
        said = self._tell("DELETE", {"force": True})
        if isinstance(said, Unclear):
            raise StoreUnreachable(f"{self.uri}: {said.cause}", hint="look before trying again")
        if said.ok or said.status == 404:
            return said.ok
        raise self._refused(said)

    def close(self) -> None:
        """Close the connections."""
        for place in self._places.values():
            place.left = True
        self._service.close()
        self._queue.close()

    def _confirmed(self, attempt: Attempt, lock_id: str) -> TakeReply:
        """L3: a grant that came while nobody looked is renewed first, and counted from there."""
        said = self._tell("PUT", {"lockID": lock_id})
        if isinstance(said, Unclear):
            return said
        return Taken(_grant(attempt, said)) if said.ok else Held()

    def _wait(self, attempt: Attempt, place: _Place) -> None:
        """Wait in the queue until the lock is granted, or nobody wants it any more."""
        wish = self._wish(attempt) | {"wait": f"{_WAIT_S}s"}
        try:
            while not place.left:
                said = self._queue.tell("POST", self._path, wish)
                if isinstance(said, Said) and said.ok:
                    place.lock_id = str(said.body["lockID"])
                    break
                if isinstance(said, Unclear) or said.status != 409:
                    place.failed = True
                    break
        except TidelockError:
            place.failed = True
        place.changed.set()

    def _wish(self, attempt: Attempt) -> dict[str, object]:
        return {
            "ttl": f"{self.terms.validity_ms}ms",
            "autoRenew": False,
            "requestID": attempt.id,
            "owner": self._owner,
        }

    def _tell(self, method: str, body: dict[str, object] | None) -> Said | Unclear:
        return self._service.tell(method, self._path, body)

    def _sign(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        del method, path, body
        if self._token:
            headers[TOKEN_HEADER] = self._token

    def _refused(self, said: Said) -> TidelockError:
        says = f"{self.uri}: the service answered {said.status}: {said.body.get('message', '')}"
        hint = str(said.body.get("hint", ""))
        match said.status:
            case 401:
                return Unauthenticated(says, hint=f"set {keys.SERVICE_TOKEN.key}")
            case 403:
                return PermissionDenied(says, hint=hint)
            case 404:
                return LockNotFound(says, hint=hint)
            case 400 | 405:
                return InvalidInput(says, hint=hint)
            case _:
                return Unavailable(says, hint=hint or "try again")


def _grant(attempt: Attempt, said: Said) -> Grant:
    return Grant(attempt, str(said.body["lockID"]), int(said.body["token"]))


class ServiceLockProvider(LeasedProvider):
    """`tidelock.lockservice.url` and a resource: a lock of a lock service.

    with closing(ServiceLockProvider.at("http://127.0.0.1:3500", "nightly")) as lock:
        if lock.try_lock(60_000):
            publish(lock.check())
            lock.unlock()
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """Read and check the settings; touch nothing.

        Raises: `ConfigInvalid`, `ResourceInvalid`.
        """
        ttl = keys.ttl_terms(settings)
        assert ttl.validity_ms is not None
        backend = ServiceBackend(
            Address.read(settings),
            keys.resource_name(settings),
            Terms(ttl.validity_ms, ttl.validity_ms // _RENEWALS_PER_TTL),
            clock=clock or SystemClock(),
        )
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread, clock=clock)

    @classmethod
    def at(
        cls, url: str, resource: str, *, token: str = "", store: str = "", ttl_ms: int = 30_000
    ) -> ServiceLockProvider:
        """Return the lock `resource` of the service at `url`."""
        settings: dict[str, object] = {
            keys.SERVICE_URL.key: url,
            keys.SERVICE_STORE.key: store,
            keys.RESOURCE.key: resource,
            keys.TTL_MS.key: ttl_ms,
        }
        if token:
            settings[keys.SERVICE_TOKEN.key] = token
        return cls(settings)
