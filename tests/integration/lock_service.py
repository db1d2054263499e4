"""A plain HTTP client for a lock service."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import urllib3

from testkit.lockserver import HOST, ServiceProcess

__all__ = ["HOST", "Answer", "Http", "Lines", "ServiceProcess", "eventually"]


@dataclass(slots=True)
class Http:
    """A plain HTTP client, like curl."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(maxsize=64, retries=False, timeout=120.0)
    )

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        reply = self.pool.request(
            method, self.url + path, body=data, headers={**self.headers, **headers}
        )
        return Answer(reply.status, reply.data, dict(reply.headers))

    def lock(self, resource: str, **options: object) -> Answer:
        return self("POST", f"/v1.0-alpha2/lock/{resource}", options)

    def unlock(self, resource: str, lock_id: str) -> Answer:
        return self("DELETE", f"/v1.0-alpha2/lock/{resource}", {"lockID": lock_id})

    def status(self, resource: str) -> dict[str, Any]:
        return self("GET", f"/v1.0-alpha2/lock/{resource}").json

    def lines(self, method: str, path: str, body: object = None) -> Lines:
        return Lines(
            self.pool.request(
                method,
                self.url + path,
                body=None if body is None else json.dumps(body),
                headers={**self.headers, "accept": "application/x-ndjson"},
                preload_content=False,
            )
        )

    def stream(self, resource: str, **options: object) -> Lines:
        return self.lines("POST", f"/v1.0-alpha2/lock/{resource}", options)

    def close(self) -> None:
        self.pool.clear()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


class Lines:
    """A stream of JSON lines; closing it disconnects the client."""

    def __init__(self, reply: urllib3.BaseHTTPResponse) -> None:
        self.reply = reply
        self.status = reply.status
        self._rest = b""

    def next(self, *, skip_pings: bool = True) -> dict[str, Any] | None:
        """Return the next line, or None at the end of the stream."""
        while True:
            while b"\n" not in self._rest:
                more = self.reply.read1(65_536)
                if not more:
                    return None
                self._rest += more
            line, self._rest = self._rest.split(b"\n", 1)
            fields = json.loads(line)
            if not (skip_pings and fields.get("type") == "ping"):
                assert isinstance(fields, dict)
                return fields

    def close(self) -> None:
        self.reply.close()
        self.reply.release_conn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def eventually(condition: Any, *, within_s: float = 60.0, every_s: float = 0.02) -> Any:
    """Return the first true result of `condition`, or fail."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(every_s)
    return found
