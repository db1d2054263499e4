"""What is behind each path of the dashboard: looking for everybody it lets in, acting for few."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelock.base.errors import InvalidInput, NotFound
from tidelock.lockservice.auth import Permission
from tidelock.ops.ui.acting import SERVICES, Deed, Hands, Wish
from tidelock.ops.ui.answers import Answer, as_json, load_assets
from tidelock.ops.ui.layout import Layout
from tidelock.ops.ui.sessions import COOKIE, SESSION_MS, Session, Sessions
from tidelock.ops.ui.story import story
from tidelock.ops.ui.watching import TableWatch

ENTRIES_PER_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, taken apart."""

    method: str
    path: str
    query: Mapping[str, str]
    address: str
    session: Session | None = None
    secret: str | None = None
    etag: str = ""
    body: bytes = b""
    secure: bool = False

    def fields(self) -> dict[str, Any]:
        """Return the body's JSON object. Raises: `InvalidInput`."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as error:
            raise InvalidInput(f"the body is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise InvalidInput("the body is no JSON object")
        return found

    def number(self, name: str) -> int:
        """Return a whole number of the query; 0 without one. Raises: `InvalidInput`."""
        text = self.query.get(name, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise InvalidInput(f"{name} = {text!r} is no number")
        return int(text)


@dataclass(frozen=True, slots=True)
class Shown:
    """A table with everything that the dashboard has for it."""

    watch: TableWatch
    layout: Layout
    hands: Hands


@dataclass(slots=True)
class Dashboard:
    """Answers requests. May be used by several threads."""

    tables: Sequence[Shown]
    sessions: Sessions
    boot: str
    """Drawn at the start: a page of an earlier dashboard has to start over."""
    assets: Mapping[str, Answer] = field(default_factory=load_assets)

    def answer(self, asked: Asked) -> Answer:
        """Return the answer. Raises: errors of `tidelock.base.errors`, each with a status."""
        if asked.method == "GET" and asked.path in self.assets:
            return self.assets[asked.path]
        parts = asked.path.split("/")[1:]
        match asked.method, parts:
            case "GET", ["api", "session"]:
                return self._who(asked.session)
            case "POST", ["api", "session"]:
                return self._sign_in(asked)
            case "DELETE", ["api", "session"]:
                return self._sign_out(asked)
            case "GET", ["api", *_]:
                self.sessions.check_look(asked.session)
                return self._look(parts[1:], asked)
            case "POST", ["api", "tables", number, "actions"]:
                return self._act(self._table(number), asked)
            case _:
                raise NotFound(f"there is nothing at {asked.method} {asked.path}")

    def _look(self, parts: list[str], asked: Asked) -> Answer:
        match parts:
            case ["tables"]:
                return as_json([_name(each) for each in self.tables])
            case ["tables", number]:
                return self._page(self._table(number), asked)
            case ["tables", number, "files"]:
                return as_json(self._table(number).layout.page())
            case ["tables", number, "jobs"]:
                return as_json(self._table(number).hands.jobs())
            case ["tables", number, "entries"]:
                below = asked.number("before") or 10**18
                found = self._table(number).watch.entries_before(below, ENTRIES_PER_PAGE)
                return as_json(found)
            case ["tables", number, "instants", requested] if requested.isdecimal():
                return as_json(story(self._table(number).watch, requested))
            case _:
                raise NotFound(f"there is nothing at {asked.path}")

    def _page(self, shown: Shown, asked: Asked) -> Answer:
        """Return what is new to this page; nothing at all if nothing is."""
        known = 0
        if asked.query.get("boot") == self.boot:
            known = asked.number("after")
        shown.watch.look()
        found = shown.watch.page(known)
        if found is None:
            return Answer(304, headers={"Cache-Control": "no-store"})
        return as_json({"boot": self.boot, **found})

    def _act(self, shown: Shown, asked: Asked) -> Answer:
        wish = Wish.read(asked.fields())
        session = self.sessions.check_act(asked.session, asked.secret, wish.deed.permission)
        return as_json({"done": shown.hands.do(wish, by=session.principal.name)})

    def _who(self, session: Session | None) -> Answer:
        deeds = [deed for deed in Deed if session is not None and session.may(deed.permission)]
        return as_json(
            {
                "name": "" if session is None else session.principal.name,
                "csrf": "" if session is None else session.secret,
                "may": [deed.value for deed in deeds],
                "may_sign_in": self.sessions.door is not None,
                "must_sign_in": not self.sessions.looks_freely
                and (session is None or not session.may(Permission.READ)),
                "services": list(SERVICES),
            }
        )

    def _sign_in(self, asked: Asked) -> Answer:
        token = asked.fields().get("token")
        session = self.sessions.sign_in(token if isinstance(token, str) else "", asked.address)
        found = self._who(session)
        cookie = f"{COOKIE}={session.name}; Path=/; Max-Age={SESSION_MS // 1000}"
        return _with_cookie(found, cookie, secure=asked.secure)

    def _sign_out(self, asked: Asked) -> Answer:
        if asked.session is not None:
            self.sessions.sign_out(asked.session)
        return _with_cookie(self._who(None), f"{COOKIE}=; Path=/; Max-Age=0", secure=asked.secure)

    def _table(self, number: str) -> Shown:
        if not (number.isascii() and number.isdecimal() and int(number) < len(self.tables)):
            raise NotFound(f"there is no table {number!r} here")
        return self.tables[int(number)]


def _with_cookie(answer: Answer, cookie: str, *, secure: bool) -> Answer:
    text = f"{cookie}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return Answer(answer.status, answer.body, answer.kind, {**answer.headers, "Set-Cookie": text})


def _name(shown: Shown) -> dict[str, object]:
    return {"name": shown.watch.properties.name, "uri": shown.watch.store.uri}
