"""What a running server looks like to a test."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Protocol
from urllib.parse import urlsplit

from tidelock.testing.servers.process import ServerProcess


class Server(Protocol):
    """A real server on loopback that lives until `stop`."""

    @property
    def name(self) -> str:
        """Return what the server is called, with its version where that matters."""
        ...

    @property
    def endpoint(self) -> str:
        """Return the URL, or host and port, that clients are given."""
        ...

    def stop(self) -> None:
        """Kill the server and remove its data."""
        ...


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that needs no credentials: an endpoint and the process behind it."""

    name: str
    endpoint: str
    process: ServerProcess

    @property
    def host(self) -> str:
        """Return the loopback address."""
        return self.endpoint.rpartition(":")[0].rpartition("/")[2]

    @property
    def port(self) -> int:
        """Return the port clients connect to."""
        return int(self.endpoint.rpartition(":")[2].partition("/")[0])

    def stop(self) -> None:
        """Kill the server and remove its data."""
        self.process.stop()


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP reply, read to its end. Header names are in lower case."""

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
    """Send one request on a connection of its own, and never send it twice.

    Client libraries retry; a server's own answer to one request is seen only without them.
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
