"""The HTTP API of the lock service as a Starlette application, for HTTP/1.1 and HTTP/2.

A client that accepts `application/x-ndjson` gets the streaming lock of option 2 of the proposal;
any other client gets option 1. Each path is a raw ASGI endpoint: the hot path has no middleware but
the one that keeps `%2F` in a name from being a separator.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, quote, unquote

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelock.core.errors import InvalidInput, NotFound, TidelockError
from tidelock.core.exposition import CONTENT_TYPE
from tidelock.core.limits import SERVICE_BODY_BYTES_MAX, SERVICE_JSON_DEPTH_MAX, TOKEN_MAX
from tidelock.lock.server.asgi_server import discard_body, read_body
from tidelock.lock.server.auth import (
    TOKEN_HEADER,
    Authenticator,
    Permission,
    Principal,
    TrustedHosts,
)
from tidelock.lock.server.component import LockResponse
from tidelock.lock.server.duration import duration_field, go_duration, ttl_field
from tidelock.lock.server.errors import DaprError, ErrorStatus, error_status, not_ready
from tidelock.lock.server.openapi import openapi
from tidelock.lock.server.service import LockOptions, LockService
from tidelock.lock.server.stream import Acquired, Ping, StreamedEvent, event_stream, lock_stream
from tidelock.lock.server.telemetry import service_metrics

T = TypeVar("T")
Lines = AsyncGenerator[dict[str, Any], None]

_NDJSON = "application/x-ndjson"
_FORM_CONTENT_TYPES = ("text/plain", "multipart/form-data")
_NOSNIFF = {"x-content-type-options": "nosniff"}
_ALPHA1_DEPRECATED = "the alpha1 lock API is deprecated: use v1.0-alpha2"
_STREAM_OVER_HTTP1 = "a stream over HTTP/1 occupies a whole connection: use HTTP/2"


def http_app(
    service: LockService, authenticator: Authenticator, trusted_hosts: TrustedHosts
) -> Starlette:

    def route(path: str, *, public: bool = False, **methods: Handler) -> Route:
        endpoint = _Endpoint(service, authenticator, trusted_hosts, methods, public=public)
        return Route(path, endpoint)

    lock_path = "/v1.0-alpha2/lock/{name:segment}"
    app = Starlette(
        routes=[
            route(lock_path, POST=_lock, DELETE=_unlock, PUT=_renew, GET=_status),
            route("/v1.0-alpha2/events", GET=_events),
            route("/v1.0-alpha1/lock/{name:segment}", POST=_try_lock_alpha1),
            route("/v1.0-alpha1/unlock/{name:segment}", POST=_unlock_alpha1),
            route("/v1.0/healthz", GET=_healthz, public=True),
            route("/v1.0/healthz/outbound", GET=_healthz_outbound, public=True),
            route("/metrics", GET=_metrics),
            route("/openapi.json", GET=_openapi, public=True),
        ],
        middleware=[Middleware(_EncodedPath)],
        exception_handlers={
            TidelockError: _on_error,
            DaprError: _on_error,
            HTTPException: _on_unrouted,
            Exception: _on_internal_error,
        },
    )
    app.router.redirect_slashes = False
    return app


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that was authenticated and read."""

    service: LockService
    principal: Principal
    name: str
    """The `{name}` of the path: a resource id, or in alpha1 a lock store."""
    query: Mapping[str, str]
    body: bytes
    accepts_lines: bool
    is_http2: bool

    def fields(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises: `InvalidInput`."""
        return json_object(self.body)

    def store(self, fields: dict[str, Any]) -> str:
        """Return the lock store that query or body name; empty for the default."""
        return self.query.get("store") or text_field(fields, "store")

    def lines_response(self, source: Lines) -> LinesResponse:
        """Return a stream of JSON lines, with a warning where it occupies a connection."""
        headers = {"cache-control": "no-store"}
        if not self.is_http2:
            self.service.warn_once("http1", _STREAM_OVER_HTTP1)
            headers["warning"] = f'299 - "{_STREAM_OVER_HTTP1}"'
        return LinesResponse(source, headers=headers)


Handler = Callable[[ApiRequest], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """All methods of one path."""

    service: LockService
    authenticator: Authenticator
    trusted_hosts: TrustedHosts
    methods: Mapping[str, Handler]
    public: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self.methods.get(scope["method"])
        if handler is None:
            raise HTTPException(405, headers={"Allow": ", ".join(self.methods)})
        request = Request(scope, receive)
        with suppress(ClientDisconnect):
            parsed = await self._read(request)
            response = await _unless_disconnected(receive, handler(parsed))
            await response(scope, receive, send)

    async def _read(self, request: Request) -> ApiRequest:
        try:
            principal = self._authenticate(request)
        except (TidelockError, DaprError):
            await discard_body(request)
            raise
        # The body first: closing a connection on unread bytes may drop the response.
        body = await read_body(request)
        query = _query(request.scope)
        self._check_content_type(request, body, principal)
        return ApiRequest(
            self.service,
            principal,
            request.path_params.get("name", ""),
            query,
            body,
            accepts_lines=_NDJSON in request.headers.get("accept", ""),
            is_http2=request.scope["http_version"] == "2",
        )

    def _authenticate(self, request: Request) -> Principal:
        if self.public:
            return Principal("anybody", permissions=frozenset())
        headers = request.headers
        host = headers.get("host")
        self.trusted_hosts.check_host(host)
        self.trusted_hosts.check_origin(host, headers.get("origin"), headers.get("sec-fetch-site"))
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        token = headers.get(TOKEN_HEADER) or bearer
        client = request.client
        return self.authenticator.authenticate(token, client.host if client else "unknown")

    def _check_content_type(self, request: Request, body: bytes, principal: Principal) -> None:
        """Refuse content types that an HTML form of any site can send without a preflight.

        `application/x-www-form-urlencoded`, the default of curl, is one of them and accepted:
        browsers send the origin of such a request, which was checked before. Clients with a token
        are not restricted.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        anonymous = principal is self.authenticator.anonymous
        if body and anonymous and kind in _FORM_CONTENT_TYPES:
            raise DaprError(
                ErrorStatus("ERR_UNSUPPORTED_MEDIA_TYPE", 415, "INVALID_ARGUMENT"),
                f"content type {kind} is not supported: send content-type: application/json",
            )


async def _unless_disconnected(receive: Receive, work: Awaitable[Response]) -> Response:
    """Await `work`; cancel it if the client disconnects, so that it leaves the lock's queue."""
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done():
            raise ClientDisconnect
        return task.result()
    finally:
        disconnect.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class LinesResponse(StreamingResponse):
    """A stream of JSON lines. An error before the first line has its own status.

    The source is closed when the stream ends or the client disconnects.
    """

    media_type = _NDJSON

    def __init__(self, source: Lines, headers: Mapping[str, str]) -> None:
        self._source = source
        self._first: dict[str, Any] | None = None
        super().__init__(self._encoded(), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send the response once its first line, and so its status, is known."""
        try:
            self._first = await anext(self._source, None)
        except (TidelockError, DaprError) as error:
            failed = error_response(error, _ErrorFormat.LINE)
            self.status_code, self.raw_headers = failed.status_code, failed.raw_headers
            self.body_iterator = _single(bytes(failed.body))
        await super().stream_response(send)

    async def _encoded(self) -> AsyncGenerator[bytes, None]:
        line = self._first
        try:
            while line is not None:
                yield _line(line)
                line = await anext(self._source, None)
        except (TidelockError, DaprError) as error:
            yield _line(_error_line(error))


async def _single(chunk: bytes) -> AsyncGenerator[bytes, None]:
    yield chunk


class _Segment(Convertor[str]):
    """One path segment, percent-decoded. Unlike Starlette's default it may be empty."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("segment", _Segment())


class _EncodedPath:
    """Middleware that routes by the encoded path, segment by segment.

    Servers decode the whole path, after which `%2F` in a resource id looks like a separator.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                raw = scope.get("raw_path") or scope["path"].encode()
                scope["path"] = _encoded_path(bytes(raw))
            except InvalidInput as error:
                request = Request(scope, receive)
                await discard_body(request)
                await (await _on_error(request, error))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _encoded_path(raw: bytes) -> str:
    try:
        path = raw.partition(b"?")[0].decode("ascii")
        if "%" not in path:
            return path
        # Encoded again, so that equivalent spellings of a path become equal.
        segments = [unquote(segment, errors="strict") for segment in path.split("/")]
        return "/".join(quote(segment, safe="") for segment in segments)
    except UnicodeDecodeError:
        raise InvalidInput("the path is not percent-encoded UTF-8") from None


def _query(scope: Scope) -> dict[str, str]:
    if not scope["query_string"]:
        return {}
    try:
        text = bytes(scope["query_string"]).decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError as error:
        raise InvalidInput(f"cannot parse the query: {error}") from error
    return dict(pairs)


class _ErrorFormat(Enum):
    """The body of an error response, by what the client accepts."""

    PLAIN = "Dapr's own text where Dapr has one, otherwise a JSON object"
    JSON = "a JSON object"
    LINE = "a line of a stream"


def error_response(
    error: Exception,
    form: _ErrorFormat = _ErrorFormat.JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response to a request that failed with `error`."""
    answer = error_status(error)
    if answer.status == 401 and form is _ErrorFormat.PLAIN:
        return Response(b"invalid api token", 401, _NOSNIFF | {"content-type": "text/plain"})
    extra = {**(headers or {}), **({"retry-after": "1"} if answer.status == 429 else {})}
    hint = {"hint": error.hint} if isinstance(error, TidelockError) and error.hint else {}
    if form is _ErrorFormat.LINE:
        line = _line(_error_line(error) | hint)
        return Response(line, answer.status, _NOSNIFF | extra, _NDJSON)
    fields = {"errorCode": answer.code, "message": _message(error), **hint}
    return _json(fields, answer.status, extra)


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error, _error_format(request))


async def _on_unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    await discard_body(request)
    found: Exception = NotFound("there is no such path", hint="see /openapi.json")
    if error.status_code == 405:
        status = ErrorStatus("ERR_METHOD_NOT_ALLOWED", 405, "UNIMPLEMENTED")
        found = DaprError(status, "no such method")
    return error_response(found, _error_format(request), error.headers)


async def _on_internal_error(_request: Request, error: Exception) -> Response:
    """Hide the cause from the client. Starlette raises the error on, and the server logs it."""
    return error_response(error)


def _error_format(request: Request) -> _ErrorFormat:
    accept = request.headers.get("accept", "")
    if _NDJSON in accept:
        return _ErrorFormat.LINE
    return _ErrorFormat.JSON if "application/json" in accept else _ErrorFormat.PLAIN


def _error_line(error: Exception) -> dict[str, Any]:
    return {"type": "error", "error": _message(error), "errorCode": error_status(error).code}


def _message(error: Exception) -> str:
    if isinstance(error, TidelockError | DaprError):
        return error.message
    return "internal error; see the log of the service"


def _json(
    fields: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(json.dumps(fields), status, {**_NOSNIFF, **(headers or {})}, "application/json")


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _no_content() -> Response:
    return Response(status_code=204, headers=_NOSNIFF)


def _deprecated(fields: Mapping[str, Any]) -> Response:
    warning = f'299 - "{_ALPHA1_DEPRECATED}"'
    return _json(fields, headers={"deprecation": "true", "warning": warning})


async def _try_lock_alpha1(request: ApiRequest) -> Response:
    fields = request.fields()
    success = await request.service.try_lock_alpha1(
        request.principal,
        request.name,
        text_field(fields, "resourceId"),
        text_field(fields, "lockOwner"),
        int_field(fields, "expiryInSeconds"),
    )
    return _deprecated({"success": success})


async def _unlock_alpha1(request: ApiRequest) -> Response:
    fields = request.fields()
    status = await request.service.unlock_alpha1(
        request.principal,
        request.name,
        text_field(fields, "resourceId"),
        text_field(fields, "lockOwner"),
    )
    return _deprecated({"status": status})


async def _lock(request: ApiRequest) -> Response:
    fields = request.fields()
    options = LockOptions(
        resource_id=request.name,
        store=request.store(fields),
        immediate=flag_field(fields, "immediate"),
        ttl_ms=_ttl(fields),
        wait_ms=_duration(fields, "wait"),
        request_id=text_field(fields, "requestID"),
        owner=text_field(fields, "owner"),
        auto_renew=flag_field(fields, "autoRenew", default=True),
        linger_ms=_duration(fields, "linger") or 0,
        lock_id=text_field(fields, "lockID"),
    )
    service, principal = request.service, request.principal
    if request.accepts_lines or flag_field(fields, "stream"):
        # Checked before the stream starts, so that invalid options have a status of their own.
        service.prepare(principal, options, stream=True)
        return request.lines_response(_lines(lock_stream(service, principal, options)))
    if options.lock_id:
        raise InvalidInput("lockID is only for resuming a stream, and for PUT and DELETE")
    return _json(_grant_fields(await service.lock(principal, options)))


async def _unlock(request: ApiRequest) -> Response:
    fields = request.fields()
    service, principal, store = request.service, request.principal, request.store(fields)
    lock_id = text_field(fields, "lockID")
    # Option 2's DELETE has no body at all, and means force.
    if flag_field(fields, "force", default=not request.body.strip()):
        await service.force_unlock(principal, store, request.name)
    else:
        request_id = text_field(fields, "requestID")
        await service.unlock(principal, store, request.name, lock_id, request_id)
    return _no_content()


async def _renew(request: ApiRequest) -> Response:
    fields = request.fields()
    store, lock_id, ttl_ms = request.store(fields), text_field(fields, "lockID"), _ttl(fields)
    renewed = await request.service.renew(request.principal, store, request.name, lock_id, ttl_ms)
    return _json(_grant_fields(renewed))


async def _status(request: ApiRequest) -> Response:
    status = await request.service.status(
        request.principal, request.query.get("store", ""), request.name
    )
    fields: dict[str, Any] = {
        "locked": status.granted is not None,
        "waiters": status.waiters,
        "cursor": status.number,
    }
    if status.granted is not None:
        fields |= {
            "owner": status.granted.owner,
            "principal": status.granted.principal,
            "token": status.granted.token,
            "mode": status.granted.mode.value,
            "ttl": go_duration(status.granted.ttl_ms),
            "since": status.since_epoch_ms,
            "expiresInMs": status.expires_in_ms,
        }
    return _json(fields)


async def _events(request: ApiRequest) -> Response:
    after, store = request.query.get("after"), request.query.get("store", "")
    if after is not None and (not after.isascii() or not after.isdigit() or len(after) > 19):
        raise InvalidInput("query parameter after: expected the cursor of an event")
    if after is not None and int(after) > TOKEN_MAX:
        raise InvalidInput("query parameter after: larger than any cursor")
    source = event_stream(
        request.service,
        request.principal,
        store=store,
        after=None if after is None else int(after),
        resource_id=request.query.get("resource", ""),
    )
    request.service.component(store)
    request.principal.check(Permission.READ)
    # The first line tells the client at once that the stream is open.
    return request.lines_response(_lines(source, ping_first=True))


async def _healthz(request: ApiRequest) -> Response:
    """Liveness: fail where only a restart helps."""
    service = request.service
    stores = service.components.values()
    causes = {store.name: store.shard.failure.message for store in stores if store.shard.failure}
    if service.draining:
        causes = {"": "the lock service is shutting down"}
    if causes:
        raise not_ready(causes, outbound=False)
    return _no_content()


async def _healthz_outbound(request: ApiRequest) -> Response:
    """Readiness: probe every lock store."""
    causes = await request.service.unavailable_stores()
    if causes:
        raise not_ready(causes, outbound=True)
    return _no_content()


async def _metrics(request: ApiRequest) -> Response:
    request.principal.check(Permission.READ)
    headers = {**_NOSNIFF, "content-type": CONTENT_TYPE}
    return Response(service_metrics(request.service), headers=headers)


async def _openapi(_request: ApiRequest) -> Response:
    return _json(openapi())


async def _lines(
    source: AsyncGenerator[Acquired | Ping, None] | AsyncGenerator[StreamedEvent | Ping, None],
    *,
    ping_first: bool = False,
) -> Lines:
    if ping_first:
        yield {"type": "ping"}
    async with aclosing(source) as messages:
        async for message in messages:
            match message:
                case Acquired(response):
                    yield {"type": "lock-acquired", **_grant_fields(response)}
                case StreamedEvent():
                    yield event_fields(message)
                case Ping():
                    yield {"type": "ping"}


def event_fields(message: StreamedEvent) -> dict[str, Any]:
    """Return an event as JSON fields, without empty ones."""
    at, event = message.at_epoch_ms, message.event
    fields = {"type": "event", "cursor": message.cursor, "at": at, "event": event}
    optional = ("resource", "token", "owner", "how", "cause")
    return fields | {name: value for name in optional if (value := getattr(message, name))}


def _grant_fields(response: LockResponse) -> dict[str, Any]:
    return {
        "lockID": response.lock_id,
        "token": response.token,
        "ttl": go_duration(response.ttl_ms),
        "since": response.since_epoch_ms,
    }


def _duration(fields: dict[str, Any], name: str) -> int | None:
    text = text_field(fields, name)
    return duration_field(name, text) if text else None


def _ttl(fields: dict[str, Any]) -> int:
    text = text_field(fields, "ttl")
    return ttl_field("ttl", text) if text else 0


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`; empty for an empty body. Raises: `InvalidInput`."""
    if len(body) > SERVICE_BODY_BYTES_MAX:
        raise InvalidInput(f"the body has more than {SERVICE_BODY_BYTES_MAX} bytes")
    if not body.strip():
        return {}
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"failed deserializing HTTP body: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("failed deserializing HTTP body: expected a JSON object")
    if _depth(value) > SERVICE_JSON_DEPTH_MAX:
        raise InvalidInput("failed deserializing HTTP body: it is nested too deeply")
    return value


def text_field(fields: dict[str, Any], name: str) -> str:
    """Return a string field; empty if absent or null. Raises: `InvalidInput`."""
    return _typed_field(fields, name, "", "a string")


def flag_field(fields: dict[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a boolean field. Raises: `InvalidInput`."""
    return _typed_field(fields, name, default, "true or false")


def _typed_field(fields: dict[str, Any], name: str, default: T, expected: str) -> T:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, type(default)):
        raise InvalidInput(f"field {name!r}: expected {expected}")
    return value


def int_field(fields: dict[str, Any], name: str) -> int:
    """Return a 32-bit integer field; 0 if absent. Digits in a string count, as in protojson."""
    value = fields.get(name)
    if value is None:
        return 0
    if isinstance(value, str) and value.removeprefix("-").isascii():
        value = int(value) if value.removeprefix("-").isdigit() and len(value) < 12 else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise InvalidInput(f"field {name!r}: expected a 32-bit integer")
    return value


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return deepest


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"expected a JSON number, got {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_fields, parse_constant=_no_constant)
