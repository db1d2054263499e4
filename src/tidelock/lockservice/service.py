"""The API of the lock service, the same for HTTP and gRPC (V6): check, decide, answer.

alpha1 is Dapr's, word for word; alpha2 is the proposal's, with both of its options.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidelock.base.errors import InvalidInput, ResourceInvalid, TidelockError
from tidelock.base.limits import STREAMS_MAX, STREAMS_PER_PRINCIPAL_MAX, TTL_MS_MAX
from tidelock.base.metrics import Metrics
from tidelock.lockservice import answers
from tidelock.lockservice import asking as a
from tidelock.lockservice.answers import Overloaded, ResourceLocked
from tidelock.lockservice.auth import Permission, Principal
from tidelock.lockservice.component import Component, LockRequest, LockResponse
from tidelock.lockservice.entries import Mode
from tidelock.lockservice.resource import SEPARATOR, checked_id

logger = logging.getLogger(__name__)

STATUS_SUCCESS, STATUS_MISSING, STATUS_FOREIGN, STATUS_INTERNAL = range(4)


@dataclass(frozen=True, slots=True)
class Wish:
    """A lock as an alpha2 client asks for it, unchecked."""

    resource_id: str
    store: str = ""
    immediate: bool = False
    ttl_ms: int = 0
    wait_ms: int | None = None
    request_id: str = ""
    owner: str = ""
    auto_renew: bool = True
    linger_ms: int = 0
    lock_id: str = ""
    """Of a lock whose stream broke, to be taken on again."""


@dataclass(slots=True)
class LockService:
    """All components of one server, and the rules that hold for every one of them."""

    components: dict[str, Component]
    app_id: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    _streams: Counter[str] = field(default_factory=Counter)
    _warned: set[str] = field(default_factory=set)

    async def try_lock_alpha1(
        self, principal: Principal, store: str, resource_id: str, owner: str, expiry_s: int
    ) -> bool:
        """Dapr's TryLock: a lock for a time, under an owner's name; its order of checks."""
        self.warn_once(
            "alpha1", "the alpha1 lock API is deprecated: use /v1.0-alpha2/lock, see the docs"
        )
        if expiry_s <= 0:
            raise answers.expiry_not_positive(store)
        component = self._alpha1_component(store, resource_id, owner)
        if expiry_s * 1000 > TTL_MS_MAX:
            raise InvalidInput(f"ExpiryInSeconds is more than {TTL_MS_MAX // 1000}")
        principal.check(Permission.ACQUIRE)
        key = self._alpha1_key(component, principal, resource_id, answers.try_lock_failed)
        request = LockRequest(
            key,
            principal.name,
            ttl_ms=expiry_s * 1000,
            mode=Mode.TIMED,
            owner=checked_id(owner, "lock owner"),
        )
        try:
            await component.try_lock(request)
        except ResourceLocked:
            return False
        except Overloaded:
            raise
        except TidelockError as error:
            raise answers.try_lock_failed(error) from error
        return True

    async def unlock_alpha1(
        self, principal: Principal, store: str, resource_id: str, owner: str
    ) -> int:
        """Dapr's Unlock: 0 done, 1 there is no lock, 2 it belongs to others."""
        component = self._alpha1_component(store, resource_id, owner)
        principal.check(Permission.RELEASE)
        key = self._alpha1_key(component, principal, resource_id, answers.unlock_failed)
        try:
            verdict = await component.unlock_owned(key, principal.name, owner)
        except TidelockError as error:
            raise answers.unlock_failed(error) from error
        match verdict:
            case a.Done():
                return STATUS_SUCCESS
            case a.Missing():
                return STATUS_MISSING
            case a.Foreign():
                return STATUS_FOREIGN
            case _:
                return STATUS_INTERNAL

    async def lock(self, principal: Principal, wish: Wish) -> LockResponse:
        """Option 1: a lock with an id, which the service keeps until it is given back."""
        component, request = self.prepared(principal, wish, stream=False)
        if wish.immediate:
            return await component.try_lock(request)
        with self.waiting(principal):
            return await component.lock(request, wish.wait_ms)

    async def unlock(
        self,
        principal: Principal,
        store: str,
        resource_id: str,
        lock_id: str,
        request_id: str = "",
    ) -> None:
        """Give a lock back by its id, or call off the request that asked for it."""
        component = self.component(store)
        principal.check(Permission.RELEASE)
        key = self.key(component, principal, resource_id)
        if request_id:
            checked_id(request_id, "request id")
        else:
            checked_id(lock_id, "lock ID")
        await component.unlock(key, principal.name, lock_id, request_id=request_id)

    async def force_unlock(self, principal: Principal, store: str, resource_id: str) -> None:
        """End a lock whoever holds it."""
        component = self.component(store)
        principal.check(Permission.FORCE)
        key = self.key(component, principal, resource_id)
        await component.unlock(key, principal.name, "", force=True)

    async def renew(
        self, principal: Principal, store: str, resource_id: str, lock_id: str, ttl_ms: int
    ) -> LockResponse:
        """Extend a lock by one TTL from now."""
        component = self.component(store)
        principal.check(Permission.ACQUIRE)
        key = self.key(component, principal, resource_id)
        return await component.renew_lock(
            key, principal.name, checked_id(lock_id, "lock ID"), ttl_ms
        )

    async def status(self, principal: Principal, store: str, resource_id: str) -> a.Seen:
        """Tell who holds a resource, since when, until when, and how many wait."""
        component = self.component(store)
        principal.check(Permission.READ)
        return await component.look(self.key(component, principal, resource_id))

    def component(self, store: str) -> Component:
        """Return the component of that name; with no name the only one, or the one `default`."""
        if not self.components:
            raise answers.not_configured()
        if not store:
            if len(self.components) == 1:
                return next(iter(self.components.values()))
            store = "default"
        found = self.components.get(store)
        if found is None:
            raise answers.store_not_found(store)
        return found

    def prepared(
        self, principal: Principal, wish: Wish, *, stream: bool
    ) -> tuple[Component, LockRequest]:
        """Return a checked wish as a request to its component."""
        component = self.component(wish.store)
        principal.check(Permission.ACQUIRE)
        if wish.wait_ms is not None and wish.wait_ms < 0:
            raise InvalidInput(f"a wait of {wish.wait_ms} ms cannot be")
        if wish.linger_ms < 0:
            raise InvalidInput(f"a linger of {wish.linger_ms} ms cannot be")
        mode = Mode.STREAM if stream else Mode.KEPT if wish.auto_renew else Mode.TIMED
        request = LockRequest(
            self.key(component, principal, wish.resource_id),
            principal.name,
            ttl_ms=component.checked_ttl(wish.ttl_ms),
            mode=mode,
            owner=checked_id(wish.owner, "owner") if wish.owner else "",
            request_id=checked_id(wish.request_id, "request id") if wish.request_id else "",
            linger_ms=wish.linger_ms if stream else 0,
        )
        return component, request

    def key(self, component: Component, principal: Principal, resource_id: str) -> str:
        """Return the key of a resource, seen from a principal's namespace."""
        checked_id(resource_id)
        return component.key(resource_id, namespace=principal.namespace, app_id=self.app_id)

    @contextmanager
    def waiting(self, principal: Principal) -> Iterator[None]:
        """Count a long request or stream; V7: refuse before anything is allocated for it."""
        if self._streams.total() >= STREAMS_MAX:
            raise Overloaded(f"{STREAMS_MAX} streams are open", retry_after_ms=1_000)
        if self._streams[principal.name] >= STREAMS_PER_PRINCIPAL_MAX:
            raise Overloaded(
                f"{principal.name} has {STREAMS_PER_PRINCIPAL_MAX} streams open",
                retry_after_ms=1_000,
            )
        self._streams[principal.name] += 1
        try:
            yield
        finally:
            self._streams[principal.name] -= 1
            if not self._streams[principal.name]:
                del self._streams[principal.name]

    async def troubles(self) -> dict[str, str]:
        """Return each lock store that cannot serve and why; under "" why none of them can."""
        if self.draining:
            return {"": "the lock service is shutting down"}
        stores = self.components.values()
        causes = await asyncio.gather(*(component.cell.trouble() for component in stores))
        return {store.name: cause for store, cause in zip(stores, causes, strict=True) if cause}

    @property
    def streams(self) -> int:
        """How many long requests and streams are open."""
        return self._streams.total()

    def warn_once(self, what: str, message: str) -> None:
        """Log a warning the first time it applies."""
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s", message)

    def _alpha1_component(self, store: str, resource_id: str, owner: str) -> Component:
        if not self.components:
            raise answers.not_configured()
        if not resource_id:
            raise answers.id_empty(store)
        if not owner:
            raise answers.owner_empty(store)
        found = self.components.get(store)
        if found is None:
            raise answers.store_not_found(store)
        return found

    def _alpha1_key(
        self,
        component: Component,
        principal: Principal,
        resource_id: str,
        failed: answers.Failure,
    ) -> str:
        try:
            return self.key(component, principal, resource_id)
        except ResourceInvalid as error:
            if SEPARATOR not in resource_id:
                raise
            # Dapr's code and words; the status says whose mistake it is (V9).
            raise failed(error).because_of_the_caller() from error
