"""A dashboard served in this process, and an HTTP client for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tidelock.core.system import SystemClock, SystemIds
from tidelock.dashboard.actions import ActionRunner
from tidelock.dashboard.app import Dashboard, ListenAddress, ShownTable, served
from tidelock.dashboard.details import TableLayout
from tidelock.dashboard.sessions import Sessions
from tidelock.dashboard.watch import TableWatch
from tidelock.lock.server import auth
from tidelock.storage.uri import open_store

TOKEN = "an operator's token"
READER = "a reader's token"


@contextmanager
def dashboard(
    *uris: str, acts: bool = False, public_reads: bool = True, settings: Mapping[str, Any] = {}
) -> Iterator[str]:
    """Serve a dashboard for these tables; yield its URL."""
    clock, ids = SystemClock(), SystemIds()
    stores = [open_store(uri, {}) for uri in uris]
    watches = [TableWatch(store, clock, settings=settings) for store in stores]
    shown = [
        ShownTable(watch, TableLayout(watch), ActionRunner(watch, clock, settings))
        for watch in watches
    ]
    authenticator = None
    if acts:
        admin = auth.Principal("operator", "", frozenset({auth.Permission.ADMIN}))
        reader = auth.Principal("reader", "", frozenset({auth.Permission.READ}))
        known = {auth.token_hash(TOKEN): admin, auth.token_hash(READER): reader}
        authenticator = auth.Authenticator(clock, known)
    sessions = Sessions(clock, ids, authenticator, public_reads=public_reads)
    try:
        with served(Dashboard(shown, sessions, ids.uuid()), ListenAddress()) as url:
            yield url
    finally:
        for store in stores:
            store.close()


@dataclass(frozen=True)
class HttpAnswer:
    """A response."""

    status: int
    headers: Message
    body: bytes


@dataclass
class Client:
    """An HTTP client that keeps the session cookie."""

    url: str
    cookie: str = ""
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> HttpAnswer:
        """Send a request."""
        target = urlsplit(self.url)
        sent = {"Cookie": self.cookie, **self.headers, **headers}
        data = None if body is None else json.dumps(body)
        with closing(HTTPConnection(target.hostname or "", target.port, timeout=120)) as connection:
            connection.request(method, path, data, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            return HttpAnswer(answer.status, answer.headers, answer.read())

    def facts(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send a request; return status and JSON."""
        answer = self.ask(method, path, body, **headers)
        return answer.status, json.loads(answer.body) if answer.body else None

    def sign_in(self, token: str = TOKEN) -> int:
        """Sign in with a token; return the status."""
        answer = self.ask("POST", "/api/session", {"token": token})
        self.cookie = str(answer.headers.get("Set-Cookie", "")).partition(";")[0]
        self.csrf = json.loads(answer.body).get("csrf", "")
        return answer.status

    def act(self, action: str, target: str, confirm: str | None = None) -> Any:
        """Request an action, confirmed by default."""
        body = {"action": action, "target": target, "confirm": confirm or target}
        headers = {"x-tidelock-csrf": self.csrf} if self.csrf else {}
        return self.facts("POST", "/api/tables/0/actions", body, **headers)
