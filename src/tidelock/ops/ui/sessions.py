"""Who may act: sessions behind an API token, each with a secret that its requests must repeat.

The cookie says which session a request belongs to; a page of another site can send it, too. The
secret that goes with it is told to our own page alone, so who repeats it is that page.
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.errors import PermissionDenied
from tidelock.base.ids import IdSource
from tidelock.lockservice.auth import Doorkeeper, Permission, Principal

COOKIE: Final = "tidelock-session"
CSRF_HEADER: Final = "x-tidelock-csrf"
SESSIONS_MAX: Final = 1_000
SESSION_MS: Final = 8 * 3_600_000


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has shown a token."""

    name: str
    secret: str
    principal: Principal
    until_monotonic_ms: int

    def may(self, permission: Permission) -> bool:
        """Tell whether this somebody has a permission."""
        granted = self.principal.permissions
        return permission in granted or Permission.ADMIN in granted


@dataclass(slots=True)
class Sessions:
    """The sessions of one dashboard; they end with it.

    `door` is None where nobody can sign in: then everybody looks and nobody acts.
    `looks_freely` says that looking needs no session.
    """

    clock: Clock
    ids: IdSource
    door: Doorkeeper | None = None
    looks_freely: bool = True
    _open: dict[str, Session] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def sign_in(self, token: str, address: str) -> Session:
        """Return a session for a token. Raises: `PermissionDenied`, `Overloaded`."""
        if self.door is None:
            raise PermissionDenied(
                "nobody can sign in here",
                hint="start the dashboard with --token-file or --principals",
            )
        with self._mutex:
            principal = self.door.admit(token, address)
            now_ms = self.clock.now().monotonic_ms
            self._open = {k: s for k, s in self._open.items() if s.until_monotonic_ms > now_ms}
            if len(self._open) >= SESSIONS_MAX:
                self._open.pop(next(iter(self._open)))
            # Two UUIDs have 244 random bits.
            name, secret = (self.ids.uuid() + self.ids.uuid() for _ in range(2))
            session = Session(name, secret, principal, now_ms + SESSION_MS)
            self._open[name] = session
            return session

    def find(self, name: str | None) -> Session | None:
        """Return the session of a cookie; None if there is none, or it is over."""
        with self._mutex:
            found = self._open.get(name or "")
            if found is None or found.until_monotonic_ms <= self.clock.now().monotonic_ms:
                return None
            return found

    def sign_out(self, session: Session) -> None:
        """End a session."""
        with self._mutex:
            self._open.pop(session.name, None)

    def check_look(self, session: Session | None) -> None:
        """Raise `PermissionDenied` unless looking is allowed."""
        if self.looks_freely or (session is not None and session.may(Permission.READ)):
            return
        raise PermissionDenied("sign in to see this dashboard", hint="use the token it was given")

    def check_act(
        self, session: Session | None, secret: str | None, permission: Permission
    ) -> Session:
        """Return the session that may act. Raises: `PermissionDenied`."""
        if session is None:
            raise PermissionDenied("sign in to do that", hint="looking needs no token, acting does")
        if not hmac.compare_digest((secret or "").encode(), session.secret.encode()):
            raise PermissionDenied(f"the header {CSRF_HEADER} is missing or wrong")
        session.principal.check(permission)
        return session
