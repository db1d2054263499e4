"""The client side of the proxy: one thread per connection, which injects the faults."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, assert_never, cast

from testkit.proxy.faults import (
    Delay,
    Fault,
    Pass,
    ReplyLost,
    ReplyReset,
    RequestLost,
    RequestReset,
    Stall,
    Status,
    Truncate,
)
from testkit.proxy.request import Request
from testkit.proxy.wire import Reply, encode, read_body

_LINGER_RESETS = struct.pack("ii", 1, 0)


class Proxy(Protocol):
    """The part of the proxy that a connection uses."""

    def admit(self, request: Request) -> tuple[int, Fault]:
        """Record a request that has arrived; return its number and its fault."""
        ...

    def forward(self, number: int) -> Reply:
        """Send a recorded request upstream once and return the reply."""
        ...

    def hold(self, hold_ms: float, until: threading.Event | None) -> None:
        """Wait for the time or the event. Raises: `ConnectionAbortedError` if the proxy stops."""
        ...


class Listener(ThreadingHTTPServer):
    """Accepts clients and records their sockets, so that stopping closes idle connections too."""

    request_queue_size = 256
    daemon_threads = False
    block_on_close = True

    def __init__(self, proxy: Proxy) -> None:
        """Listen on a free loopback port."""
        self.proxy = proxy
        self._clients: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Record the client and serve it in a thread."""
        with self._guard:
            self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close at once: an orderly half-close first would turn a reset into an end of stream."""
        with self._guard:
            self._clients.discard(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: most faults disconnect the client."""

    def server_close(self) -> None:
        """Disconnect all clients, then wait for the threads."""
        with self._guard:
            for client in self._clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
        super().server_close()


class _Connection(BaseHTTPRequestHandler):
    """One client connection, kept alive until a fault or the client closes it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        """Read one request, get its fault from the proxy, and inject it."""
        try:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            # The library merges the leading slashes of `self.path`, which a signature includes, so
            # the request line is used.
            method, target = self.requestline.split(" ")[:2]
            body = read_body(self.headers, cast("Any", self.rfile))
        except (OSError, EOFError, ValueError):
            self.close_connection = True
            return
        request = Request(method, target, tuple(self.headers.items()), body)
        proxy = cast("Listener", self.server).proxy
        number, fault = proxy.admit(request)
        try:
            self._perform(fault, proxy, number, method)
        except OSError:
            self.close_connection = True

    def _perform(self, fault: Fault, proxy: Proxy, number: int, method: str) -> None:
        match fault:
            case Pass():
                self._send(proxy.forward(number), method)
            case RequestLost():
                self._hang_up(reset=False)
            case RequestReset():
                self._hang_up(reset=True)
            case ReplyLost():
                proxy.forward(number)
                self._hang_up(reset=False)
            case ReplyReset():
                proxy.forward(number)
                self._hang_up(reset=True)
            case Delay(hold_ms, until):
                proxy.hold(hold_ms, until)
                self._send(proxy.forward(number), method)
            case Stall(hold_ms, forward_first, then_reply, until):
                reply = proxy.forward(number) if forward_first else None
                proxy.hold(hold_ms, until)
                if then_reply:
                    self._send(reply or proxy.forward(number), method)
                else:
                    self._hang_up(reset=False)
            case Status(code, forward_first, headers, body):
                if forward_first:
                    proxy.forward(number)
                self._send(Reply(code, tuple(headers.items()), body), method)
            case Truncate(body_bytes):
                head, body = encode(proxy.forward(number), method)
                self.wfile.write(head + body[:body_bytes])
                self._hang_up(reset=False)
            case _:
                assert_never(fault)

    def _send(self, reply: Reply, method: str) -> None:
        self.wfile.write(b"".join(encode(reply, method)))

    def _hang_up(self, *, reset: bool) -> None:
        if reset:
            # With a linger time of zero, the kernel sends RST instead of FIN on close.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESETS)
        self.close_connection = True
