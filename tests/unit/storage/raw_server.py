"""A server that sends exactly the bytes given by a test."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: "e"\r\n\r\nok'


@dataclass(slots=True)
class RawServer:
    """The scripted replies, one list per connection in order, and the received requests."""

    port: int
    scheme: str = "http"
    received: list[bytes] = field(default_factory=list)
    connections: int = 0
    hung_up: threading.Event = field(default_factory=threading.Event)
    heard: threading.Event = field(default_factory=threading.Event)

    def wait_for_request(self) -> None:
        """Wait until a request has been received."""
        assert self.heard.wait(60)

    @property
    def origin(self) -> str:
        """The URL of the server."""
        return f"{self.scheme}://127.0.0.1:{self.port}"


@contextmanager
def raw_server(
    *connections: list[bytes | None], tls: ssl.SSLContext | None = None
) -> Iterator[RawServer]:
    """Serve one connection after the other; None stays silent until the client disconnects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = RawServer(listener.getsockname()[1], "http" if tls is None else "https")

        def serve() -> None:
            for replies in connections:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                server.connections += 1
                with client, suppress(OSError):
                    if tls is not None:
                        client = tls.wrap_socket(client, server_side=True)
                    _converse(client, replies, server)
                    client.close()
                server.hung_up.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert not thread.is_alive()


def _converse(client: socket.socket, replies: list[bytes | None], server: RawServer) -> None:
    for reply in replies:
        request = _request(client)
        if not request:
            return
        server.received.append(request)
        server.heard.set()
        if reply is None:
            client.recv(1)
            return
        client.sendall(reply)


def _request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(65_536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lowered = head.lower()
    if b"content-length:" in lowered:
        length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += client.recv(65_536)
    return head + b"\r\n\r\n" + body
