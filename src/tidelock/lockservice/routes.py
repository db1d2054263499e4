"""The HTTP API, route by route: from a parsed request to an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from tidelock.base.errors import InvalidInput, NotFound
from tidelock.base.limits import TOKEN_MAX
from tidelock.lockservice.answers import Answer, DaprError, not_ready
from tidelock.lockservice.auth import Permission, Principal
from tidelock.lockservice.component import LockResponse
from tidelock.lockservice.duration import duration_field, go_duration, ttl_field
from tidelock.lockservice.exposition import exposition
from tidelock.lockservice.jsonbody import flag_field, json_object, text_field, whole_field
from tidelock.lockservice.service import LockService, Wish
from tidelock.lockservice.stream import Acquired, Happened, Ping, event_stream, lock_stream

ALPHA1 = "v1.0-alpha1"
ALPHA2 = "v1.0-alpha2"
_OLD = "the alpha1 lock API is deprecated: use v1.0-alpha2"


@dataclass(frozen=True, slots=True)
class Request:
    """A request after parsing: path parts decoded one by one, so `%2F` stays in its part."""

    parts: list[str]
    query: dict[str, str]
    body: bytes
    wants_stream: bool = False
    is_http2: bool = False


@dataclass(frozen=True, slots=True)
class Empty:
    """A status without a body."""

    status: int = 204


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON object, perhaps with a warning in the headers."""

    fields: dict[str, Any]
    status: int = 200
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Bytes:
    """A page."""

    body: bytes
    kind: bytes


@dataclass(frozen=True, slots=True)
class Lines:
    """A stream of JSON lines."""

    source: AsyncGenerator[dict[str, Any], None]


Reply = Empty | Json | Bytes | Lines
Serve = Callable[[LockService, Principal, Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """What answers one method on one path. A `*` in the path is a name."""

    method: str
    path: tuple[str, ...]
    serve: Serve
    public: bool = False


class MethodUnknown(DaprError):
    """The path exists, the method does not."""

    def __init__(self, allowed: str) -> None:
        """Name the methods that exist."""
        super().__init__(Answer("ERR_METHOD_NOT_ALLOWED", 405, "UNIMPLEMENTED"), "no such method")
        self.allowed = allowed


def find(method: str, parts: list[str]) -> Route:
    """Return the route of a request.

    Raises: `NotFound`; `MethodUnknown` when only the method is wrong.
    """
    allowed: list[str] = []
    for route in ROUTES:
        same = len(parts) == len(route.path) and all(
            wanted in ("*", part) for wanted, part in zip(route.path, parts, strict=True)
        )
        if same and route.method == method:
            return route
        if same:
            allowed.append(route.method)
    if allowed:
        raise MethodUnknown(", ".join(allowed))
    raise NotFound("there is no such path", hint="see /openapi.json")


async def _try_lock(service: LockService, principal: Principal, request: Request) -> Reply:
    fields = json_object(request.body)
    done = await service.try_lock_alpha1(
        principal,
        request.parts[2],
        text_field(fields, "resourceId"),
        text_field(fields, "lockOwner"),
        whole_field(fields, "expiryInSeconds"),
    )
    return Json({"success": done}, warning=_OLD)


async def _unlock_owned(service: LockService, principal: Principal, request: Request) -> Reply:
    fields = json_object(request.body)
    status = await service.unlock_alpha1(
        principal,
        request.parts[2],
        text_field(fields, "resourceId"),
        text_field(fields, "lockOwner"),
    )
    return Json({"status": status}, warning=_OLD)


async def _lock(service: LockService, principal: Principal, request: Request) -> Reply:
    fields = json_object(request.body)
    wish = Wish(
        resource_id=request.parts[2],
        store=_store(request, fields),
        immediate=flag_field(fields, "immediate"),
        ttl_ms=_ttl(fields),
        wait_ms=_duration(fields, "wait"),
        request_id=text_field(fields, "requestID"),
        owner=text_field(fields, "owner"),
        auto_renew=flag_field(fields, "autoRenew", default=True),
        linger_ms=_duration(fields, "linger") or 0,
        lock_id=text_field(fields, "lockID"),
    )
    if request.wants_stream or flag_field(fields, "stream"):
        # Checked here, so that a wrong wish has a status of its own and not an error line.
        service.prepared(principal, wish, stream=True)
        return Lines(_lock_lines(service, principal, wish))
    if wish.lock_id:
        raise InvalidInput(
            "lockID belongs to a stream that is taken on again, or to PUT and DELETE"
        )
    return Json(_grant_fields(await service.lock(principal, wish)))


async def _unlock(service: LockService, principal: Principal, request: Request) -> Reply:
    fields = json_object(request.body)
    store, resource_id = _store(request, fields), request.parts[2]
    lock_id = text_field(fields, "lockID")
    # Option 2's DELETE has no body at all, and means force.
    if flag_field(fields, "force", default=not request.body.strip()):
        await service.force_unlock(principal, store, resource_id)
    else:
        request_id = text_field(fields, "requestID")
        await service.unlock(principal, store, resource_id, lock_id, request_id)
    return Empty()


async def _renew(service: LockService, principal: Principal, request: Request) -> Reply:
    fields = json_object(request.body)
    response = await service.renew(
        principal,
        _store(request, fields),
        request.parts[2],
        text_field(fields, "lockID"),
        _ttl(fields),
    )
    return Json(_grant_fields(response))


async def _status(service: LockService, principal: Principal, request: Request) -> Reply:
    seen = await service.status(principal, request.query.get("store", ""), request.parts[2])
    fields: dict[str, Any] = {"locked": seen.granted is not None, "waiters": seen.waiters}
    fields["cursor"] = seen.number
    if seen.granted is not None:
        fields |= {
            "owner": seen.granted.owner,
            "principal": seen.granted.principal,
            "token": seen.granted.token,
            "mode": seen.granted.mode.value,
            "ttl": go_duration(seen.granted.ttl_ms),
            "since": seen.since_epoch_ms,
            "expiresInMs": seen.expires_in_ms,
        }
    return Json(fields)


async def _events(service: LockService, principal: Principal, request: Request) -> Reply:
    after = request.query.get("after")
    if after is not None and (not after.isascii() or not after.isdigit() or len(after) > 19):
        raise InvalidInput("after must be the cursor of an event: a whole number")
    if after is not None and int(after) > TOKEN_MAX:
        raise InvalidInput("after is larger than any cursor")
    source = event_stream(
        service,
        principal,
        store=request.query.get("store", ""),
        after=None if after is None else int(after),
        resource_id=request.query.get("resource", ""),
    )
    service.component(request.query.get("store", ""))
    principal.check(Permission.READ)
    return Lines(_event_lines(source))


async def _healthz(service: LockService, principal: Principal, request: Request) -> Reply:
    """Whether this process can go on; a restart would help where it cannot."""
    del principal, request
    stores = service.components.values()
    causes = {store.name: store.cell.fallen.message for store in stores if store.cell.fallen}
    if service.draining:
        causes = {"": "the lock service is shutting down"}
    if causes:
        raise not_ready(causes, outbound=False)
    return Empty()


async def _outbound(service: LockService, principal: Principal, request: Request) -> Reply:
    """Whether locks can be had: every lock store is asked."""
    del principal, request
    causes = await service.troubles()
    if causes:
        raise not_ready(causes, outbound=True)
    return Empty()


async def _metrics(service: LockService, principal: Principal, request: Request) -> Reply:
    del request
    principal.check(Permission.READ)
    return Bytes(exposition(service).encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def _openapi(service: LockService, principal: Principal, request: Request) -> Reply:
    from tidelock.lockservice.openapi import openapi

    del service, principal, request
    return Json(openapi())


async def _lock_lines(
    service: LockService, principal: Principal, wish: Wish
) -> AsyncGenerator[dict[str, Any], None]:
    async with aclosing(lock_stream(service, principal, wish)) as messages:
        async for message in messages:
            match message:
                case Acquired(response):
                    yield {"type": "lock-acquired", **_grant_fields(response)}
                case Ping():
                    yield {"type": "ping"}


async def _event_lines(
    source: AsyncGenerator[Happened | Ping, None],
) -> AsyncGenerator[dict[str, Any], None]:
    # The first line says that the stream stands, whatever happens or does not happen next.
    yield {"type": "ping"}
    async with aclosing(source) as messages:
        async for message in messages:
            match message:
                case Happened():
                    yield happened_fields(message)
                case Ping():
                    yield {"type": "ping"}


def happened_fields(message: Happened) -> dict[str, Any]:
    """Return an event as JSON fields, leaving out what it does not have."""
    fields = {
        "type": "event",
        "cursor": message.cursor,
        "at": message.at_epoch_ms,
        "event": message.event,
    }
    more = {
        "resource": message.resource,
        "token": message.token,
        "owner": message.owner,
        "how": message.how,
        "cause": message.cause,
    }
    return fields | {name: value for name, value in more.items() if value}


def _grant_fields(response: LockResponse) -> dict[str, Any]:
    return {
        "lockID": response.lock_id,
        "token": response.token,
        "ttl": go_duration(response.ttl_ms),
        "since": response.since_epoch_ms,
    }


def _store(request: Request, fields: dict[str, Any]) -> str:
    return request.query.get("store") or text_field(fields, "store")


def _duration(fields: dict[str, Any], name: str) -> int | None:
    text = text_field(fields, name)
    return duration_field(name, text) if text else None


def _ttl(fields: dict[str, Any]) -> int:
    text = text_field(fields, "ttl")
    return ttl_field("ttl", text) if text else 0


ROUTES = (
    Route("POST", (ALPHA1, "lock", "*"), _try_lock),
    Route("POST", (ALPHA1, "unlock", "*"), _unlock_owned),
    Route("POST", (ALPHA2, "lock", "*"), _lock),
    Route("DELETE", (ALPHA2, "lock", "*"), _unlock),
    Route("PUT", (ALPHA2, "lock", "*"), _renew),
    Route("GET", (ALPHA2, "lock", "*"), _status),
    Route("GET", (ALPHA2, "events"), _events),
    Route("GET", ("v1.0", "healthz"), _healthz, public=True),
    Route("GET", ("v1.0", "healthz", "outbound"), _outbound, public=True),
    Route("GET", ("metrics",), _metrics),
    Route("GET", ("openapi.json",), _openapi, public=True),
)
