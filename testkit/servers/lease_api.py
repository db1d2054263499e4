"""A fake of the Kubernetes API for Leases, for machines without the real server.

It behaves like kube-apiserver: 404 and 409 are `Status` objects, the `resourceVersion` increases
with every write of any object, and an update must have the current version. The contract suite also
runs on the real server, where it is built, so that differences are found.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from testkit.servers.server import served_in_thread

_PATH = re.compile(
    r"/apis/coordination\.k8s\.io/v1/namespaces/([a-z0-9-]+)/leases(?:/([a-z0-9.-]+))?"
)
_REASONS = {404: "NotFound", 405: "MethodNotAllowed", 409: "Conflict", 422: "Invalid"}


@dataclass(slots=True)
class _Objects:
    mutex: threading.Lock = field(default_factory=threading.Lock)
    leases: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    version: int = 100

    def write(self, key: tuple[str, str], lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        lease["metadata"] = {
            **lease.get("metadata", {}),
            "name": key[1],
            "namespace": key[0],
            "resourceVersion": str(self.version),
        }
        self.leases[key] = lease
        return lease


class LeaseApi(ThreadingHTTPServer):
    """The server; it stores its objects in memory."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        """Listen on a free loopback port."""
        self.objects = _Objects()
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        found = _PATH.fullmatch(self.path)
        if found is None:
            status, answer = _status(404)
        else:
            objects = cast("LeaseApi", self.server).objects
            with objects.mutex:
                status, answer = _act(objects, self.command, found[1], found[2], body)
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _act(
    objects: _Objects, method: str, namespace: str, name: str | None, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    key = (namespace, name or str(body.get("metadata", {}).get("name")))
    stored = objects.leases.get(key)
    match method:
        case "GET" if stored is not None:
            return 200, stored
        case "POST" if name is None:
            return (201, objects.write(key, body)) if stored is None else _status(409)
        case "PUT" if stored is not None:
            version = body.get("metadata", {}).get("resourceVersion")
            if not version:
                return _status(422)
            if version != stored["metadata"]["resourceVersion"]:
                return _status(409)
            return 200, objects.write(key, body)
        case "DELETE" if stored is not None:
            del objects.leases[key]
            return 200, {"kind": "Status", "status": "Success"}
        case "GET" | "PUT" | "DELETE":
            return _status(404)
        case _:
            return _status(405)


def _status(code: int) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "reason": _REASONS[code], "code": code}


@contextmanager
def lease_api() -> Iterator[LeaseApi]:
    """Serve for the duration of the block."""
    with served_in_thread(LeaseApi()) as server:
        yield server
