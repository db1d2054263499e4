"""HTTP for the cloud stores: pooled connections, no hidden retries or redirects, exact failures.

All requests to S3, Google Cloud Storage and Azure go through this module. Libraries that retry by
themselves turn a lost reply into a false "another writer was first", so `Transport` sends each
request exactly once, and `Exchange` repeats only what may be repeated.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, assert_never, cast
from urllib.parse import SplitResult, urlsplit
from xml.etree import ElementTree as ET

import urllib3
from urllib3 import exceptions as failures
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Retry, Timeout, create_urllib3_context

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    ConfigInvalid,
    DataCorrupt,
    InvalidInput,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
    Throttled,
    TidelockError,
    Unsupported,
)
from tidelock.core.ids import IdSource
from tidelock.core.limits import (
    CONFLICT_RETRIES,
    CONNECTION_IDLE_MS_MAX,
    CONNECTIONS_MAX,
    RESEND_TRIES,
    RETRY_AFTER_MS_MAX,
)
from tidelock.core.outcome import Landed
from tidelock.core.retry import Backoff
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    Unclear,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


_READ_BYTES = 1 << 20
_ONCE = Retry(total=False, redirect=False)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request: `target` is path and query, percent-encoded."""

    method: str
    origin: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete reply: the head was complete, and the body had the declared length."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request was not sent: there was no connection."""

    cause: str


@dataclass(frozen=True, slots=True)
class NoReply:
    """The request may have arrived, but there was no complete reply."""

    cause: str


Answer = HttpReply | NotSent | NoReply


class Transport:
    """Connections to the hosts of one store, shared by any number of threads.

    `secret_query` is added to each target as it is written to the socket, so that neither an
    error nor a log line of the libraries in between can show it. `ca_file` has the authorities
    to trust instead of those of the system.
    """

    def __init__(self, clock: Clock, *, secret_query: str = "", ca_file: str | None = None) -> None:
        """Create the transport; opens no connection."""
        self._clock = clock
        self._secret_query = secret_query
        self._ca_file = ca_file
        self._pools: dict[str, _Pool] = {}
        self._pid = os.getpid()
        self._closed = False

    def send(self, request: HttpRequest, *, timeout_ms: float) -> Answer:
        """Send `request` exactly once."""
        if self._closed:
            return NotSent("the store is closed")
        deadline_ms = self._clock.now().monotonic_ms + timeout_ms
        pool = self._pool(request.origin)
        try:
            response = pool.connections.urlopen(
                request.method,
                pool.target_prefix + request.target,
                body=request.body,
                headers=request.headers,
                retries=_ONCE,
                timeout=Timeout(total=max(timeout_ms, 1) / 1000),
                preload_content=False,
                decode_content=False,
                assert_same_host=False,
            )
            return self._complete_reply(request.method, response, deadline_ms)
        except (failures.HTTPError, http.client.HTTPException, OSError) as error:
            return _failure(error, timeout_ms)

    def close(self) -> None:
        """Close every connection; a request after this is not sent."""
        self._closed = True
        for pool in list(self._pools.values()):
            pool.connections.close()

    def _complete_reply(
        self, method: str, response: urllib3.BaseHTTPResponse, deadline_ms: float
    ) -> HttpReply | NoReply:
        # The socket timeout bounds each read; the deadline bounds a body that arrives slowly.
        parts: list[bytes] = []
        while part := response.read1(_READ_BYTES, decode_content=False):
            parts.append(part)
            if self._clock.now().monotonic_ms > deadline_ms:
                response.close()
                return NoReply("the reply was incomplete at the deadline")
        response.release_conn()
        headers = response.headers
        framed = "content-length" in headers or "transfer-encoding" in headers
        bodiless = method == "HEAD" or response.status == 204
        if 200 <= response.status < 300 and not framed and not bodiless:
            # A body that ends with the connection may have been truncated.
            return NoReply("the reply does not have a length")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return HttpReply(response.status, headers, body)

    def _pool(self, origin: str) -> _Pool:
        if self._pid != os.getpid():
            # A forked child must not use the sockets of its parent.
            self._pools, self._pid = {}, os.getpid()
        pool = self._pools.get(origin)
        if pool is None:
            # Two threads may both create one; `setdefault` keeps one of them.
            pool = self._pools.setdefault(origin, self._connect(origin))
        return pool

    def _connect(self, origin: str) -> _Pool:
        url = urllib3.util.parse_url(origin)
        scheme, host = url.scheme or "http", url.host or ""
        options: dict[str, Any] = {"maxsize": CONNECTIONS_MAX, "socket_options": _SOCKET_OPTIONS}
        if scheme == "https":
            options["ssl_context"] = _tls(self._ca_file)
        bypass = urllib.request.proxy_bypass(host)
        proxy = None if bypass else urllib.request.getproxies().get(scheme)
        pool = _manager(proxy, options).connection_from_host(host, url.port, scheme)
        kind = _TlsConnection if isinstance(pool, urllib3.HTTPSConnectionPool) else _Connection
        pool.ConnectionCls = cast(
            "Any", partial(kind, clock=self._clock, secret_query=self._secret_query)
        )
        # A proxy for plain HTTP needs the whole URL; a proxy for TLS only opens a tunnel.
        return _Pool(pool, origin if proxy and scheme == "http" else "")


class _Pool(NamedTuple):
    """A urllib3 pool of one origin, with the prefix that its proxy needs before each target."""

    connections: urllib3.HTTPConnectionPool
    target_prefix: str


class _CompleteHeadResponse(http.client.HTTPResponse):
    """A response that rejects a truncated head.

    `http.client` treats the end of the stream as the end of the head, so half an ETag would be
    accepted.
    """

    def begin(self) -> None:
        stream = self.fp
        self.fp = cast("Any", _HeadLines(cast("BinaryIO", stream)))
        try:
            super().begin()
        finally:
            self.fp = stream


class _HeadLines:
    """The lines of a head, each of which must be complete."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._begun = False

    def readline(self, limit: int = -1) -> bytes:
        line = self._stream.readline(limit)
        # No bytes at all is a closed connection, which http.client reports itself.
        if not line.endswith(b"\n") and (line or self._begun):
            raise http.client.IncompleteRead(line)
        self._begun = True
        return line

    def close(self) -> None:
        self._stream.close()


class _Connection(HTTPConnection):
    """A connection that is not reused after a long pause, and that adds the secret query itself."""

    response_class = _CompleteHeadResponse

    def __init__(self, *args: Any, clock: Clock, secret_query: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._clock = clock
        self._secret_query = secret_query
        self._used_ms = clock.now().monotonic_ms

    @property
    def is_connected(self) -> bool:
        # Servers close idle connections. A write sent over one that is being closed would have
        # an unclear result without need, so the pool opens another.
        idle_ms = self._clock.now().monotonic_ms - self._used_ms
        return super().is_connected and idle_ms < CONNECTION_IDLE_MS_MAX

    def putrequest(self, method: str, url: str, *args: Any, **options: Any) -> None:
        self._used_ms = self._clock.now().monotonic_ms
        if self._secret_query:
            url = f"{url}{'&' if '?' in url else '?'}{self._secret_query}"
        super().putrequest(method, url, *args, **options)


class _TlsConnection(_Connection, HTTPSConnection):
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
            f"cannot load the certificate authorities in {ca_file}",
            hint="set a file of certificates",
        ) from error
    return context


def _manager(proxy: str | None, options: dict[str, Any]) -> urllib3.PoolManager:
    if proxy is None:
        return urllib3.PoolManager(**options)
    try:
        return urllib3.ProxyManager(proxy, **options)
    except (failures.LocationValueError, failures.ProxySchemeUnknown) as error:
        # The URL is not shown: it may contain a password.
        raise ConfigInvalid(
            "the proxy in the environment is not an http or https URL",
            hint="check HTTP_PROXY and HTTPS_PROXY",
        ) from error


def _failure(error: Exception, timeout_ms: float) -> NotSent | NoReply:
    match error:
        case failures.NameResolutionError():
            return NotSent("the host name cannot be resolved")
        case failures.NewConnectionError():
            return NotSent(f"no connection: {_errno_text(error)}")
        case failures.ConnectTimeoutError():
            return NotSent(f"no connection within {timeout_ms:.0f} ms")
        case failures.ProxyError():
            return NotSent("the proxy cannot be reached")
        case failures.ClosedPoolError():
            return NotSent("the store is closed")
        case failures.SSLError() if isinstance(error.args[0], ssl.SSLCertVerificationError):
            return NotSent("the certificate is not trusted (SSL_CERT_FILE sets the authorities)")
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


Build = Callable[[], HttpRequest]
"""Builds the request again for each attempt: a signature contains the time of signing."""

_RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})
_BACKOFF = Backoff(first_ms=25, max_ms=2_000)


@dataclass(frozen=True, slots=True)
class Contended:
    """Nothing was written, because another write is in progress: the write may be sent again."""

    cause: str


Classify = Callable[[HttpReply], PutReply | Contended]
"""Returns what a reply to a put means for one store; raises if the request itself is wrong."""


class Exchange:
    """Sends the requests of one store, each within `timeout_ms`.

    `observe` is called with the verb of every request that was sent. `moved` may switch to
    the address in a redirect, which proves that nothing was done; the request is then built and
    sent again.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_ms: int,
        clock: Clock,
        ids: IdSource,
        observe: Callable[[str], None] | None = None,
        moved: Callable[[HttpReply], bool] | None = None,
    ) -> None:
        """Send through `transport`; `clock` and `ids` time the pauses between attempts."""
        self._transport = transport
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._ids = ids
        self._observe = observe
        self._moved = moved

    def send(self, verb: str, build: Build, *, subject: str) -> HttpReply:
        """Send an idempotent request, with retries, until the reply is definite.

        Raises `Throttled` or `StoreUnreachable` if there is none in time.
        """
        deadline_ms = self._deadline_ms()
        attempt = 0
        while True:
            answer = self._send_once(verb, build, self._share_ms(attempt, deadline_ms))
            if isinstance(answer, HttpReply) and answer.status not in _RETRYABLE:
                return answer
            if not self._pause(attempt, RESEND_TRIES, self._retry_after_ms(answer), deadline_ms):
                raise self._failed(answer, subject)
            attempt += 1

    def put(self, build: Build, classify: Classify, mode: PutMode, *, subject: str) -> PutReply:
        """Send a write, and return the store's own answer.

        An unconditional write is repeated until the answer is definite. A conditional write is
        sent once, and again only after an answer that proves that nothing was written. Raises
        `StoreUnreachable` only if no attempt can have reached the store.
        """
        repeatable = isinstance(mode, Overwrite)
        tries = RESEND_TRIES if repeatable else CONFLICT_RETRIES + 1
        deadline_ms = self._deadline_ms()
        may_have_landed: Unclear | None = None
        attempt = 0
        while True:
            timeout_ms = self._share_ms(attempt if repeatable else RESEND_TRIES - 1, deadline_ms)
            try:
                answer = self._send_once("put", build, timeout_ms)
                result = self._result(answer, classify)
            except TidelockError:
                if may_have_landed is not None:
                    # This attempt did nothing, but an earlier one may have.
                    return may_have_landed
                raise
            if isinstance(result, Landed | Refused):
                return result
            if isinstance(result, Unclear):
                may_have_landed = result
            if not (repeatable or isinstance(result, Contended)):
                break
            pause_ms = self._retry_after_ms(answer) if repeatable else None
            if not self._pause(attempt, tries, pause_ms, deadline_ms):
                break
            attempt += 1
        if may_have_landed is not None:
            return may_have_landed
        match result:
            case NotSent():
                raise self._failed(result, subject)
            case Contended(cause):
                return Busy(cause=cause)
            case _:
                return result

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _result(self, answer: Answer, classify: Classify) -> PutReply | Contended | NotSent:
        match answer:
            case NotSent():
                return answer
            case NoReply(cause):
                return Unclear(cause)
            case HttpReply(status=429):
                return Busy(self._retry_after_ms(answer), cause="429 too many requests")
            case HttpReply(status=status) if status == 408 or (status >= 500 and status != 501):
                # A gateway may give up on a write that lands behind it.
                return Unclear(f"the store answered {status}", self._retry_after_ms(answer))
            case HttpReply():
                return classify(answer)
            case _:
                assert_never(answer)

    def _send_once(self, verb: str, build: Build, timeout_ms: float) -> Answer:
        answer = self._observed(verb, self._transport.send(build(), timeout_ms=timeout_ms))
        if self._moved is not None and isinstance(answer, HttpReply) and self._moved(answer):
            answer = self._observed(verb, self._transport.send(build(), timeout_ms=timeout_ms))
        return answer

    def _observed(self, verb: str, answer: Answer) -> Answer:
        if self._observe is not None and not isinstance(answer, NotSent):
            self._observe(verb)
        return answer

    def _deadline_ms(self) -> float:
        return self._clock.now().monotonic_ms + self._timeout_ms

    def _share_ms(self, attempt: int, deadline_ms: float) -> float:
        # Each attempt except the last leaves half of the remaining time to the next.
        left_ms = deadline_ms - self._clock.now().monotonic_ms
        return left_ms if attempt == RESEND_TRIES - 1 else left_ms / 2

    def _pause(
        self, attempt: int, tries: int, requested_ms: int | None, deadline_ms: float
    ) -> bool:
        """Wait before the next attempt; return False if there is none left."""
        pause_ms = max(_BACKOFF.delay_ms(attempt, self._ids.jitter()), requested_ms or 0)
        if attempt + 1 >= tries or self._clock.now().monotonic_ms + pause_ms >= deadline_ms:
            return False
        self._clock.sleep_ms(pause_ms)
        return True

    def _retry_after_ms(self, answer: Answer) -> int | None:
        if not isinstance(answer, HttpReply):
            return None
        header = answer.headers.get("retry-after")
        return retry_after_ms(header, self._clock.now().wall_epoch_ms) if header else None

    def _failed(self, answer: Answer, subject: str) -> TidelockError:
        match answer:
            case HttpReply(status=429 | 503 as status):
                return Throttled(
                    f"{subject}: the store is throttling requests: it answered {status}",
                    hint="send fewer concurrent requests, or retry later",
                    retry_after_ms=self._retry_after_ms(answer),
                )
            case HttpReply(status=status):
                cause = f"the store answered {status}"
            case NoReply(cause) | NotSent(cause):
                pass
            case _:
                assert_never(answer)
        return StoreUnreachable(
            f"{subject}: {cause}", hint="check the endpoint and the network, then try again"
        )


def retry_after_ms(header: str, now_epoch_ms: int) -> int | None:
    """Parse `Retry-After`, in seconds or as a date; None if it is neither.

    The pause is bounded: a store cannot make the client wait for a day.
    """
    if re.fullmatch(r"[0-9]{1,9}", header.strip()):
        pause_ms = int(header) * 1000
    else:
        date_ms = http_date_ms(header)
        if date_ms is None:
            return None
        pause_ms = max(0, date_ms - now_epoch_ms)
    return min(pause_ms, RETRY_AFTER_MS_MAX)


def http_date_ms(text: str) -> int | None:
    """Parse the date of an HTTP header; None if it is not a date."""
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    # Dates in the obsolete formats of HTTP are in GMT and have no offset.
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def modified_ms(reply: HttpReply) -> int:
    """Return the modification time in the reply; 0 if it has none."""
    return http_date_ms(reply.headers.get("last-modified", "")) or 0


def condition_headers(mode: PutMode) -> dict[str, str]:
    """Return the HTTP headers of a condition."""
    match mode:
        case Create():
            return {"if-none-match": "*"}
        case Match(version):
            if not version.isascii() or not version.isprintable():
                raise InvalidInput(
                    f"{version!a} is not a version", hint="use one that this store returned"
                )
            return {"if-match": version}
        case Overwrite():
            return {}
        case _:
            assert_never(mode)


def error_for_reply(reply: HttpReply, code: str, *, subject: str, hint: str = "") -> TidelockError:
    """Return the error for a final reply that is not a success.

    Only the error code is shown: the free text of the store may repeat what was sent.
    """
    shown = code if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", code) else ""
    message = f"{subject}: the store answered {f'{reply.status} {shown}'.strip()}"
    match reply.status:
        case 401 | 403:
            return PermissionDenied(
                message, hint=hint or "check the credentials and their permissions"
            )
        case 404:
            return NotFound(message, hint=hint or "check the name of the bucket or container")
        case 405 | 501:
            return Unsupported(message, hint=hint or "use a store with conditional writes")
        case 429:
            return Throttled(message, hint=hint or "retry later")
        case status if 300 <= status < 400:
            return ConfigInvalid(message, hint=hint or "check the endpoint and the region")
        case status if status < 500:
            return InvalidInput(message, hint=hint or "check the settings of this store")
        case _:
            return StoreUnreachable(message, hint=hint or "retry later")


def parse_endpoint(endpoint: str, name: str, *, hint: str) -> SplitResult:
    """Parse the URL of a server. Raises: `ConfigInvalid` without the URL, which may be secret."""
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc or url.query:
        raise ConfigInvalid(f"{name}: expected an http or https URL of a host", hint=hint)
    return url


def parse_xml(body: bytes, *, subject: str) -> ET.Element:
    """Return the root element of `body`, or raise `DataCorrupt`.

    No store sends a document type. One could declare entities that expand without bound, so it is
    rejected before parsing.
    """
    try:
        text = body.decode("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise DataCorrupt(f"{subject}: the store's reply declares a document type")
        return ET.fromstring(text)  # noqa: S314 - entities are rejected above
    except (UnicodeDecodeError, ET.ParseError) as error:
        raise DataCorrupt(
            f"{subject}: the store's reply is not XML",
            hint="check that the endpoint belongs to an object store",
        ) from error


def text_of(element: ET.Element, name: str) -> str:
    """Return the text of the child `name` in any namespace; "" if there is none."""
    return element.findtext(f"{{*}}{name}") or ""


def document_text(body: bytes, name: str) -> str:
    """Return the text of the child `name` of an XML document; "" if there is none."""
    try:
        return text_of(parse_xml(body, subject="reply"), name)
    except DataCorrupt:
        return ""


def error_code(body: bytes) -> str:
    """Return the `Code` of an error document; "" if there is none."""
    return document_text(body, "Code").strip() if b"<Code>" in body else ""
