"""Serves an ASGI application with hypercorn: socket, TLS, limits, request bodies and shutdown.

The lock service and the dashboard both start here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp

from tidelock.core.errors import ConfigInvalid, InvalidInput, needs_extra
from tidelock.core.limits import SERVICE_BODY_BYTES_MAX, SERVICE_HEADER_BYTES_MAX, STREAMS_MAX
from tidelock.core.threads import start_thread
from tidelock.lock.server.auth import is_loopback

logger = logging.getLogger(__name__)

SHUTDOWN_GRACE_S: Final = 5.0
_UNACKNOWLEDGED_MS_MAX: Final = 5_000
_BODY_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a TLS server. With `client_ca`, clients must have a certificate signed by it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Load the files once. Raises: `ConfigInvalid` if they are unreadable or do not match."""
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(str(self.certificate), str(self.key))
            if self.client_ca is not None:
                context.load_verify_locations(str(self.client_ca))
        except OSError as error:
            raise ConfigInvalid(
                f"cannot load {self.certificate} and {self.key}: {error}",
                hint="pass a PEM certificate chain and its private key",
            ) from error


def check_exposure(host: str, *, requires_token: bool, tls: TlsFiles | None, hint: str) -> None:
    """Refuse to listen on a public address without authentication or encryption.

    Raises: `ConfigInvalid`; its hint names the token options in `hint`.
    """
    if is_loopback(host):
        return
    if not requires_token:
        raise ConfigInvalid(
            f"--host {host} is reachable from other machines, and no API token is required",
            hint=f"pass {hint}, or --insecure",
        )
    if tls is None:
        raise ConfigInvalid(
            f"--host {host} is reachable from other machines, and tokens would be sent unencrypted",
            hint="pass --tls-cert and --tls-key, or --insecure",
        )


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises: `ConfigInvalid`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # V5: a peer that acknowledges nothing for this long is disconnected. Accepted sockets
        # inherit the option.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS_MAX)
        listening.bind((host, port))
        listening.listen(1_024)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot listen for HTTP on {host}:{port}: {error.strerror}",
            hint="choose another port, or 0 for any free one",
        ) from error
    listening.settimeout(0)
    return listening


async def serve_asgi(
    app: ASGIApp, listening: socket.socket, tls: TlsFiles | None, stop: asyncio.Event
) -> None:
    """Serve HTTP/1.1 and HTTP/2 on `listening`, which is closed at the end, until `stop` is set."""
    with needs_extra("serving HTTP needs hypercorn", "serve"):
        from hypercorn.asyncio import serve
        from hypercorn.config import Config
    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.accesslog, config.errorlog = None, logger
    config.graceful_timeout = config.shutdown_timeout = SHUTDOWN_GRACE_S
    config.h2_max_concurrent_streams = STREAMS_MAX
    config.h2_max_header_list_size = SERVICE_HEADER_BYTES_MAX
    config.h11_max_incomplete_size = SERVICE_HEADER_BYTES_MAX
    config.keep_alive_max_requests = 2**31
    config.include_server_header = False
    if tls is not None:
        config.certfile, config.keyfile = str(tls.certificate), str(tls.key)
        if tls.client_ca is not None:
            config.ca_certs, config.verify_mode = str(tls.client_ca), ssl.CERT_REQUIRED
    application: Any = app
    await serve(application, config, shutdown_trigger=stop.wait, mode="asgi")


@contextmanager
def serve_in_thread(
    name: str, app: ASGIApp, listening: socket.socket, tls: TlsFiles | None
) -> Iterator[None]:
    """Serve from a thread of its own for the duration of a `with` block."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve_asgi(app, listening, tls, stop))

    thread = start_thread(name, run)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(stop.set)
        thread.join(2 * SHUTDOWN_GRACE_S)


async def read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises: `InvalidInput` for one that is too large or too slow; `ClientDisconnect`.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > SERVICE_BODY_BYTES_MAX:
        raise _body_too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > SERVICE_BODY_BYTES_MAX:
                    raise _body_too_large()
    except TimeoutError:
        raise InvalidInput(f"the body did not arrive within {_BODY_TIMEOUT_S:g} s") from None
    return bytes(body)


async def discard_body(request: Request) -> None:
    """Read a body that is not needed: closing on unread bytes may drop the response."""
    with suppress(InvalidInput, ClientDisconnect):
        await read_body(request)


def _body_too_large() -> InvalidInput:
    return InvalidInput(f"the body has more than {SERVICE_BODY_BYTES_MAX} bytes")
