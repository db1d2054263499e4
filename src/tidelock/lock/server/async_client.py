"""asyncio client of the lock service: many locks over one gRPC connection.

async with AsyncLockClient("127.0.0.1:50001") as client:
    async with client.lock("nightly") as held:
        await publish(held.token)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    AcquireTimeout,
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    PermissionDenied,
    TidelockError,
    Unavailable,
)
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.lease import margin_of
from tidelock.lock.server import grpc_messages
from tidelock.lock.server.auth import TOKEN_HEADER
from tidelock.lock.server.errors import (
    LockNotFound,
    Overloaded,
    RequestIdReused,
    ResourceLocked,
    Unauthenticated,
)
from tidelock.lock.server.grpc import LOCKS
from tidelock.lock.state import Standing

logger = logging.getLogger(__name__)

_RENEWALS_PER_TTL = 4
_RETRY_S = 0.2
_ERRORS: dict[str, type[TidelockError]] = {
    "ABORTED": ResourceLocked,
    "FAILED_PRECONDITION": RequestIdReused,
    "NOT_FOUND": LockNotFound,
    "INVALID_ARGUMENT": InvalidInput,
    "RESOURCE_EXHAUSTED": Overloaded,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
}


class AsyncLockClient:
    """A connection to a lock service."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        store: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """Connect on first use. `credentials` are for TLS."""
        self._address = address
        self._metadata = ((TOKEN_HEADER, token),) if token else ()
        self.store = store
        self._credentials = credentials
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        self._channel: Any = None

    async def __aenter__(self) -> Self:
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self._address)
        else:
            self._channel = grpc.aio.secure_channel(self._address, self._credentials)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel. Locks that are held expire."""
        await self._channel.close()

    def lock(
        self, resource: str, *, ttl_ms: int = 30_000, wait_s: float | None = None, owner: str = ""
    ) -> AsyncServiceLock:
        """Return the lock of a resource, not acquired yet; `wait_s` applies to `async with`."""
        return AsyncServiceLock(self, resource, ttl_ms, wait_s, owner)

    async def call(self, name: str, timeout_s: float | None, **fields: Any) -> Any:
        """Call a method of the service. Raises: `TidelockError`; `Unavailable` without reply."""
        method = grpc_messages.method(LOCKS, name)
        call = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        request = method.request(store_name=self.store, **fields)
        try:
            return await call(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise _translated(error) from error


@dataclass(slots=True)
class AsyncServiceLock:
    """A lock of a lock service, renewed by a task of the event loop.

    Guarantees: `state` is HELD only while the lease, counted from the sending of the last renewal
    that succeeded, has more than its margin left (L3). A loss is reported: `lost` is set, `check`
    raises, the callbacks of `on_lost` are called (L7).
    Does not guarantee: that a blocked event loop renews. Pass `token` to the systems that must
    reject a late writer.
    """

    client: AsyncLockClient
    resource: str
    ttl_ms: int
    wait_s: float | None = None
    owner: str = ""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    lost_cause: str = ""
    _lock_id: str = ""
    _token: int = 0
    _deadline_ms: int = 0
    _renewing: asyncio.Task[None] | None = None
    _callbacks: list[Callable[[str], None]] = field(default_factory=list)

    async def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock in the service's queue and return its token.

        Raises: `AcquireTimeout`; `Overloaded`, `PermissionDenied`, `InvalidInput`.
        """
        if self.state in (Standing.HELD, Standing.UNSURE):
            return self._token
        clock, request_id = self.client.clock, self.client.ids.uuid()
        until_ms = None if timeout_s is None else clock.now().monotonic_ms + timeout_s * 1000
        try:
            while True:
                left_ms = None
                if until_ms is not None:
                    left_ms = max(0, int(until_ms - clock.now().monotonic_ms))
                sent_ms = clock.now().monotonic_ms
                response = await self._try_acquire(request_id, left_ms)
                if response is not None:
                    break
                self._check_time(left_ms)
                await asyncio.sleep(_RETRY_S)
        except BaseException:
            # A lost reply may have been a grant, and only this client knows its request id.
            await asyncio.shield(self._cancel(request_id))
            raise
        self._lock_id, self._token = response.lock_id, response.token
        waited_ms = clock.now().monotonic_ms - sent_ms
        self.lost.clear()
        self.lost_cause = ""
        if waited_ms <= self.ttl_ms // _RENEWALS_PER_TTL:
            self._extend(sent_ms)
        else:
            # L3: after a long wait the time of the grant is unknown: count from a renewal.
            self._extend(clock.now().monotonic_ms)
            if not await self._renew():
                raise self._not_held()
        self._renewing = asyncio.create_task(self._renew_forever())
        return self._token

    async def release(self) -> None:
        """Release the lock.

        Raises: `HoldingLost` if it was lost before; `OutcomeUnknown` if there was no response.
        """
        if self._renewing is None:
            return
        renewing, self._renewing = self._renewing, None
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        if self.lost.is_set():
            raise self._not_held()
        lock_id, self._lock_id = self._lock_id, ""
        try:
            await self._call("Unlock", lock_id=lock_id)
        except LockNotFound as error:
            raise HoldingLost(
                f"the lock on {self.resource!r} was lost before it was released",
                hint="check the writes since then by their token",
            ) from error
        except Unavailable as error:
            raise OutcomeUnknown(
                f"the lock on {self.resource!r} may not have been released: {error}",
                hint="it expires after its TTL",
            ) from error

    @property
    def state(self) -> Standing:
        if self.lost.is_set():
            return Standing.LOST
        if not self._lock_id:
            return Standing.FREE
        left_ms = self._deadline_ms - self.client.clock.now().monotonic_ms
        if left_ms <= 0:
            return Standing.LOST
        return Standing.HELD if left_ms > self.ttl_ms // 2 else Standing.UNSURE

    @property
    def token(self) -> int:
        """The fencing token. Raises: `HoldingLost` if the lock is not held."""
        return self.check()

    def check(self) -> int:
        """Return the token if the lock is still held; raise `HoldingLost` if it is not.

        When it raises because the lock was lost, the callbacks of `on_lost` have returned.
        """
        if self.state is Standing.LOST and not self.lost.is_set():
            self._lose("its lease expired")
        if self.state not in (Standing.HELD, Standing.UNSURE):
            raise self._not_held()
        return self._token

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the cause, once, in the event loop, when the lock is lost."""
        self._callbacks.append(callback)

    async def __aenter__(self) -> Self:
        await self.acquire(self.wait_s)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Release. A loss is raised unless another error propagates."""
        try:
            await asyncio.shield(self.release())
        except TidelockError as failure:
            if error is None:
                raise
            logger.warning("%s", failure)

    async def _try_acquire(self, request_id: str, left_ms: int | None) -> Any:
        """Try once; None if refused or unanswered. The request id makes retries safe."""
        fields: dict[str, Any] = {
            "resource_id": self.resource,
            "ttl": grpc_messages.duration(self.ttl_ms),
            "request_id": request_id,
            "owner": self.owner,
            "no_auto_renew": True,
        }
        if left_ms == 0:
            fields["immediate"] = True
        elif left_ms is not None:
            fields["wait"] = grpc_messages.duration(left_ms)
        timeout_s = None if left_ms is None else left_ms / 1000 + self._timeout_s
        try:
            return await self.client.call("Lock", timeout_s, **fields)
        except (ResourceLocked, Unavailable):
            return None

    def _check_time(self, left_ms: int | None) -> None:
        if left_ms == 0:
            raise AcquireTimeout(
                f"{self.resource!r} was not acquired in time",
                hint="wait longer, or check its status",
            )

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self.ttl_ms / _RENEWALS_PER_TTL / 1000)
            if not await self._renew():
                return

    async def _renew(self) -> bool:
        """Renew, retrying until the lease expires; return whether the lock is still held."""
        clock = self.client.clock
        while True:
            sent_ms = clock.now().monotonic_ms
            if sent_ms >= self._deadline_ms:
                self._lose("its lease expired: the service did not answer in time")
                return False
            try:
                await self._call("Renew", lock_id=self._lock_id)
            except Unavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            except TidelockError as error:
                self._lose(error.message)
                return False
            if self.lost.is_set() or clock.now().monotonic_ms >= self._deadline_ms:
                # L11: a renewal that completes after the deadline does not count.
                self._lose("its lease expired during a renewal")
                return False
            self._extend(sent_ms)
            return True

    async def _cancel(self, request_id: str) -> None:
        with suppress(TidelockError):
            await self._call("Unlock", request_id=request_id)

    async def _call(self, name: str, **fields: str) -> None:
        await self.client.call(name, self._timeout_s, resource_id=self.resource, **fields)

    def _extend(self, sent_ms: int) -> None:
        self._deadline_ms = sent_ms + self.ttl_ms - margin_of(self.ttl_ms)

    def _lose(self, cause: str) -> None:
        if self.lost.is_set():
            return
        self.lost_cause = cause
        self.lost.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(cause)

    @property
    def _timeout_s(self) -> float:
        return max(1.0, self.ttl_ms / _RENEWALS_PER_TTL / 1000)

    def _not_held(self) -> HoldingLost:
        return HoldingLost(
            f"the lock on {self.resource!r} is not held: {self.lost_cause or 'never acquired'}",
            hint="stop the work that it protects, then acquire it again",
        )


def _translated(error: Any) -> TidelockError:
    name = error.code().name
    return _ERRORS.get(name, Unavailable)(f"the lock service answered {name}: {error.details()}")
