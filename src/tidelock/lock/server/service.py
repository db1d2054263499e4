"""The operations of the lock service, shared by HTTP and gRPC (V6).

alpha1 behaves exactly as in Dapr; alpha2 implements both options of the proposal.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidelock.core.errors import InvalidInput, ResourceInvalid, TidelockError
from tidelock.core.limits import STREAMS_MAX, STREAMS_PER_PRINCIPAL_MAX, TTL_MS_MAX
from tidelock.core.telemetry import Metrics
from tidelock.lock.server import errors
from tidelock.lock.server import messages as msg
from tidelock.lock.server.auth import Permission, Principal
from tidelock.lock.server.component import Component, LockRequest, LockResponse
from tidelock.lock.server.entries import KeepAliveMode
from tidelock.lock.server.errors import Overloaded, ResourceLocked
from tidelock.lock.server.resource import SEPARATOR, validate_id

logger = logging.getLogger(__name__)

STATUS_SUCCESS, STATUS_MISSING, STATUS_FOREIGN, STATUS_INTERNAL = range(4)
_ALPHA1_STATUSES: dict[type, int] = {
    msg.RequestDone: STATUS_SUCCESS,
    msg.NotLocked: STATUS_MISSING,
    msg.LockedByOther: STATUS_FOREIGN,
}


@dataclass(frozen=True, slots=True)
class LockOptions:
    """The options of an alpha2 lock request, not validated yet."""

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
    """The lock to reattach to, after its stream broke."""


@dataclass(slots=True)
class LockService:
    """All lock stores of one server: permissions, limits and validation of requests."""

    components: dict[str, Component]
    app_id: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    _streams: Counter[str] = field(default_factory=Counter)
    _warned: set[str] = field(default_factory=set)

    async def try_lock_alpha1(
        self, principal: Principal, store: str, resource_id: str, owner: str, expiry_s: int
    ) -> bool:
        """Dapr's TryLock: a lock with an owner and an expiry. Checks are in Dapr's order."""
        self.warn_once(
            "alpha1", "the alpha1 lock API is deprecated: use /v1.0-alpha2/lock, see the docs"
        )
        if expiry_s <= 0:
            raise errors.malformed("ExpiryInSeconds is not positive", store)
        component = self._alpha1_component(store, resource_id, owner)
        if expiry_s * 1000 > TTL_MS_MAX:
            raise InvalidInput(
                f"ExpiryInSeconds: expected at most {TTL_MS_MAX // 1000}, got {expiry_s}"
            )
        principal.check(Permission.ACQUIRE)
        key = self._alpha1_key(component, principal, resource_id, errors.try_lock_failed)
        request = LockRequest(
            key,
            principal.name,
            ttl_ms=expiry_s * 1000,
            mode=KeepAliveMode.TIMED,
            owner=validate_id(owner, "lock owner"),
        )
        try:
            await component.try_lock(request)
        except ResourceLocked:
            return False
        except Overloaded:
            raise
        except TidelockError as error:
            raise errors.try_lock_failed(error) from error
        return True

    async def unlock_alpha1(
        self, principal: Principal, store: str, resource_id: str, owner: str
    ) -> int:
        """Dapr's Unlock: 0 released, 1 not locked, 2 locked by another owner."""
        component = self._alpha1_component(store, resource_id, owner)
        principal.check(Permission.RELEASE)
        key = self._alpha1_key(component, principal, resource_id, errors.unlock_failed)
        try:
            reply = await component.unlock_owned(key, principal.name, owner)
        except TidelockError as error:
            raise errors.unlock_failed(error) from error
        return _ALPHA1_STATUSES.get(type(reply), STATUS_INTERNAL)

    async def lock(self, principal: Principal, options: LockOptions) -> LockResponse:
        """Option 1: a lock with an id, held until it is released."""
        component, request = self.prepare(principal, options, stream=False)
        if options.immediate:
            return await component.try_lock(request)
        with self.open_stream(principal):
            return await component.lock(request, options.wait_ms)

    async def unlock(
        self, principal: Principal, store: str, resource_id: str, lock_id: str, request_id: str = ""
    ) -> None:
        """Release a lock by its id, or cancel a request by its request id."""
        component, key = self._target(principal, Permission.RELEASE, store, resource_id)
        if request_id:
            validate_id(request_id, "request id")
        else:
            validate_id(lock_id, "lock ID")
        await component.unlock(key, principal.name, lock_id, request_id=request_id)

    async def force_unlock(self, principal: Principal, store: str, resource_id: str) -> None:
        """Release a lock that any principal holds."""
        component, key = self._target(principal, Permission.FORCE, store, resource_id)
        await component.unlock(key, principal.name, "", force=True)

    async def renew(
        self, principal: Principal, store: str, resource_id: str, lock_id: str, ttl_ms: int
    ) -> LockResponse:
        """Extend a lock by one TTL from now."""
        component, key = self._target(principal, Permission.ACQUIRE, store, resource_id)
        validate_id(lock_id, "lock ID")
        return await component.renew_lock(key, principal.name, lock_id, ttl_ms)

    async def status(
        self, principal: Principal, store: str, resource_id: str
    ) -> msg.ResourceStatus:
        component, key = self._target(principal, Permission.READ, store, resource_id)
        return await component.status(key)

    def component(self, store: str) -> Component:
        """Return a lock store by name; without a name the only one, or the one named `default`."""
        if not self.components:
            raise errors.not_configured()
        if not store:
            if len(self.components) == 1:
                return next(iter(self.components.values()))
            store = "default"
        return self._named_component(store)

    def _named_component(self, store: str) -> Component:
        found = self.components.get(store)
        if found is None:
            raise errors.store_not_found(store)
        return found

    def prepare(
        self, principal: Principal, options: LockOptions, *, stream: bool
    ) -> tuple[Component, LockRequest]:
        """Validate the options; return the lock store and the request to it."""
        component = self.component(options.store)
        principal.check(Permission.ACQUIRE)
        if options.wait_ms is not None and options.wait_ms < 0:
            raise InvalidInput(f"wait: expected 0 or more, got {options.wait_ms} ms")
        if options.linger_ms < 0:
            raise InvalidInput(f"linger: expected 0 or more, got {options.linger_ms} ms")
        mode = KeepAliveMode.AUTO_RENEWED if options.auto_renew else KeepAliveMode.TIMED
        request = LockRequest(
            self.key(component, principal, options.resource_id),
            principal.name,
            ttl_ms=component.validate_ttl(options.ttl_ms),
            mode=KeepAliveMode.STREAM if stream else mode,
            owner=validate_id(options.owner, "owner") if options.owner else "",
            request_id=validate_id(options.request_id, "request id") if options.request_id else "",
            linger_ms=options.linger_ms if stream else 0,
        )
        return component, request

    def key(self, component: Component, principal: Principal, resource_id: str) -> str:
        validate_id(resource_id)
        return component.prefix.key(
            resource_id, namespace=principal.namespace, app_id=self.app_id, store=component.name
        )

    def _target(
        self, principal: Principal, permission: Permission, store: str, resource_id: str
    ) -> tuple[Component, str]:
        """Return the lock store and the key of a resource that `principal` may act on."""
        component = self.component(store)
        principal.check(permission)
        return component, self.key(component, principal, resource_id)

    @contextmanager
    def open_stream(self, principal: Principal) -> Iterator[None]:
        """Count a waiting request or stream. V7: refuse it before anything is allocated."""
        if self._streams.total() >= STREAMS_MAX:
            raise Overloaded(
                f"a limit is reached: {STREAMS_MAX} streams are open",
                hint="try again later",
                retry_after_ms=1_000,
            )
        if self._streams[principal.name] >= STREAMS_PER_PRINCIPAL_MAX:
            raise Overloaded(
                f"a limit is reached: {STREAMS_PER_PRINCIPAL_MAX} streams by {principal.name}",
                hint="close streams that are not needed, or try again later",
                retry_after_ms=1_000,
            )
        self._streams[principal.name] += 1
        try:
            yield
        finally:
            self._streams[principal.name] -= 1
            if not self._streams[principal.name]:
                del self._streams[principal.name]

    async def unavailable_stores(self) -> dict[str, str]:
        """Return the cause for each lock store that cannot serve; "" stands for all of them."""
        if self.draining:
            return {"": "the lock service is shutting down"}
        stores = self.components.values()
        causes = await asyncio.gather(*(component.shard.outage_cause() for component in stores))
        return {store.name: cause for store, cause in zip(stores, causes, strict=True) if cause}

    @property
    def streams(self) -> int:
        return self._streams.total()

    def warn_once(self, what: str, message: str) -> None:
        """Log a warning the first time it applies."""
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s", message)

    def _alpha1_component(self, store: str, resource_id: str, owner: str) -> Component:
        if not self.components:
            raise errors.not_configured()
        if not resource_id:
            raise errors.malformed("ResourceId is empty", store)
        if not owner:
            raise errors.malformed("LockOwner is empty", store)
        return self._named_component(store)

    def _alpha1_key(
        self, component: Component, principal: Principal, resource_id: str, failed: errors.Failure
    ) -> str:
        try:
            return self.key(component, principal, resource_id)
        except ResourceInvalid as error:
            if SEPARATOR not in resource_id:
                raise
            # V9: Dapr's code and message, with the status of an invalid request.
            raise failed(error).as_invalid_argument() from error
