"""Authentication and authorization: API tokens, principals, permissions, trusted hosts (V8).

Only a token identifies a principal; nothing in a request body does. A lock belongs to the principal
that acquired it, so guessing the owner of a lock does not permit its release.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidelock.core.clock import Clock
from tidelock.core.errors import ConfigInvalid, PermissionDenied
from tidelock.core.limits import AUTH_FAILURES_MAX, AUTH_WINDOW_MS
from tidelock.lock.server.errors import Overloaded, Unauthenticated
from tidelock.lock.server.resource import SEPARATOR

TOKEN_HEADER = "dapr-api-token"  # noqa: S105 - the name of a header
_TOKEN_LENGTH_MAX = 4_096
_ADDRESSES_MAX = 10_000


LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OWN_FETCH_SITES = ("same-origin", "none")
"""`Sec-Fetch-Site` of requests from the server's own pages, and from the address bar."""


@dataclass(frozen=True, slots=True)
class TrustedHosts:
    """The host names of a server. Requests that pages of other sites send are refused.

    A browser lets any page send requests to any server, loopback included. It only hides the
    response from the page, and sends the origin of the request in its headers.
    """

    names: frozenset[str] | None
    """None: any name, for servers that require a token."""
    secure: bool = False

    @staticmethod
    def at(host: str, names: Iterable[str] = (), *, secure: bool = False) -> TrustedHosts:
        """Return the trusted host names of a server that listens on `host`."""
        return TrustedHosts(
            frozenset({host, *names, *(LOOPBACK if is_loopback(host) else ())}), secure=secure
        )

    def check_host(self, host: str | None) -> None:
        """Refuse other host names, which may resolve to this server (DNS rebinding).

        Raises: `PermissionDenied`.
        """
        if self.names is None:
            return
        try:
            given = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            given = host or ""
        if given not in self.names:
            raise PermissionDenied(
                f"host name {given!r} is not served here", hint="start the server with --name"
            )

    def check_origin(self, host: str | None, origin: str | None, fetch_site: str | None) -> None:
        """Refuse requests of other origins. Raises: `PermissionDenied`."""
        own = f"{'https' if self.secure else 'http'}://{host or ''}"
        cross_origin = origin is not None and origin != own
        if cross_origin or (fetch_site is not None and fetch_site not in _OWN_FETCH_SITES):
            raise PermissionDenied(
                "cross-origin request", hint=f"use a page of {own}, or send no Origin header"
            )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Permission(Enum):
    """Permissions of a principal within its namespace."""

    ACQUIRE = "acquire"
    RELEASE = "release"
    READ = "read"
    FORCE = "force"
    ADMIN = "admin"


DEFAULT_PERMISSIONS = frozenset({Permission.ACQUIRE, Permission.RELEASE, Permission.READ})


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client, or the anonymous one where no token is required."""

    name: str
    namespace: str = ""
    permissions: frozenset[Permission] = DEFAULT_PERMISSIONS

    def check(self, permission: Permission) -> None:
        """Raise `PermissionDenied` unless this principal has `permission`."""
        if permission not in self.permissions and Permission.ADMIN not in self.permissions:
            raise PermissionDenied(
                f"{self.name} lacks the permission {permission.value!r}",
                hint="ask the operator of this server",
            )


@dataclass(slots=True)
class Authenticator:
    """Maps API tokens to principals, and rate-limits wrong tokens."""

    clock: Clock
    by_hash: Mapping[str, Principal] = field(default_factory=dict)
    anonymous: Principal | None = None
    _failures: dict[str, deque[int]] = field(default_factory=dict)

    @property
    def requires_token(self) -> bool:
        return self.anonymous is None

    def authenticate(self, token: str | None, address: str) -> Principal:
        """Return the principal of `token`.

        Raises: `Unauthenticated`, the same for a missing, a wrong and a malformed token;
        `Overloaded` when too many wrong ones came from `address`.
        """
        if self.anonymous is not None:
            return self.anonymous
        failures = self._recent(address)
        if len(failures) >= AUTH_FAILURES_MAX:
            raise Overloaded(
                "too many wrong API tokens from this address",
                hint="wait a minute",
                retry_after_ms=AUTH_WINDOW_MS,
            )
        found = self._match(token or "")
        if found is None:
            failures.append(self.clock.now().monotonic_ms)
            self._failures[address] = failures
            raise Unauthenticated(
                "invalid api token", hint=f"send the token in the header {TOKEN_HEADER}"
            )
        return found

    def _match(self, token: str) -> Principal | None:
        if not token or len(token) > _TOKEN_LENGTH_MAX:
            return None
        given = token_hash(token)
        found: Principal | None = None
        for known, principal in self.by_hash.items():
            # Every hash is compared, each in constant time, so that timing reveals nothing.
            if hmac.compare_digest(known, given):
                found = principal
        return found

    def _recent(self, address: str) -> deque[int]:
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.clear()
        failures = self._failures.get(address) or deque(maxlen=AUTH_FAILURES_MAX)
        horizon_ms = self.clock.now().monotonic_ms - AUTH_WINDOW_MS
        while failures and failures[0] < horizon_ms:
            failures.popleft()
        return failures


def token_hash(token: str) -> str:
    """Return the stored hash. Tokens have 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def single_token(token: str, *, may_force: bool) -> dict[str, Principal]:
    """Return the principals of a service with one shared token, as in Dapr."""
    permissions = DEFAULT_PERMISSIONS | {Permission.FORCE} if may_force else DEFAULT_PERMISSIONS
    return {token_hash(token): Principal("token", "", permissions)}


def read_principals(path: Path) -> dict[str, Principal]:
    """Read a file of principals: JSON, tokens only as SHA-256. Raises: `ConfigInvalid`."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        found = dict(_principal(item) for item in fields["principals"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigInvalid(
            f"{path}: expected a principals file, got {error!r}",
            hint='write {"principals": [{"name": …, "token_sha256": …, "namespace": …,'
            ' "permissions": ["acquire", "release", "read"]}]}',
        ) from error
    if not found:
        raise ConfigInvalid(
            f"{path}: expected at least one principal",
            hint="add a principal with a token and permissions",
        )
    return found


def _principal(item: dict[str, Any]) -> tuple[str, Principal]:
    digest, name, namespace = item["token_sha256"], item["name"], item.get("namespace", "")
    if len(bytes.fromhex(digest)) != 32:
        raise ValueError("token_sha256 is not a SHA-256 in hex")
    for text in (name, namespace):
        if not isinstance(text, str) or SEPARATOR in text:
            raise ValueError(f"expected a name without {SEPARATOR!r}, got {text!r}")
    if namespace == "lock" or not name:
        # V8: "lock" is the first part of every key without a namespace.
        raise ValueError("a name is empty, or the namespace is 'lock'")
    permissions = frozenset(Permission(word) for word in item.get("permissions", ()))
    return digest.lower(), Principal(name, namespace, permissions or DEFAULT_PERMISSIONS)
