"""The dashboard as a Starlette application: the page, its JSON API, sessions and actions.

Reading needs a session only if the dashboard requires one; actions need a session with the
permission for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelock.core.errors import InvalidInput, NotFound, PermissionDenied, TidelockError
from tidelock.core.formatting import error_facts, kind_of
from tidelock.dashboard.actions import SERVICES, ActionRequest, ActionRunner, DashboardAction
from tidelock.dashboard.details import TableLayout, instant_details
from tidelock.dashboard.sessions import COOKIE, CSRF_HEADER, SESSION_MS, OperatorSession, Sessions
from tidelock.dashboard.watch import TableWatch
from tidelock.lock.server.asgi_server import (
    TlsFiles,
    bind_socket,
    discard_body,
    read_body,
    serve_in_thread,
)
from tidelock.lock.server.auth import Permission, TrustedHosts
from tidelock.lock.server.errors import error_status

ENTRIES_PER_PAGE: Final = 200

_SECURITY_HEADERS: Final = {
    # No inline script or style, nothing from other origins, no framing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_CONTENT_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_GZIP_BYTES_MIN: Final = 2_000


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address that a dashboard listens on, and the host names that lead to it."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    tls: TlsFiles | None = None


@contextmanager
def served(dashboard: Dashboard, address: ListenAddress) -> Iterator[str]:
    """Serve for the duration of a `with` block; yield the URL. Raises: `ConfigInvalid`."""
    if address.tls is not None:
        address.tls.check()
    secure = address.tls is not None
    app = dashboard.http_app(TrustedHosts.at(address.host, address.names, secure=secure))
    listening = bind_socket(address.host, address.port)
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = f"http{'s' if secure else ''}://{host}:{listening.getsockname()[1]}/"
    with serve_in_thread("tidelock-ui", app, listening, address.tls):
        yield url


class Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str


@cache
def load_assets() -> Mapping[str, Asset]:
    """Return the page and its parts by path. No other file is ever read for a request."""
    assets: dict[str, Asset] = {}
    for item in files("tidelock.dashboard").joinpath("assets").iterdir():
        content_type = _CONTENT_TYPES.get(item.name.rpartition(".")[2])
        if content_type is not None:
            assets[f"/assets/{item.name}"] = Asset(item.read_bytes(), content_type)
    assets["/"] = assets.pop("/assets/index.html")
    return assets


@dataclass(frozen=True, slots=True)
class DashboardRequest:
    """A parsed request."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    address: str
    session: OperatorSession | None
    csrf: str | None
    body: bytes
    secure: bool

    def fields(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises: `InvalidInput`."""
        try:
            fields = json.loads(self.body or b"{}")
        except ValueError as error:
            raise InvalidInput(f"the body is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise InvalidInput("the body is not a JSON object")
        return fields

    def number(self, name: str) -> int:
        """Return a whole number of the query; 0 if absent. Raises: `InvalidInput`."""
        text = self.query.get(name, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise InvalidInput(f"query parameter {name}: expected a whole number, got {text!r}")
        return int(text)


Handler = Callable[[DashboardRequest], Response]


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table on the dashboard."""

    watch: TableWatch
    layout: TableLayout
    actions: ActionRunner


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Handles requests. Handlers block, so each runs in a thread of Starlette's pool."""

    tables: Sequence[ShownTable]
    sessions: Sessions
    boot: str
    """Random for each start: a page that was loaded from an earlier process reloads everything."""

    def http_app(self, trusted_hosts: TrustedHosts) -> Starlette:
        """Return the ASGI application."""

        def read(path: str, handler: Handler) -> Route:
            def checked(request: DashboardRequest) -> Response:
                self.sessions.check_read(request.session)
                return handler(request)

            return Route(path, self._endpoint(checked))

        table = "/api/tables/{table}"
        return Starlette(
            routes=[
                *(Route(path, _asset) for path in load_assets()),
                Route(
                    "/api/session",
                    self._endpoint(lambda request: self._session_response(request.session)),
                ),
                Route("/api/session", self._endpoint(self._sign_in), methods=["POST"]),
                Route("/api/session", self._endpoint(self._sign_out), methods=["DELETE"]),
                read("/api/tables", self._list_tables),
                read(table, self._get_updates),
                read(f"{table}/files", lambda request: _json(self._table(request).layout.page())),
                read(f"{table}/jobs", lambda request: _json(self._table(request).actions.jobs())),
                read(f"{table}/entries", self._get_entries),
                read(f"{table}/instants/{{instant}}", self._get_instant),
                Route(f"{table}/actions", self._endpoint(self._act), methods=["POST"]),
            ],
            middleware=[
                Middleware(_TrustedHostsOnly, trusted_hosts=trusted_hosts),
                Middleware(GZipMiddleware, minimum_size=_GZIP_BYTES_MIN, compresslevel=1),
            ],
            exception_handlers={
                TidelockError: _on_error,
                HTTPException: _on_unrouted,
                Exception: _on_internal_error,
            },
        )

    def _endpoint(self, handler: Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def endpoint(request: Request) -> Response:
            parsed = DashboardRequest(
                request.path_params,
                request.query_params,
                request.client.host if request.client else "unknown",
                session=self.sessions.find(request.cookies.get(COOKIE)),
                csrf=request.headers.get(CSRF_HEADER),
                body=await read_body(request),
                secure=request.url.scheme == "https",
            )
            return await run_in_threadpool(handler, parsed)

        return endpoint

    def _list_tables(self, request: DashboardRequest) -> Response:
        del request
        watches = [shown.watch for shown in self.tables]
        return _json([{"name": each.properties.name, "uri": each.store.uri} for each in watches])

    def _get_updates(self, request: DashboardRequest) -> Response:
        """Return what changed since the version that the page has; 304 if nothing did."""
        shown = self._table(request)
        known = request.number("after") if request.query.get("boot") == self.boot else 0
        shown.watch.refresh()
        updates = shown.watch.page(known)
        if updates is None:
            return _response(b"", 304, {"Cache-Control": "no-store"})
        return _json({"boot": self.boot, **updates})

    def _get_entries(self, request: DashboardRequest) -> Response:
        below = request.number("before") or 10**18
        return _json(self._table(request).watch.entries_before(below, ENTRIES_PER_PAGE))

    def _get_instant(self, request: DashboardRequest) -> Response:
        requested = request.path["instant"]
        if not requested.isdecimal():
            raise NotFound(f"{requested!r} is not an instant")
        return _json(instant_details(self._table(request).watch, requested))

    def _act(self, request: DashboardRequest) -> Response:
        action = ActionRequest.read(request.fields())
        permission = action.action.permission
        session = self.sessions.check_act(request.session, request.csrf, permission)
        done = self._table(request).actions.run(action, by=session.principal.name)
        return _json({"done": done})

    def _sign_in(self, request: DashboardRequest) -> Response:
        token = request.fields().get("token")
        session = self.sessions.sign_in(token if isinstance(token, str) else "", request.address)
        response = self._session_response(session)
        _set_cookie(response, session.name, SESSION_MS // 1000, secure=request.secure)
        return response

    def _sign_out(self, request: DashboardRequest) -> Response:
        if request.session is not None:
            self.sessions.sign_out(request.session)
        response = self._session_response(None)
        _set_cookie(response, "", 0, secure=request.secure)
        return response

    def _session_response(self, session: OperatorSession | None) -> Response:
        actions = [each for each in DashboardAction if session and session.may(each.permission)]
        return _json(
            {
                "name": "" if session is None else session.principal.name,
                "csrf": "" if session is None else session.secret,
                "may": [action.value for action in actions],
                "may_sign_in": self.sessions.authenticator is not None,
                "must_sign_in": not self.sessions.public_reads
                and (session is None or not session.may(Permission.READ)),
                "services": list(SERVICES),
            }
        )

    def _table(self, request: DashboardRequest) -> ShownTable:
        number = request.path["table"]
        if not (number.isascii() and number.isdecimal() and int(number) < len(self.tables)):
            raise NotFound(f"there is no table {number!r} on this dashboard")
        return self.tables[int(number)]


async def _asset(request: Request) -> Response:
    asset = load_assets()[request.scope["path"]]
    headers = {"Cache-Control": "no-cache", "Content-Type": asset.content_type}
    return _response(asset.body, headers=headers)


class _TrustedHostsOnly:
    """Middleware that refuses other host names, and changes sent by pages of other sites."""

    def __init__(self, app: ASGIApp, trusted_hosts: TrustedHosts) -> None:
        self.app = app
        self.trusted_hosts = trusted_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if it is allowed."""
        if scope["type"] == "http":
            request = Request(scope, receive)
            try:
                self._check(request)
            except PermissionDenied as error:
                await discard_body(request)
                await (await _on_error(request, error))(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, request: Request) -> None:
        headers, host = request.headers, request.headers.get("host")
        self.trusted_hosts.check_host(host)
        if request.method != "GET":
            fetch_site = headers.get("sec-fetch-site")
            self.trusted_hosts.check_origin(host, headers.get("origin"), fetch_site)


async def _on_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, TidelockError)
    facts = error_facts(kind_of(error), error.message, error.hint)
    return _json(facts, error_status(error).status)


async def _on_unrouted(request: Request, error: Exception) -> Response:
    del error
    await discard_body(request)
    path = request.scope["path"]
    return await _on_error(request, NotFound(f"{request.method} {path}: no such page"))


async def _on_internal_error(request: Request, error: Exception) -> Response:
    """Hide the cause from the client. Starlette raises the error again, and the server logs it."""
    del request, error
    return _json(error_facts("internal", "internal error; see the log"), 500)


def _response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, {**_SECURITY_HEADERS, **(headers or {})})


def _json(value: object, status: int = 200) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    headers = {"Cache-Control": "no-store", "Content-Type": "application/json"}
    return _response(body, status, headers)


def _set_cookie(response: Response, value: str, max_age_s: int, *, secure: bool) -> None:
    text = f"{COOKIE}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict"
    response.headers["Set-Cookie"] = text + ("; Secure" if secure else "")
