"""JSON over HTTP, for etcd's gateway, DynamoDB and Kubernetes. Each request is sent once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

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
)
from tidelock.core.limits import REQUEST_TIMEOUT_MS
from tidelock.lock.providers.backend import BackendUnclear, LeaseTerms
from tidelock.storage.http import HttpReply, HttpRequest, NoReply, NotSent, Transport

_TIMEOUT_SHARE = 5


def request_timeout_ms(terms: LeaseTerms) -> int:
    """Return the timeout of one request: a fifth of the validity, so that four more fit."""
    if terms.validity_ms is None:
        return REQUEST_TIMEOUT_MS
    return min(REQUEST_TIMEOUT_MS, max(1_000, terms.validity_ms // _TIMEOUT_SHARE))


def checked_origin(url: str, setting: str, *, scheme: str = "https") -> str:
    """Return scheme and host of `url`, which must have no other part; `scheme` is the default.

    Raises: `ConfigInvalid`.
    """
    parts = urlsplit(url if "://" in url else f"{scheme}://{url}")
    secret = "@" in parts.netloc
    plain = not parts.path.rstrip("/") and not parts.query and not secret and "," not in url
    try:
        plain = plain and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        shown = "" if secret else f", got {url!r}"
        raise ConfigInvalid(
            f"{setting}: expected an http or https URL with one host{shown}",
            hint=f"use {scheme}://host:port",
        )
    return f"{parts.scheme}://{parts.netloc}"


class RequestSigner(Protocol):
    """Adds credentials to a request."""

    def __call__(self, method: str, path: str, headers: dict[str, str], body: bytes, /) -> None:
        """Add the required headers to `headers`."""


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A definite reply: a status below 500, and its JSON object."""

    status: int
    body: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class JsonService:
    """One server. A request ends with `JsonReply`, `BackendUnclear` or an exception."""

    def __init__(
        self,
        origin: str,
        *,
        clock: Clock,
        timeout_ms: int,
        credentials: RequestSigner | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._origin = origin
        self._transport = Transport(clock, ca_file=ca_file)
        self._timeout_ms = timeout_ms
        self._credentials = credentials

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> JsonReply | BackendUnclear:
        """Send a request once. `StoreUnreachable` and `Throttled` mean that it had no effect."""
        data = b"" if body is None else json.dumps(body).encode()
        all_headers = {"host": urlsplit(self._origin).netloc, "accept": "application/json"}
        if data:
            all_headers["content-type"] = "application/json"
        all_headers.update(headers or {})
        if self._credentials is not None:
            self._credentials(method, path, all_headers, data)
        request = HttpRequest(method, self._origin, path, all_headers, data or None)
        match self._transport.send(request, timeout_ms=self._timeout_ms):
            case NotSent(cause):
                raise StoreUnreachable(
                    f"{self._origin}: {cause}", hint="check the address and the network"
                )
            case NoReply(cause):
                return BackendUnclear(cause)
            case HttpReply(status=429):
                raise Throttled(f"{self._origin} returned 429 Too Many Requests")
            case HttpReply(status=status) if status >= 500 or status == 408:
                return BackendUnclear(f"the server returned {status}")
            case HttpReply(status=status, body=raw):
                return JsonReply(status, _object(raw, self._origin))

    def query(self, method: str, path: str, body: object = None) -> JsonReply:
        """Send a request that may be sent again. Raises: `StoreUnreachable` without a reply."""
        reply = self.send(method, path, body)
        if isinstance(reply, BackendUnclear):
            raise reply.error(self._origin)
        return reply

    def error(self, reply: JsonReply, action: str, code: str = "") -> TidelockError:
        """Return the error for a reply that refuses `action` permanently."""
        text = f"{action}: {self._origin} returned {reply.status} {code}".strip()
        match reply.status:
            case 401 | 403:
                return PermissionDenied(text, hint="check the credentials and their permissions")
            case 404:
                return NotFound(text, hint="check the address and the name")
            case _:
                return InvalidInput(text, hint="check the settings of this provider")

    def close(self) -> None:
        self._transport.close()


def _object(raw: bytes, origin: str) -> Mapping[str, Any]:
    if not raw.strip():
        return {}
    try:
        # A gateway may send several objects, one per line; the first is the reply.
        found, _ = json.JSONDecoder().raw_decode(raw.decode().lstrip())
    except ValueError as error:
        raise DataCorrupt(f"{origin}: expected a JSON reply") from error
    return found if isinstance(found, dict) else {"value": found}
