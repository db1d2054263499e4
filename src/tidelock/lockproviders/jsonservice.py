"""JSON over HTTP, as etcd's gateway, DynamoDB and Kubernetes speak it; every request sent once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from tidelock.base.clock import Clock
from tidelock.base.errors import (
    ConfigInvalid,
    DataCorrupt,
    InvalidInput,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
    Throttled,
    TidelockError,
)
from tidelock.base.limits import REQUEST_TIMEOUT_MS
from tidelock.lockproviders.backend import Terms, Unclear
from tidelock.store.http import NoReply, NotSent, Reply, Request, Transport

_TIMEOUT_SHARE = 5


def request_timeout_ms(terms: Terms) -> int:
    """Return how long one request may take: four more can follow before the lease is over."""
    if terms.validity_ms is None:
        return REQUEST_TIMEOUT_MS
    return min(REQUEST_TIMEOUT_MS, max(1_000, terms.validity_ms // _TIMEOUT_SHARE))


def checked_origin(url: str, setting: str, *, scheme: str = "https") -> str:
    """Return scheme and host of `url`, which must have nothing else; `scheme` if it has none.

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
        shown = "" if secret else f" = {url!r}"
        raise ConfigInvalid(
            f"{setting}{shown} is not an http or https URL of one host",
            hint=f"write it as {scheme}://host:port",
        )
    return f"{parts.scheme}://{parts.netloc}"


class Credentials(Protocol):
    """Adds to a request what proves who sends it."""

    def __call__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        """Put the headers that are needed into `headers`."""
        ...


@dataclass(frozen=True, slots=True)
class Said:
    """A definite answer: a status below 500, and its JSON object."""

    status: int
    body: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Tell whether it was done."""
        return 200 <= self.status < 300


class JsonService:
    """One server; its answers are `Said`, and what is no answer is `Unclear` or an exception."""

    def __init__(
        self,
        origin: str,
        *,
        clock: Clock,
        timeout_ms: int,
        credentials: Credentials | None = None,
        ca_file: str | None = None,
    ) -> None:
        """Connect to nothing yet."""
        self._origin = origin
        self._transport = Transport(clock, ca_file=ca_file)
        self._timeout_ms = timeout_ms
        self._credentials = credentials

    def tell(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Said | Unclear:
        """Send a request that changes something, once.

        Raises: `StoreUnreachable`, `Throttled`, which prove that nothing was done.
        """
        data = b"" if body is None else json.dumps(body).encode()
        given = {"host": urlsplit(self._origin).netloc, "accept": "application/json"}
        if data:
            given["content-type"] = "application/json"
        given.update(headers or {})
        if self._credentials is not None:
            self._credentials(method, path, given, data)
        request = Request(method, self._origin, path, given, data or None)
        answer = self._transport.send(request, timeout_ms=self._timeout_ms)
        match answer:
            case NotSent(cause):
                raise StoreUnreachable(
                    f"{self._origin}: {cause}", hint="check the address and the network"
                )
            case NoReply(cause):
                return Unclear(cause)
            case Reply(status=429):
                raise Throttled(f"{self._origin} answered 429 and asks for fewer requests")
            case Reply(status=status) if status >= 500 or status == 408:
                return Unclear(f"the server answered {status}")
            case Reply(status=status, body=raw):
                return Said(status, _object(raw, self._origin))

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Said:
        """Send a request that changes nothing.

        Raises: `StoreUnreachable` when there is no definite answer.
        """
        answer = self.tell(method, path, body, headers=headers)
        if isinstance(answer, Unclear):
            raise StoreUnreachable(f"{self._origin}: {answer.cause}", hint="try again")
        return answer

    def refusal(self, said: Said, what: str, code: str = "") -> TidelockError:
        """Return the error for an answer that is final and not what was hoped for."""
        text = f"{what}: {self._origin} answered {said.status} {code}".strip()
        match said.status:
            case 401 | 403:
                return PermissionDenied(text, hint="check the credentials and their rights")
            case 404:
                return NotFound(text, hint="check the address and the name")
            case _:
                return InvalidInput(text, hint="check the settings of this provider")

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


def _object(raw: bytes, origin: str) -> Mapping[str, Any]:
    if not raw.strip():
        return {}
    try:
        # A gateway may send several objects, one to a line; the first is the answer.
        found, _ = json.JSONDecoder().raw_decode(raw.decode().lstrip())
    except ValueError as error:
        raise DataCorrupt(f"{origin} answered something that is not JSON") from error
    return found if isinstance(found, dict) else {"value": found}
