"""The interface of a running server, and single HTTP requests to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from testkit.servers.process import ServerProcess

H = TypeVar("H", bound=ThreadingHTTPServer)


class Server(Protocol):
    """A real server on loopback that runs until `stop`."""

    @property
    def name(self) -> str:
        """The name of the server, with its version where it matters."""
        ...

    @property
    def endpoint(self) -> str:
        """The URL, or host and port, for clients."""
        ...

    def stop(self) -> None:
        """Kill the server and remove its data."""
        ...


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server without credentials: its endpoint and its process."""

    name: str
    endpoint: str
    process: ServerProcess

    @property
    def host(self) -> str:
        """The loopback address."""
        return self.endpoint.rpartition(":")[0].rpartition("/")[2]

    @property
    def port(self) -> int:
        """The port for clients."""
        return int(self.endpoint.rpartition(":")[2].partition("/")[0])

    def stop(self) -> None:
        """Kill the server and remove its data."""
        self.process.stop()


@dataclass(frozen=True, slots=True)
class Reply:
    """One complete HTTP reply. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def send(
    url: str,
    *,
    method: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    deadline_s: float = 30.0,
) -> Reply:
    """Send one request once, on a new connection.

    Client libraries retry, which would hide the server's reply to the first request.
    """
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=deadline_s)
    try:
        connection.request(method, target, body=body or None, headers=headers or {})
        reply = connection.getresponse()
        lowered = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(status=reply.status, headers=lowered, body=reply.read())
    finally:
        connection.close()


@contextmanager
def served_in_thread(server: H) -> Iterator[H]:
    """Serve the requests of an HTTP server of this process in a thread."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
