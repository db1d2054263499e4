"""Two counters that the writers increment: one looks at tokens, the other believes everybody.

Both are read, then written back one higher, as programs do that trust a lock. They are objects in
a store, like the data that a lock protects.
"""

from __future__ import annotations

import json

from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, Match, ObjectStore, Overwrite, PutMode

FENCED_KEY = "fenced.json"
PLAIN_KEY = "plain.json"


class StaleToken(Exception):
    """A write was refused because a larger token has been here."""

    def __init__(self, token: int, seen: int) -> None:
        """Carry the token that came and the one that was there."""
        super().__init__(f"token {token} came after token {seen}")
        self.seen = seen


class FencedCounter:
    """A counter that refuses tokens smaller than the largest it has seen."""

    def __init__(self, store: ObjectStore) -> None:
        """Keep the counter in `store`."""
        self._store = store

    def read(self, token: int) -> int:
        """Return the value, and let nobody with a smaller token write from now on.

        Raises: `StaleToken`.
        """
        while True:
            mode, value, seen = self._state()
            if seen > token:
                raise StaleToken(token, seen)
            if seen == token or self._put(mode, value, token):
                return value

    def write(self, token: int, value: int) -> None:
        """Set the value. Raises: `StaleToken`."""
        while True:
            mode, _, seen = self._state()
            if seen > token:
                raise StaleToken(token, seen)
            if self._put(mode, value, token):
                return

    def value(self) -> int:
        """Return the value without a token, to show it."""
        return self._state()[1]

    def _state(self) -> tuple[PutMode, int, int]:
        found = self._store.get(FENCED_KEY)
        if found is None:
            return Create(), 0, 0
        fields = json.loads(found.body)
        return Match(found.version), int(fields["value"]), int(fields["token"])

    def _put(self, mode: PutMode, value: int, token: int) -> bool:
        body = json.dumps({"value": value, "token": token}).encode()
        return isinstance(self._store.put(FENCED_KEY, body, mode), Landed)


class PlainCounter:
    """A counter that takes what it is given: the canary that a late writer kills."""

    def __init__(self, store: ObjectStore) -> None:
        """Keep the counter in `store`."""
        self._store = store

    def read(self) -> int:
        """Return the value."""
        found = self._store.get(PLAIN_KEY)
        return 0 if found is None else int(found.body)

    def write(self, value: int) -> None:
        """Set the value."""
        self._store.put(PLAIN_KEY, str(value).encode(), Overwrite())
