"""The dashboard's port: HTTP/1.1 from the standard library, with limits, in threads of its own."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tidelock.base.errors import ConfigInvalid, InvalidInput, PermissionDenied, TidelockError
from tidelock.base.limits import SERVICE_BODY_BYTES_MAX
from tidelock.base.runtime import start_thread
from tidelock.lockservice.answers import answer_of
from tidelock.lockservice.auth import Site
from tidelock.ops.cli.output import error_facts, kind_of
from tidelock.ops.ui.answers import HEADERS, Answer, as_json
from tidelock.ops.ui.routes import Asked, Dashboard
from tidelock.ops.ui.sessions import COOKIE, CSRF_HEADER

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 200
_IDLE_S: Final = 30


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and under which names people come."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None


@contextmanager
def served(dashboard: Dashboard, place: Place) -> Iterator[str]:
    """Serve for as long as the block lasts; yield the URL. Raises: `ConfigInvalid`."""
    try:
        server = _Server((place.host, place.port), _Handler)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot listen on {place.host}:{place.port}: {error}",
            hint="choose another --port, or 0 for any that is free",
        ) from error
    server.dashboard = dashboard
    server.secure = place.certificate is not None
    server.site = Site.at(place.host, place.names, secure=server.secure)
    if place.certificate is not None:
        _wrap(server, place)
    start_thread("tidelock-ui", lambda: server.serve_forever(poll_interval=0.1))
    host = f"[{place.host}]" if ":" in place.host else place.host
    try:
        yield f"http{'s' if server.secure else ''}://{host}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def _wrap(server: _Server, place: Place) -> None:
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(str(place.certificate), str(place.key))
    except (OSError, ssl.SSLError) as error:
        server.server_close()
        raise ConfigInvalid(f"{place.certificate} cannot be used: {error}") from error
    # The handshake is done by the thread of the connection, so nobody can hold up the others.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    dashboard: Dashboard
    secure = False
    site = Site(frozenset())
    connections = 0

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Turn connections away beyond the limit, before anything is read."""
        del request, client_address
        return self.connections < CONNECTIONS_MAX

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that have gone."""
        logger.debug("a connection of %s failed", client_address)
        del request


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tidelock"
    sys_version = ""
    timeout = _IDLE_S
    server: _Server

    def handle(self) -> None:
        """Serve one connection, and count it."""
        self.server.connections += 1
        try:
            with suppress(ConnectionError, TimeoutError, ssl.SSLError):
                super().handle()
        finally:
            self.server.connections -= 1

    def do_GET(self) -> None:
        """Answer a GET."""
        self._serve()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._serve()

    def do_DELETE(self) -> None:
        """Answer a DELETE."""
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log as the rest of the package does; without the query, which may be long."""
        logger.debug(format, *args)

    def _serve(self) -> None:
        try:
            answer = self.server.dashboard.answer(self._asked())
        except TidelockError as error:
            answer = as_json(
                error_facts(kind_of(error), error.message, error.hint), answer_of(error).status
            )
        except (ConnectionError, TimeoutError):
            raise
        except Exception:
            logger.exception("a request failed")
            answer = as_json(error_facts("internal", "internal error; see the log"), 500)
        self._send(answer.packed(self.headers.get("Accept-Encoding", "")))

    def _asked(self) -> Asked:
        self._check_site()
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=20))
        return Asked(
            self.command,
            unquote(parts.path),
            query,
            str(self.client_address[0]),
            session=self.server.dashboard.sessions.find(self._cookie()),
            secret=self.headers.get(CSRF_HEADER),
            body=self._body(),
            secure=self.server.secure,
        )

    def _check_site(self) -> None:
        """Refuse other names than ours, and what changes something for a page of another site."""
        host, site = self.headers.get("Host"), self.server.site
        try:
            site.check_host(host)
        except PermissionDenied:
            self.close_connection = True
            raise
        if self.command != "GET":
            site.check_origin(host, self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site"))

    def _cookie(self) -> str | None:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return None
        return None if found is None else found.value

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not text.isdecimal():
            self.close_connection = True
            raise InvalidInput("a body needs a Content-Length")
        if int(text) > SERVICE_BODY_BYTES_MAX:
            self.close_connection = True
            raise InvalidInput(f"the body has more than {SERVICE_BODY_BYTES_MAX} bytes")
        return self.rfile.read(int(text))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        if answer.status != 304:
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)
