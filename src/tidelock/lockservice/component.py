"""A lock component: the interface of the Dapr proposal, over a journal and perhaps a backend.

`lock` waits, `try_lock` does not, `renew_lock` extends, `unlock` ends, also by force. Lock ids are
made here. The errors are `ResourceLocked` and `LockNotFound`, and nothing else means these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import assert_never

from tidelock.base.errors import AcquireTimeout, InvalidInput, TidelockError, Unavailable
from tidelock.base.limits import TTL_MS_MAX, TTL_MS_MIN, WAIT_MS_MAX
from tidelock.lock.provider import Features
from tidelock.lockservice import asking as a
from tidelock.lockservice.answers import (
    LockNotFound,
    Overloaded,
    RequestSpent,
    ResourceLocked,
)
from tidelock.lockservice.cell import Asked, Cell, Told
from tidelock.lockservice.entries import Entry, Granted, Mode
from tidelock.lockservice.resource import SEPARATOR, KeyPrefix

REQUEST_TIMEOUT_S = 30.0
"""How long a request that does not wait for a lock may take: the store is away when it is over."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A request for a lock, by `lock` and `try_lock`; `ttl_ms` 0 is the component's default."""

    key: str
    principal: str
    ttl_ms: int = 0
    mode: Mode = Mode.KEPT
    owner: str = ""
    request_id: str = ""
    linger_ms: int = 0


@dataclass(frozen=True, slots=True)
class LockResponse:
    """A grant as its holder sees it."""

    lock_id: str
    token: int
    ttl_ms: int
    since_epoch_ms: int


@dataclass(slots=True)
class Component:
    """One lock store by name."""

    name: str
    type: str
    cell: Cell
    prefix: KeyPrefix
    ttl_ms: int

    def features(self) -> Features:
        """Return what this component can do; the queue and the streams are the service's own."""
        backend = self.cell.gate.features() if self.cell.gate is not None else None
        return Features(
            blocking_wait=True,
            fencing_token=backend.fencing_token if backend else True,
            fair_queue=True,
            force_release=backend.force_release if backend else True,
            watch=True,
        )

    async def try_lock(self, request: LockRequest) -> LockResponse:
        """Acquire the lock now.

        Raises: `ResourceLocked`, `Overloaded`, `RequestSpent`, `Unavailable`.
        """
        verdict = await self._soon(self._ask(request, immediate=True, handle=self.cell.handle()))
        return self._granted(verdict)

    async def lock(self, request: LockRequest, wait_ms: int | None = None) -> LockResponse:
        """Acquire the lock, waiting for it: for `wait_ms`, or as long as anybody may wait.

        Raises: `AcquireTimeout`, and what `try_lock` raises except `ResourceLocked`.
        """
        wait_ms = WAIT_MS_MAX if wait_ms is None else min(wait_ms, WAIT_MS_MAX)
        ask = self._ask(request, immediate=False, handle=self.cell.handle())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return self._granted(await self.cell.ask(ask))
        except TimeoutError:
            raise self.not_in_time(wait_ms) from None

    def not_in_time(self, wait_ms: int) -> TidelockError:
        """Return the error of a wait that is over: held by others, or no answer of the backend."""
        if self.cell.outage:
            return _no_answer(self.cell.outage)
        return AcquireTimeout(
            f"the resource was not free within {wait_ms / 1000:g} s", hint="wait longer"
        )

    async def stream(self, request: LockRequest, handle: int, *, immediate: bool) -> LockResponse:
        """Acquire the lock for a stream; `Cell.listen` has been told of `handle` before."""
        return self._granted(
            await self.cell.ask(self._ask(request, immediate=immediate, handle=handle))
        )

    async def attach(self, key: str, principal: str, lock_id: str, handle: int) -> LockResponse:
        """Take a lock on again after its stream broke.

        Raises: `LockNotFound` when it is over.
        """
        return self._granted(await self._soon(a.Attach(handle, key, principal, lock_id)))

    async def renew_lock(
        self, key: str, principal: str, lock_id: str, ttl_ms: int = 0
    ) -> LockResponse:
        """Extend a lock by one TTL from now.

        Raises: `LockNotFound`.
        """
        ttl_ms = self.checked_ttl(ttl_ms) if ttl_ms else 0
        event = a.Renew(self.cell.handle(), key, principal, lock_id, ttl_ms)
        return self._granted(await self._soon(event))

    async def unlock(
        self,
        key: str,
        principal: str,
        lock_id: str,
        *,
        request_id: str = "",
        force: bool = False,
    ) -> None:
        """Release a lock by its id or its request; with `force` whoever holds it.

        Raises: `LockNotFound`.
        """
        handle = self.cell.handle()
        event: Asked = (
            a.Force(handle, key, principal)
            if force
            else a.Unlock(handle, key, principal, lock_id=lock_id, request_id=request_id)
        )
        verdict = await self._soon(event)
        if not isinstance(verdict, a.Done):
            raise _not_found()

    async def unlock_owned(self, key: str, principal: str, owner: str) -> a.Verdict:
        """Release a lock by the owner that took it, as alpha1 does; return the plain verdict."""
        return await self._soon(a.Unlock(self.cell.handle(), key, principal, owner=owner))

    async def look(self, key: str) -> a.Seen:
        """Return who holds a resource, and how many wait."""
        verdict = await self._soon(a.Look(self.cell.handle(), key))
        assert isinstance(verdict, a.Seen)
        return verdict

    def follow(self, after: int) -> AsyncIterator[Entry]:
        """Yield every entry after `after`, for ever."""
        return self.cell.follow(after)

    def listen(self, handle: int, told: Told) -> None:
        """Call `told` when the lock that the stream `handle` keeps is over."""
        self.cell.listen(handle, told)

    def checked_ttl(self, ttl_ms: int) -> int:
        """V3: return the TTL of a grant, the default for 0 or less.

        Raises: `InvalidInput` outside the bounds.
        """
        chosen = ttl_ms if ttl_ms > 0 else self.ttl_ms
        if not TTL_MS_MIN <= chosen <= TTL_MS_MAX:
            raise InvalidInput(
                f"a TTL of {chosen} ms is outside {TTL_MS_MIN} to {TTL_MS_MAX} ms",
                hint="renewals, not a long TTL, make a holding last",
            )
        return chosen

    def key(self, resource_id: str, *, namespace: str, app_id: str) -> str:
        """Return the key of a resource in this component."""
        return self.prefix.key(resource_id, namespace=namespace, app_id=app_id, store=self.name)

    def _ask(self, request: LockRequest, *, immediate: bool, handle: int) -> a.Ask:
        ttl_ms = self.checked_ttl(request.ttl_ms)
        return a.Ask(
            handle=handle,
            key=request.key,
            principal=request.principal,
            ttl_ms=ttl_ms,
            mode=request.mode,
            owner=request.owner,
            immediate=immediate,
            linger_ms=min(request.linger_ms, ttl_ms),
            request_id=request.request_id,
        )

    async def _soon(self, event: Asked) -> a.Verdict:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self.cell.ask(event)
        except TimeoutError:
            raise Unavailable(
                f"{self.name}: the store has not answered for {REQUEST_TIMEOUT_S:g} s",
                hint="ask again; what was asked may still happen and is then undone",
            ) from None

    def _granted(self, verdict: a.Verdict) -> LockResponse:
        match verdict:
            case a.Yes(granted, since_epoch_ms):
                return LockResponse(granted.lock_id, granted.token, granted.ttl_ms, since_epoch_ms)
            case a.Locked(None) if self.cell.outage:
                # Somebody is before this one in the queue, and nobody knows who holds the lock.
                raise _no_answer(self.cell.outage)
            case a.Locked(holder):
                raise ResourceLocked("the resource is already locked", hint=_who(holder))
            case a.Missing() | a.Foreign():
                raise _not_found()
            case a.Spent():
                raise RequestSpent(
                    "this request id was used for a lock that is over", hint="use another one"
                )
            case a.Full(what):
                raise Overloaded(f"too many: {what}", hint="ask again later", retry_after_ms=1_000)
            case a.Failed(cause):
                raise _no_answer(cause)
            case a.Done() | a.Seen():
                raise AssertionError(verdict)
            case _:
                assert_never(verdict)


def resource_of(key: str) -> str:
    """Return the resource id that a key stands for."""
    return key.rpartition(SEPARATOR)[2]


def _no_answer(cause: str) -> Unavailable:
    return Unavailable(f"the backend did not answer: {cause}", hint="ask again later")


def _who(holder: Granted | None) -> str:
    return f"held under token {holder.token}" if holder else "held by another program"


def _not_found() -> LockNotFound:
    return LockNotFound(
        "the resource is locked with a different lock ID or the lock does not exist",
        hint="it was released, forced or has expired; acquire it again",
    )
