"""Streams: a lock that is held while its stream is open, and the events of a lock store.

HTTP and gRPC send what these generators yield, and close them when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tidelock.core.errors import HoldingLost, NotFound
from tidelock.lock.server.auth import Permission, Principal
from tidelock.lock.server.component import Component, LockRequest, LockResponse
from tidelock.lock.server.entries import (
    GrantEnded,
    JournalEntry,
    JournalOpened,
    LockGranted,
    TtlChanged,
)
from tidelock.lock.server.resource import SEPARATOR, validate_id
from tidelock.lock.server.service import LockOptions, LockService

PING_MS_MAX = 5_000
"""A client that receives nothing for several of these treats its stream as dead."""

_PINGS_PER_TTL = 3
_FIRST_PING_S = 0.1


@dataclass(frozen=True, slots=True)
class Acquired:
    """The client holds the lock until the stream ends."""

    response: LockResponse


@dataclass(frozen=True, slots=True)
class Ping:
    """The stream is alive; once the lock is acquired, it is still held."""


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """A journal entry, without the fields that only the holder may see."""

    cursor: int
    at_epoch_ms: int
    event: str
    resource: str = ""
    token: int = 0
    owner: str = ""
    how: str = ""
    cause: str = ""


async def lock_stream(
    service: LockService, principal: Principal, options: LockOptions
) -> AsyncGenerator[Acquired | Ping, None]:
    """Option 2: acquire, then yield pings while the lock is held; raise if it is lost.

    Raises: what `LockService.lock` raises; `HoldingLost` with the cause.
    """
    component, request = service.prepare(principal, options, stream=True)
    handle = component.shard.handle()
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_lost(cause: str) -> None:
        if not lost.done():
            lost.set_result(cause)

    with service.open_stream(principal):
        component.shard.listen(handle, on_lost)
        acquiring = asyncio.ensure_future(_acquire(component, request, options, handle))
        try:
            async for ping in _pings_until(acquiring, component, request.ttl_ms, options.wait_ms):
                yield ping
            response = acquiring.result()
            yield Acquired(response)
            while True:
                done, _ = await asyncio.wait({lost}, timeout=_ping_s(response.ttl_ms))
                if done:
                    raise HoldingLost(
                        f"the lock on {options.resource_id!r} was lost: {lost.result()}",
                        hint="stop the work that it protects, then acquire it again",
                    )
                if component.shard.holds_lease(response.ttl_ms):
                    # No ping while this instance cannot be sure that it still leads.
                    yield Ping()
        finally:
            acquiring.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await acquiring
            component.shard.leave(handle)


async def _acquire(
    component: Component, request: LockRequest, options: LockOptions, handle: int
) -> LockResponse:
    if options.lock_id:
        lock_id = validate_id(options.lock_id, "lock ID")
        return await component.attach(request.key, request.principal, lock_id, handle)
    return await component.stream(request, handle, immediate=options.immediate)


async def _pings_until(
    acquiring: asyncio.Future[LockResponse], component: Component, ttl_ms: int, wait_ms: int | None
) -> AsyncGenerator[Ping, None]:
    """Yield pings until `acquiring` is done, so that a dead waiting client is noticed."""
    loop = asyncio.get_running_loop()
    ends_at = None if wait_ms is None else loop.time() + wait_ms / 1000
    # The first ping comes early: it tells the client that it is in the queue.
    pause_s = _FIRST_PING_S
    while True:
        left_s = pause_s if ends_at is None else min(pause_s, max(0.0, ends_at - loop.time()))
        done, _ = await asyncio.wait({acquiring}, timeout=left_s)
        if done:
            return
        pause_s = _ping_s(ttl_ms)
        if ends_at is not None and loop.time() >= ends_at:
            raise component.timeout_error(wait_ms or 0)
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
) -> AsyncGenerator[StreamedEvent | Ping, None]:
    """Yield the events of the principal's namespace after cursor `after` (None: from now on).

    V5: in order, without gaps or duplicates, resumable from the cursor of the last one seen.
    Raises: `NotFound` when `after` is older than the retained events, or of another journal.
    """
    component = service.component(store)
    principal.check(Permission.READ)
    resource_key = service.key(component, principal, resource_id) if resource_id else ""
    namespace = f"{principal.namespace}{SEPARATOR}lock" if principal.namespace else "lock"
    cursor = component.shard.durable if after is None else after
    with service.open_stream(principal):
        entries = component.shard.follow(cursor)
        step: asyncio.Future[JournalEntry] = asyncio.ensure_future(anext(entries))
        try:
            while True:
                done, _ = await asyncio.wait({step}, timeout=PING_MS_MAX / 1000)
                if not done:
                    yield Ping()
                    continue
                entry = step.result()
                step = asyncio.ensure_future(anext(entries))
                event = _visible_event(entry, namespace + SEPARATOR, resource_key)
                if event is not None:
                    yield event
        except LookupError:
            raise NotFound(
                f"the events after {cursor} are no longer retained",
                hint=f"start with after={component.shard.oldest - 1}, or read the audit file",
            ) from None
        finally:
            step.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await step


def _visible_event(entry: JournalEntry, namespace: str, resource_key: str) -> StreamedEvent | None:
    """Return an entry as the principal may see it; None for other namespaces (V8)."""
    decision = entry.decision
    event = partial(StreamedEvent, entry.number, entry.at_epoch_ms)
    if isinstance(decision, JournalOpened):
        return None if resource_key else event("opened")
    if not decision.key.startswith(namespace) or (resource_key and decision.key != resource_key):
        return None
    resource = decision.key.rpartition(SEPARATOR)[2]
    match decision:
        case LockGranted():
            return event("granted", resource, decision.token, owner=decision.owner)
        case TtlChanged():
            return event("retimed", resource)
        case GrantEnded(token=token, how=how, cause=cause):
            return event("ended", resource, token, how=how.value, cause=cause)
