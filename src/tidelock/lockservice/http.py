"""The lock service over HTTP: an ASGI application, HTTP/1.1 and HTTP/2 alike.

Who is asked for an ND-JSON stream (`Accept: application/x-ndjson`) answers with option 2 of the
proposal; otherwise the answer is option 1's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import parse_qsl, unquote

from tidelock.base.errors import InvalidInput, TidelockError
from tidelock.base.limits import SERVICE_BODY_BYTES_MAX
from tidelock.lockservice import routes
from tidelock.lockservice.answers import Answer, DaprError, answer_of
from tidelock.lockservice.auth import TOKEN_HEADER, Doorkeeper, Principal, Site
from tidelock.lockservice.routes import Bytes, Empty, Json, Lines, Request, Route
from tidelock.lockservice.service import LockService

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_BODY_TIMEOUT_S = 20.0
_NDJSON = b"application/x-ndjson"
_KINDS_OF_FORMS = ("text/plain", "multipart/form-data")
_OVER_HTTP1 = "a stream over HTTP/1 takes a connection of its own: use HTTP/2"


@dataclass(slots=True)
class HttpApp:
    """The ASGI application over one service."""

    service: LockService
    door: Doorkeeper
    site: Site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; this is what ASGI servers call."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        form = _form(_header(scope, b"accept") or "")
        unread = True
        try:
            parts = _parts(bytes(scope.get("raw_path") or scope["path"].encode()))
            route = routes.find(scope["method"], parts)
            principal = self._principal(scope, route)
            unread = False
            request = await self._read(scope, parts, receive)
            self._check_kind(scope, request, principal)
            await self._serve(request, route, principal, receive, send)
        except (TidelockError, DaprError) as error:
            if unread:
                await _drained(scope, receive)
            await _send_error(send, error, form)
        except _Gone:
            return
        except Exception as error:
            logger.exception("a request failed")
            await _send_error(send, error)

    async def _read(self, scope: Scope, parts: list[str], receive: Receive) -> Request:
        # The body first: a connection that is closed on unread bytes may lose the answer.
        body = await _body(scope, receive)
        return Request(
            parts,
            _query(scope),
            body,
            wants_stream="application/x-ndjson" in (_header(scope, b"accept") or ""),
            is_http2=scope["http_version"] == "2",
        )

    def _principal(self, scope: Scope, route: Route) -> Principal:
        if route.public:
            return Principal("anybody", permissions=frozenset())
        host = _header(scope, b"host")
        self.site.check_host(host)
        origin, fetch_site = _header(scope, b"origin"), _header(scope, b"sec-fetch-site")
        self.site.check_origin(host, origin, fetch_site)
        bearer = (_header(scope, b"authorization") or "").removeprefix("Bearer ").strip()
        token = _header(scope, TOKEN_HEADER.encode()) or bearer
        client = scope.get("client") or ("unknown", 0)
        return self.door.admit(token, str(client[0]))

    def _check_kind(self, scope: Scope, request: Request, principal: Principal) -> None:
        """Refuse bodies of the kinds that forms of any web page may send without being asked.

        What curl sends unless told otherwise is one of them and stays: browsers name the origin of
        such a request, and that was looked at before. With a token it does not matter.
        """
        kind = (_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if request.body and principal is self.door.anybody and kind in _KINDS_OF_FORMS:
            raise DaprError(
                Answer("ERR_UNSUPPORTED_MEDIA_TYPE", 415, "INVALID_ARGUMENT"),
                f"a body of the type {kind} is not taken: send content-type: application/json",
            )

    async def _serve(
        self, request: Request, route: Route, principal: Principal, receive: Receive, send: Send
    ) -> None:
        # A client that leaves while it waits for a lock must leave the queue as well.
        work = asyncio.ensure_future(route.serve(self.service, principal, request))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise _Gone
            answer = work.result()
            match answer:
                case Empty(status):
                    await _send(send, status, b"", None)
                case Json(fields, status, warning):
                    await _send(send, status, json.dumps(fields).encode(), warning=warning)
                case Bytes(body, kind):
                    await _send(send, 200, body, kind)
                case Lines(source):
                    await self._stream(source, gone, send, request)
        finally:
            for task in (work, gone):
                task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    async def _stream(
        self,
        source: AsyncGenerator[dict[str, Any], None],
        gone: asyncio.Future[None],
        send: Send,
        request: Request,
    ) -> None:
        async with aclosing(source):
            try:
                line = await self._next(source, gone)
            except (TidelockError, DaprError) as error:
                # What fails before the first line still has a status to say it with.
                await _send_error(send, error, _Form.LINES)
                return
            headers = [(b"content-type", _NDJSON), (b"cache-control", b"no-store")]
            if not request.is_http2:
                self.service.warn_once("http1", _OVER_HTTP1)
                headers.append((b"warning", f'299 - "{_OVER_HTTP1}"'.encode()))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while line is not None:
                await _send_line(send, line)
                try:
                    line = await self._next(source, gone)
                except (TidelockError, DaprError) as error:
                    await _send_line(send, _error_line(error))
                    break
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(
        self, source: AsyncGenerator[dict[str, Any], None], gone: asyncio.Future[None]
    ) -> dict[str, Any] | None:
        step: asyncio.Task[dict[str, Any] | None] = asyncio.ensure_future(_line_of(source))
        try:
            both: set[asyncio.Future[Any]] = {step, gone}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                raise _Gone
            return step.result()
        finally:
            if not step.done():
                step.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await step


class _Form(Enum):
    """How an error is written, by what the client accepts."""

    PLAIN = "Dapr's own"
    JSON = "an object"
    LINES = "a line of a stream"


def _form(accept: str) -> _Form:
    if "application/x-ndjson" in accept:
        return _Form.LINES
    return _Form.JSON if "application/json" in accept else _Form.PLAIN


def _error_line(error: Exception) -> dict[str, Any]:
    return {"type": "error", "error": _message(error), "errorCode": answer_of(error).code}


def _message(error: Exception) -> str:
    if isinstance(error, TidelockError | DaprError):
        return error.message
    return "internal error; see the log of the service"


async def _line_of(source: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any] | None:
    return await anext(source, None)


class _Gone(Exception):
    """The client has disconnected."""


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _body(scope: Scope, receive: Receive) -> bytes:
    declared = _header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > SERVICE_BODY_BYTES_MAX:
        raise InvalidInput(f"the body has more than {SERVICE_BODY_BYTES_MAX} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                body += message.get("body", b"")
                if len(body) > SERVICE_BODY_BYTES_MAX:
                    raise InvalidInput(f"the body has more than {SERVICE_BODY_BYTES_MAX} bytes")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise InvalidInput(f"the body did not arrive within {_BODY_TIMEOUT_S:g} s") from None


async def _drained(scope: Scope, receive: Receive) -> None:
    """Read a body that nobody wants: a connection closed on unread bytes may lose the answer."""
    with suppress(InvalidInput, _Gone):
        await _body(scope, receive)


def _parts(raw: bytes) -> list[str]:
    """Return the parts of a path, each decoded by itself."""
    try:
        path = raw.partition(b"?")[0].decode("ascii")
        return [unquote(part, errors="strict") for part in path.split("/")[1:]]
    except UnicodeDecodeError:
        raise InvalidInput("the path is not percent-encoded UTF-8") from None


def _query(scope: Scope) -> dict[str, str]:
    try:
        text = bytes(scope["query_string"]).decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError as error:
        raise InvalidInput(f"the query cannot be read: {error}") from error
    return dict(pairs)


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key.lower() == name:
            return bytes(value).decode("latin-1")
    return None


async def _send_error(send: Send, error: Exception, form: _Form = _Form.JSON) -> None:
    answer = answer_of(error)
    if answer.status == 401 and form is _Form.PLAIN:
        # Dapr's own answer, for clients that look for it.
        await _send(send, 401, b"invalid api token", b"text/plain")
        return
    fields: dict[str, Any] = {"errorCode": answer.code, "message": _message(error)}
    if form is _Form.LINES:
        fields = _error_line(error)
    hint = getattr(error, "hint", "")
    if hint:
        fields["hint"] = hint
    headers = []
    if isinstance(error, routes.MethodUnknown):
        answer, headers = error.answer, [(b"allow", error.allowed.encode())]
        fields["errorCode"] = answer.code
    if answer.status == 429:
        headers.append((b"retry-after", b"1"))
    if form is _Form.LINES:
        await _send(send, answer.status, _line(fields), _NDJSON, extra=headers)
        return
    await _send(send, answer.status, json.dumps(fields).encode(), extra=headers)


async def _send(
    send: Send,
    status: int,
    body: bytes,
    kind: bytes | None = b"application/json",
    *,
    warning: str = "",
    extra: list[tuple[bytes, bytes]] | None = None,
) -> None:
    headers = [(b"x-content-type-options", b"nosniff"), *(extra or [])]
    if status != 204:
        headers.append((b"content-length", str(len(body)).encode()))
        if kind is not None:
            headers.append((b"content-type", kind))
    if warning:
        headers += [(b"deprecation", b"true"), (b"warning", f'299 - "{warning}"'.encode())]
    # A client that has gone cannot be told anything.
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _send_line(send: Send, fields: dict[str, Any]) -> None:
    await send({"type": "http.response.body", "body": _line(fields), "more_body": True})


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
