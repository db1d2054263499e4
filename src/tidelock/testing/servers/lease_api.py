"""The part of Kubernetes' API that a Lease needs, for machines without the real server.

It answers as kube-apiserver does: 404 and 409 as `Status` objects, a `resourceVersion` that grows
with every write of any object, updates only on the version they name. The contract suite runs on
the real server as well, where it can be built, so that the two cannot drift apart unseen.
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
    """The server; its objects are gone with it."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        """Listen on a loopback port of the system's choice."""
        self.objects = _Objects()
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def endpoint(self) -> str:
        """Return the URL that clients are given."""
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
        """Stay silent."""

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
    there = objects.leases.get(key)
    match method:
        case "GET" if there is not None:
            return 200, there
        case "POST" if name is None:
            return (201, objects.write(key, body)) if there is None else _status(409)
        case "PUT" if there is not None:
            wanted = body.get("metadata", {}).get("resourceVersion")
            if not wanted:
                return _status(422)
            if wanted != there["metadata"]["resourceVersion"]:
                return _status(409)
            return 200, objects.write(key, body)
        case "DELETE" if there is not None:
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
    """Serve for as long as the block lasts."""
    server = LeaseApi()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
