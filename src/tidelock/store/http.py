"""One HTTP exchange: pooled connections, no retry, no redirect, and an honest account of failure.

The three clouds are spoken to through this file alone. Libraries that retry by themselves turn a
lost reply into a false "somebody else wrote", so nothing below sends a request twice.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import urllib.request
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import urllib3
from urllib3 import exceptions as failures
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Retry, Timeout, create_urllib3_context

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid
from tidelock.base.limits import CONNECTION_IDLE_MS_MAX, CONNECTIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ_BYTES = 1 << 20
_ONCE = Retry(total=False, redirect=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A request ready to go: `target` is path and query, percent-encoded."""

    method: str
    origin: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply: its head was complete, and its body as long as announced."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request never left: no connection was made."""

    cause: str


@dataclass(frozen=True, slots=True)
class NoReply:
    """The request may have arrived, but no whole reply came back."""

    cause: str


Answer = Reply | NotSent | NoReply


class Transport:
    """Connections to the hosts of one store, shared by any number of threads.

    `secret_query` is added to each target as it is written to the socket, so that neither an
    error nor a log line of the libraries in between can show it. `ca_file` holds the authorities
    to trust instead of the system's.
    """

    def __init__(self, clock: Clock, *, secret_query: str = "", ca_file: str | None = None) -> None:
        """Open nothing yet."""
        self._clock = clock
        self._secret_query = secret_query
        self._ca_file = ca_file
        self._pools: dict[str, _Pool] = {}
        self._pid = os.getpid()
        self._closed = False

    def send(self, request: Request, *, timeout_ms: float) -> Answer:
        """Send `request` exactly once and return what came back."""
        if self._closed:
            return NotSent("the store is closed")
        deadline_ms = self._clock.now().monotonic_ms + timeout_ms
        pool = self._pool(request.origin)
        try:
            response = pool.urlopen(
                request.method,
                request.target,
                body=request.body,
                headers=request.headers,
                retries=_ONCE,
                timeout=Timeout(total=max(timeout_ms, 1) / 1000),
                preload_content=False,
                decode_content=False,
                assert_same_host=False,
            )
            return self._whole(request.method, response, deadline_ms)
        except (failures.HTTPError, http.client.HTTPException, OSError) as error:
            return _failure(error, timeout_ms)

    def close(self) -> None:
        """Close every connection; a request after this is not sent."""
        self._closed = True
        for pool in list(self._pools.values()):
            pool.close()

    def _whole(
        self, method: str, response: urllib3.BaseHTTPResponse, deadline_ms: float
    ) -> Reply | NoReply:
        # The socket's time-out bounds each read; the deadline bounds a body that trickles in.
        parts: list[bytes] = []
        while part := response.read1(_READ_BYTES, decode_content=False):
            parts.append(part)
            if self._clock.now().monotonic_ms > deadline_ms:
                response.close()
                return NoReply("the reply was still arriving when its time was over")
        response.release_conn()
        headers = response.headers
        framed = "content-length" in headers or "transfer-encoding" in headers
        bodiless = method == "HEAD" or response.status == 204
        if 200 <= response.status < 300 and not framed and not bodiless:
            # A body that ends where the connection ends may have been cut short unseen.
            return NoReply("the reply does not say how long it is")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return Reply(response.status, headers, body)

    def _pool(self, origin: str) -> _Pool:
        if self._pid != os.getpid():
            # A child of a fork must not write into the sockets of its parent.
            self._pools, self._pid = {}, os.getpid()
        pool = self._pools.get(origin)
        if pool is None:
            # Two threads may both build one; `setdefault` lets one of them win.
            pool = self._pools.setdefault(origin, self._connect(origin))
        return pool

    def _connect(self, origin: str) -> _Pool:
        url = urllib3.util.parse_url(origin)
        scheme, host = url.scheme or "http", url.host or ""
        options: dict[str, Any] = {"maxsize": CONNECTIONS_MAX, "socket_options": _SOCKET_OPTIONS}
        if scheme == "https":
            options["ssl_context"] = _tls(self._ca_file)
        proxy = _proxy_for(scheme, host)
        pool = _manager(proxy, options).connection_from_host(host, url.port, scheme)
        kind = _PoliteTls if isinstance(pool, urllib3.HTTPSConnectionPool) else _Polite
        pool.ConnectionCls = cast(
            "Any", partial(kind, clock=self._clock, secret_query=self._secret_query)
        )
        # A proxy of plain HTTP must be told the whole URL; one of TLS only opens a tunnel.
        return _Pool(pool, origin if proxy and scheme == "http" else "")


class _Pool:
    """A urllib3 pool of one origin, with what its proxy wants before each target."""

    __slots__ = ("_pool", "_target_prefix")

    def __init__(self, pool: urllib3.HTTPConnectionPool, target_prefix: str) -> None:
        self._pool = pool
        self._target_prefix = target_prefix

    def urlopen(self, method: str, target: str, **options: Any) -> urllib3.BaseHTTPResponse:
        return self._pool.urlopen(method, self._target_prefix + target, **options)

    def close(self) -> None:
        self._pool.close()


class _WholeHead(http.client.HTTPResponse):
    """A response that refuses a head cut short.

    `http.client` takes the end of the stream for the end of the head, so half an ETag would pass
    for a whole one.
    """

    def begin(self) -> None:
        stream = self.fp
        self.fp = cast("Any", _HeadLines(cast("BinaryIO", stream)))
        try:
            super().begin()
        finally:
            self.fp = stream


class _HeadLines:
    """The lines of a head, each of which must be whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._begun = False

    def readline(self, limit: int = -1) -> bytes:
        line = self._stream.readline(limit)
        # Nothing at all is a closed connection, which http.client names well by itself.
        if not line.endswith(b"\n") and (line or self._begun):
            raise http.client.IncompleteRead(line)
        self._begun = True
        return line

    def close(self) -> None:
        self._stream.close()


class _Polite(HTTPConnection):
    """A connection that is not used again after a long pause, and keeps its secret to itself."""

    response_class = _WholeHead

    def __init__(self, *args: Any, clock: Clock, secret_query: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._clock = clock
        self._secret_query = secret_query
        self._used_ms = clock.now().monotonic_ms

    @property
    def is_connected(self) -> bool:
        # Servers drop idle connections. A write sent into one that is just being dropped would
        # be unclear for nothing, so the pool is told to open another.
        idle_ms = self._clock.now().monotonic_ms - self._used_ms
        return super().is_connected and idle_ms < CONNECTION_IDLE_MS_MAX

    def putrequest(self, method: str, url: str, *args: Any, **options: Any) -> None:
        self._used_ms = self._clock.now().monotonic_ms
        if self._secret_query:
            url = f"{url}{'&' if '?' in url else '?'}{self._secret_query}"
        super().putrequest(method, url, *args, **options)


class _PoliteTls(_Polite, HTTPSConnection):
    """The same over TLS."""


_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


def _tls(ca_file: str | None) -> ssl.SSLContext:
    # One context for all connections: loading the authorities takes longer than a request.
    context = create_urllib3_context()
    if ca_file is None:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise ConfigInvalid(
            f"the authorities in {ca_file} cannot be loaded", hint="name a file of certificates"
        ) from error
    return context


def _proxy_for(scheme: str, host: str) -> str | None:
    if urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(scheme)


def _manager(proxy: str | None, options: dict[str, Any]) -> urllib3.PoolManager:
    if proxy is None:
        return urllib3.PoolManager(**options)
    try:
        return urllib3.ProxyManager(proxy, **options)
    except (failures.LocationValueError, failures.ProxySchemeUnknown) as error:
        # The URL itself is not shown: it may hold a password.
        raise ConfigInvalid(
            "the proxy named by the environment is not an http or https URL",
            hint="check HTTP_PROXY and HTTPS_PROXY",
        ) from error


def _failure(error: Exception, timeout_ms: float) -> NotSent | NoReply:
    match error:
        case failures.NameResolutionError():
            return NotSent("its name cannot be resolved")
        case failures.NewConnectionError():
            return NotSent(f"no connection: {_errno_text(error)}")
        case failures.ConnectTimeoutError():
            return NotSent(f"no connection within {timeout_ms:.0f} ms")
        case failures.ProxyError():
            return NotSent("the proxy cannot be reached")
        case failures.ClosedPoolError():
            return NotSent("the store is closed")
        case failures.SSLError() if isinstance(error.args[0], ssl.SSLCertVerificationError):
            return NotSent("its certificate is not trusted (SSL_CERT_FILE names authorities)")
        case failures.TimeoutError():
            return NoReply(f"no reply within {timeout_ms:.0f} ms")
        case failures.ProtocolError() | failures.SSLError():
            inner = error.args[-1] if error.args else error
            return NoReply(f"the connection broke: {type(inner).__name__}")
        case _:
            return NoReply(f"the connection broke: {type(error).__name__}")


def _errno_text(error: Exception) -> str:
    cause = error.__cause__
    return os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "refused"
