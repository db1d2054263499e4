"""Who may do what: API tokens, principals, permissions and namespaces (V8).

A token proves a principal; nothing in a request body does. A lock belongs to the principal that
took it, so nobody releases another's by guessing its owner.
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

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid, PermissionDenied
from tidelock.base.limits import AUTH_FAILURES_MAX, AUTH_WINDOW_MS
from tidelock.lockservice.answers import Overloaded, Unauthenticated
from tidelock.lockservice.resource import SEPARATOR

TOKEN_HEADER = "dapr-api-token"  # noqa: S105 - the name of a header
_TOKEN_LENGTH_MAX = 4_096
_ADDRESSES_MAX = 10_000


LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OWN_PAGES = ("same-origin", "none")
"""What browsers say in `Sec-Fetch-Site` of a server's own pages, and of the address bar."""


@dataclass(frozen=True, slots=True)
class Site:
    """The names that lead to a server. Pages of other sites must not use it by a visitor's browser.

    A browser lets any page send requests to any server, loopback included; it only keeps the page
    from reading the answer, and says in its headers where the request comes from.
    """

    names: frozenset[str] | None
    """None: any name; for servers that ask every request for a secret of its own."""
    secure: bool = False

    @staticmethod
    def at(host: str, names: Iterable[str] = (), *, secure: bool = False) -> Site:
        """Return the site of a server that listens on `host`."""
        return Site(
            frozenset({host, *names, *(LOOPBACK if is_loopback(host) else ())}), secure=secure
        )

    def check_host(self, host: str | None) -> None:
        """Refuse names that are not ours: another site's name may lead here (DNS rebinding).

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
                f"this server is not called {given!r}", hint="start it with --name for that"
            )

    def check_origin(self, host: str | None, origin: str | None, fetch_site: str | None) -> None:
        """Refuse what a page of another site sent.

        Raises: `PermissionDenied`.
        """
        own = f"{'https' if self.secure else 'http'}://{host or ''}"
        foreign = origin is not None and origin != own
        if foreign or (fetch_site is not None and fetch_site not in _OWN_PAGES):
            raise PermissionDenied("the request comes from another site")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Permission(Enum):
    """What a principal may do within its namespace."""

    ACQUIRE = "acquire"
    RELEASE = "release"
    READ = "read"
    FORCE = "force"
    ADMIN = "admin"


USUAL = frozenset({Permission.ACQUIRE, Permission.RELEASE, Permission.READ})


@dataclass(frozen=True, slots=True)
class Principal:
    """A client that has proven who it is, or anybody where no proof is asked for."""

    name: str
    namespace: str = ""
    permissions: frozenset[Permission] = USUAL

    def check(self, permission: Permission) -> None:
        """Raise `PermissionDenied` unless this principal has `permission`."""
        if permission not in self.permissions and Permission.ADMIN not in self.permissions:
            raise PermissionDenied(
                f"{self.name} has no permission to {permission.value}",
                hint="ask whoever runs the lock service",
            )


@dataclass(slots=True)
class Doorkeeper:
    """Turns a request's token into a principal, and slows down those who guess."""

    clock: Clock
    by_hash: Mapping[str, Principal] = field(default_factory=dict)
    anybody: Principal | None = None
    _failures: dict[str, deque[int]] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Tell whether a token is needed."""
        return self.anybody is None

    def admit(self, token: str | None, address: str) -> Principal:
        """Return the principal of `token`.

        Raises: `Unauthenticated`, the same for a missing, a wrong and a malformed token;
        `Overloaded` when too many wrong ones came from `address`.
        """
        if self.anybody is not None:
            return self.anybody
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
            raise Unauthenticated("invalid api token", hint=f"send it in the header {TOKEN_HEADER}")
        return found

    def _match(self, token: str) -> Principal | None:
        if not token or len(token) > _TOKEN_LENGTH_MAX:
            return None
        given = token_hash(token)
        found: Principal | None = None
        for known, principal in self.by_hash.items():
            # Every hash is compared, in constant time: the time taken tells nothing.
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
    """Return what is stored of a token. Tokens have 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def single_token(token: str, *, may_force: bool) -> dict[str, Principal]:
    """Return the principals where one token is shared by all, as in Dapr."""
    permissions = USUAL | {Permission.FORCE} if may_force else USUAL
    return {token_hash(token): Principal("token", "", permissions)}


def read_principals(path: Path) -> dict[str, Principal]:
    """Read a file of principals: JSON, tokens only as SHA-256.

    Raises: `ConfigInvalid`.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        found = dict(_principal(item) for item in fields["principals"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigInvalid(
            f"{path} is not a file of principals: {error!r}",
            hint='write {"principals": [{"name": …, "token_sha256": …, "namespace": …,'
            ' "permissions": ["acquire", "release", "read"]}]}',
        ) from error
    if not found:
        raise ConfigInvalid(f"{path} names no principal: nobody could use the service")
    return found


def _principal(item: dict[str, Any]) -> tuple[str, Principal]:
    digest, name, namespace = item["token_sha256"], item["name"], item.get("namespace", "")
    if len(bytes.fromhex(digest)) != 32:
        raise ValueError("token_sha256 is not a SHA-256 in hex")
    for text in (name, namespace):
        if not isinstance(text, str) or SEPARATOR in text:
            raise ValueError(f"{text!r} is not a name")
    if namespace == "lock" or not name:
        # "lock" is the first part of every key without a namespace; V8 needs them apart.
        raise ValueError("a name is empty, or the namespace is 'lock'")
    permissions = frozenset(Permission(word) for word in item.get("permissions", ()))
    return digest.lower(), Principal(name, namespace, permissions or USUAL)
