"""Operator sessions: a cookie for an API token, and a CSRF secret that actions must send.

The cookie identifies the session; a page of another site can send it as well. Only the dashboard's
own page knows the CSRF secret.
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass, field
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.errors import PermissionDenied
from tidelock.core.ids import IdSource
from tidelock.lock.server.auth import Authenticator, Permission, Principal

COOKIE: Final = "tidelock-session"
CSRF_HEADER: Final = "x-tidelock-csrf"
SESSIONS_MAX: Final = 1_000
SESSION_MS: Final = 8 * 3_600_000


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """A signed-in operator."""

    name: str
    secret: str
    principal: Principal
    until_monotonic_ms: int

    def may(self, permission: Permission) -> bool:
        """Return whether the operator has a permission."""
        granted = self.principal.permissions
        return permission in granted or Permission.ADMIN in granted


@dataclass(slots=True)
class Sessions:
    """The sessions of one dashboard process.

    Without an `authenticator` nobody can sign in, and the dashboard is read-only.
    With `public_reads`, reading needs no session.
    """

    clock: Clock
    ids: IdSource
    authenticator: Authenticator | None = None
    public_reads: bool = True
    _open: dict[str, OperatorSession] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def sign_in(self, token: str, address: str) -> OperatorSession:
        """Return a session for a token. Raises: `PermissionDenied`, `Overloaded`."""
        if self.authenticator is None:
            raise PermissionDenied(
                "signing in is disabled",
                hint="start the dashboard with --token-file or --principals",
            )
        with self._mutex:
            principal = self.authenticator.authenticate(token, address)
            now_ms = self.clock.now().monotonic_ms
            self._open = {k: s for k, s in self._open.items() if s.until_monotonic_ms > now_ms}
            if len(self._open) >= SESSIONS_MAX:
                self._open.pop(next(iter(self._open)))
            # Two UUIDs have 244 random bits.
            name, secret = (self.ids.uuid() + self.ids.uuid() for _ in range(2))
            session = OperatorSession(name, secret, principal, now_ms + SESSION_MS)
            self._open[name] = session
            return session

    def find(self, name: str | None) -> OperatorSession | None:
        """Return the session of a cookie; None if it does not exist or has expired."""
        with self._mutex:
            found = self._open.get(name or "")
            now_ms = self.clock.now().monotonic_ms
            return found if found is not None and found.until_monotonic_ms > now_ms else None

    def sign_out(self, session: OperatorSession) -> None:
        """End a session."""
        with self._mutex:
            self._open.pop(session.name, None)

    def check_read(self, session: OperatorSession | None) -> None:
        """Raise `PermissionDenied` unless reading is allowed."""
        if self.public_reads or (session is not None and session.may(Permission.READ)):
            return
        raise PermissionDenied("sign in to read this dashboard", hint="use its API token")

    def check_act(
        self, session: OperatorSession | None, secret: str | None, permission: Permission
    ) -> OperatorSession:
        """Return the session if it may act. Raises: `PermissionDenied`."""
        if session is None:
            raise PermissionDenied(
                "sign in to run actions", hint="reading needs no token, actions do"
            )
        if not hmac.compare_digest((secret or "").encode(), session.secret.encode()):
            raise PermissionDenied(f"header {CSRF_HEADER}: missing or wrong")
        session.principal.check(permission)
        return session
