"""A dashboard in this process, and a client that speaks to it as a browser does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tidelock.base.clock import SystemClock
from tidelock.base.ids import SystemIds
from tidelock.lockservice import auth
from tidelock.ops.ui.acting import Hands
from tidelock.ops.ui.layout import Layout
from tidelock.ops.ui.routes import Dashboard, Shown
from tidelock.ops.ui.serving import Place, served
from tidelock.ops.ui.sessions import Sessions
from tidelock.ops.ui.watching import TableWatch
from tidelock.store.uri import open_store

TOKEN = "an operator's token"
READER = "a reader's token"


@contextmanager
def dashboard(
    *uris: str, acts: bool = False, looks_freely: bool = True, settings: Mapping[str, Any] = {}
) -> Iterator[str]:
    """Serve a dashboard of these tables; yield its URL."""
    clock, ids = SystemClock(), SystemIds()
    stores = [open_store(uri, {}) for uri in uris]
    watches = [TableWatch(store, clock, settings=settings) for store in stores]
    shown = [Shown(watch, Layout(watch), Hands(watch, clock, settings)) for watch in watches]
    door = None
    if acts:
        admin = auth.Principal("operator", "", frozenset({auth.Permission.ADMIN}))
        reader = auth.Principal("reader", "", frozenset({auth.Permission.READ}))
        known = {auth.token_hash(TOKEN): admin, auth.token_hash(READER): reader}
        door = auth.Doorkeeper(clock, known)
    sessions = Sessions(clock, ids, door, looks_freely=looks_freely)
    try:
        with served(Dashboard(shown, sessions, ids.uuid()), Place()) as url:
            yield url
    finally:
        for store in stores:
            store.close()


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int
    headers: Message
    body: bytes


@dataclass
class Client:
    """Asks a dashboard, and keeps its cookie."""

    url: str
    cookie: str = ""
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Told:
        """Return the answer."""
        place = urlsplit(self.url)
        sent = {"Cookie": self.cookie, **self.headers, **headers}
        data = None if body is None else json.dumps(body)
        with closing(HTTPConnection(place.hostname or "", place.port, timeout=20)) as connection:
            connection.request(method, path, data, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            return Told(answer.status, answer.headers, answer.read())

    def facts(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return status and JSON of the answer."""
        told = self.ask(method, path, body, **headers)
        return told.status, json.loads(told.body) if told.body else None

    def sign_in(self, token: str = TOKEN) -> int:
        """Show a token; return the status."""
        told = self.ask("POST", "/api/session", {"token": token})
        self.cookie = str(told.headers.get("Set-Cookie", "")).partition(";")[0]
        self.csrf = json.loads(told.body).get("csrf", "")
        return told.status

    def act(self, action: str, target: str, confirm: str | None = None) -> Any:
        """Ask for an action, confirmed unless told otherwise."""
        body = {"action": action, "target": target, "confirm": confirm or target}
        headers = {"x-tidelock-csrf": self.csrf} if self.csrf else {}
        return self.facts("POST", "/api/tables/0/actions", body, **headers)
