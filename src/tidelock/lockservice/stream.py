"""Long-lived streams: a lock that lives as long as its stream, and the events of a component.

Both transports send what these generators yield. Closing a generator is the client's disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from tidelock.base.errors import HoldingLost, NotFound
from tidelock.lockservice.auth import Permission, Principal
from tidelock.lockservice.component import Component, LockRequest, LockResponse
from tidelock.lockservice.entries import Ended, Entry, Granted, Opened, Retimed
from tidelock.lockservice.resource import SEPARATOR, checked_id
from tidelock.lockservice.service import LockService, Wish

PING_MS_MAX = 5_000
"""A client that hears nothing for a few of these knows that its stream is dead."""

_PINGS_PER_TTL = 3
_FIRST_PING_S = 0.1


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is the client's, until the stream ends or says otherwise."""

    response: LockResponse


@dataclass(frozen=True, slots=True)
class Ping:
    """The stream is alive and, once the lock is acquired, so is the lock."""


@dataclass(frozen=True, slots=True)
class Happened:
    """One entry of the journal, without what only the holder may know."""

    cursor: int
    at_epoch_ms: int
    event: str
    resource: str = ""
    token: int = 0
    owner: str = ""
    how: str = ""
    cause: str = ""


async def lock_stream(
    service: LockService, principal: Principal, wish: Wish
) -> AsyncGenerator[Acquired | Ping, None]:
    """Option 2: acquire, then yield pings while the lock is held; raise when it is lost.

    Raises: what `LockService.lock` raises; `HoldingLost` with the cause.
    """
    component, request = service.prepared(principal, wish, stream=True)
    handle = component.cell.handle()
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def told(cause: str) -> None:
        if not lost.done():
            lost.set_result(cause)

    with service.waiting(principal):
        component.listen(handle, told)
        ask = asyncio.ensure_future(_acquire(component, request, wish, handle))
        try:
            async for ping in _pings_until(ask, component, request.ttl_ms, wish.wait_ms):
                yield ping
            response = ask.result()
            yield Acquired(response)
            while True:
                done, _ = await asyncio.wait({lost}, timeout=_ping_s(response.ttl_ms))
                if done:
                    raise HoldingLost(
                        f"the lock on {wish.resource_id!r} is lost: {lost.result()}",
                        hint="stop what it protects; acquire it again",
                    )
                if component.cell.is_sure(response.ttl_ms):
                    # Silence, not a ping, while nobody can vouch for the lock.
                    yield Ping()
        finally:
            ask.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await ask
            component.cell.leave(handle)


async def _acquire(
    component: Component, request: LockRequest, wish: Wish, handle: int
) -> LockResponse:
    if wish.lock_id:
        lock_id = checked_id(wish.lock_id, "lock ID")
        return await component.attach(request.key, request.principal, lock_id, handle)
    return await component.stream(request, handle, immediate=wish.immediate)


async def _pings_until(
    ask: asyncio.Future[LockResponse], component: Component, ttl_ms: int, wait_ms: int | None
) -> AsyncGenerator[Ping, None]:
    """Yield pings until `ask` is done: a waiting client that died must be noticed, too."""
    loop = asyncio.get_running_loop()
    ends_at = None if wait_ms is None else loop.time() + wait_ms / 1000
    # The first comes soon, so that the client knows that it waits and not that nothing answers.
    pause_s = _FIRST_PING_S
    while True:
        left_s = pause_s if ends_at is None else min(pause_s, max(0.0, ends_at - loop.time()))
        done, _ = await asyncio.wait({ask}, timeout=left_s)
        if done:
            return
        pause_s = _ping_s(ttl_ms)
        if ends_at is not None and loop.time() >= ends_at:
            raise component.not_in_time(wait_ms or 0)
        yield Ping()


def _ping_s(ttl_ms: int) -> float:
    return min(PING_MS_MAX, ttl_ms // _PINGS_PER_TTL) / 1000


async def event_stream(
    service: LockService,
    principal: Principal,
    *,
    store: str,
    after: int | None,
    resource_id: str = "",
) -> AsyncGenerator[Happened | Ping, None]:
    """Yield what happens in the principal's namespace after cursor `after` (None: from now).

    V5: in order, each entry once, none left out, resumable by the cursor of the last one seen.
    Raises: `NotFound` when `after` is older than what is kept, or from another journal.
    """
    component = service.component(store)
    principal.check(Permission.READ)
    wanted = service.key(component, principal, resource_id) if resource_id else ""
    inside = f"{principal.namespace}{SEPARATOR}lock" if principal.namespace else "lock"
    cursor = component.cell.durable if after is None else after
    with service.waiting(principal):
        entries = component.follow(cursor)
        step: asyncio.Future[Entry] = asyncio.ensure_future(anext(entries))
        try:
            while True:
                done, _ = await asyncio.wait({step}, timeout=PING_MS_MAX / 1000)
                if not done:
                    yield Ping()
                    continue
                entry = step.result()
                step = asyncio.ensure_future(anext(entries))
                shown = _shown(entry, inside + SEPARATOR, wanted)
                if shown is not None:
                    yield shown
        except LookupError:
            raise NotFound(
                f"the events after {cursor} are not kept any more",
                hint=f"start with after={component.cell.oldest - 1}, or read the audit file",
            ) from None
        finally:
            step.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await step


def _shown(entry: Entry, inside: str, wanted: str) -> Happened | None:
    """Return an entry as the principal may see it; None if it is none of its business (V8)."""
    decision = entry.decision
    if isinstance(decision, Opened):
        return Happened(entry.number, entry.at_epoch_ms, "opened") if not wanted else None
    if not decision.key.startswith(inside) or (wanted and decision.key != wanted):
        return None
    resource = decision.key.rpartition(SEPARATOR)[2]
    match decision:
        case Granted():
            return Happened(
                entry.number,
                entry.at_epoch_ms,
                "granted",
                resource,
                decision.token,
                owner=decision.owner,
            )
        case Retimed():
            return Happened(entry.number, entry.at_epoch_ms, "retimed", resource)
        case Ended():
            return Happened(
                entry.number,
                entry.at_epoch_ms,
                "ended",
                resource,
                decision.token,
                how=decision.how.value,
                cause=decision.cause,
            )
