"""A fake schema registry with the two requests that readers of topics use.

`GET /subjects/{subject}/versions/latest` and `GET /schemas/ids/{id}`, with the bodies and the error
codes of Confluent's registry. Schemas are registered by a call in this process, without a
compatibility check.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testkit.servers.process import HOST
from testkit.servers.server import served_in_thread


class SchemaRegistry(ThreadingHTTPServer):
    """Schemas by number, and the versions of each subject."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free loopback port."""
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        super().__init__((HOST, 0), _Handler)

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://{HOST}:{self.server_address[1]}"

    def url(self, subject: str) -> str:
        """Return the URL of the latest schema of a subject."""
        return f"{self.endpoint}/subjects/{subject}/versions/latest"

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Register a schema as the latest of a subject; return its number."""
        self.schemas.append(json.dumps(schema))
        number = len(self.schemas)
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body for a GET."""
        match path.strip("/").split("/"):
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                versions = self.subjects[subject]
                number, version = versions[-1], len(versions)
                body = {"subject": subject, "version": version, "id": number}
                return 200, {**body, "schema": self.schemas[number - 1]}
            case ["schemas", "ids", text] if text.isdigit() and 0 < int(text) <= len(self.schemas):
                return 200, {"schema": self.schemas[int(text) - 1]}
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}


class _Handler(BaseHTTPRequestHandler):
    server: SchemaRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, body = self.server.answer(self.path)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Serve for the duration of the block."""
    with served_in_thread(SchemaRegistry()) as server:
        yield server
