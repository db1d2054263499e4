"""What a victim said before it died, and what that allows to be in the store."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelock.base.errors import TidelockError
from tidelock.base.outcome import Landed
from tidelock.store.contract import (
    Create,
    ObjectMeta,
    ObjectStore,
    PutMode,
    PutReply,
    StoredObject,
    Unclear,
    Upload,
)
from tidelock.store.parts import gathered_upload

MESSAGE_BYTES_MAX = 64 * 1024


@dataclass(slots=True)
class Ledger:
    """Every body that an object may have now; None stands for an absent object."""

    possible: dict[str, set[bytes | None]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    finished: bool = False
    bugs: list[str] = field(default_factory=list)
    _pending: tuple[str, bytes | None] | None = None

    def hear(self, message: dict[str, str]) -> None:
        """Take in what the victim said."""
        match message:
            case {"does": key, "body": body}:
                self._pending = (key, base64.b64decode(body))
            case {"does": key}:
                self._pending = (key, None)
            case {"got": reply}:
                self._settle(reply)
            case {"token": token}:
                self.tokens.append(int(token))
            case {"bug": text}:
                self.bugs.append(text)
            case _:
                self.finished = True

    def _settle(self, reply: str) -> None:
        assert self._pending is not None, f"{reply} in answer to nothing"
        key, body = self._pending
        self._pending = None
        if reply == "landed":
            self.possible[key] = {body}
        elif reply == "unclear" or body is None:
            # A failed delete promises nothing; a failed put promises that nothing was written.
            self._either(key, body)

    def _either(self, key: str, body: bytes | None) -> None:
        self.possible.setdefault(key, {None}).add(body)

    def close(self) -> None:
        """The victim will say nothing more: what it was doing may or may not have happened."""
        if self._pending is not None:
            self._either(*self._pending)
            self._pending = None


class Narrator:
    """The victim's side of the wire. It sends, which is not among the calls that are counted."""

    def __init__(self, wire: socket.socket) -> None:
        """Speak into `wire`."""
        self._wire = wire

    def say(self, **message: str) -> None:
        """Tell the harness; it hears even if this process dies next."""
        self._wire.send(json.dumps(message).encode())


class NarratedStore:
    """A store that says what it is about to do and what came of it, and may die around one request.

    `kill_at` counts requests from 1; `after` dies when the request has been done.
    """

    def __init__(
        self, inner: ObjectStore, narrator: Narrator, *, kill_at: int = 0, after: bool = False
    ) -> None:
        """Stand before `inner`."""
        self._inner = inner
        self._narrator = narrator
        self._kill_at = kill_at
        self._after = after
        self._requests = 0

    @property
    def uri(self) -> str:
        """The place behind."""
        return self._inner.uri

    @property
    def identity(self) -> str:
        """The store behind."""
        return self._inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Read."""
        self._begin()
        found = self._inner.get(key, start=start, end=end)
        self._end()
        return found

    def head(self, key: str) -> ObjectMeta | None:
        """Look."""
        self._begin()
        found = self._inner.head(key)
        self._end()
        return found

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Say it, write, say what came of it."""
        self._narrator.say(does=key, body=base64.b64encode(body).decode())
        self._begin()
        try:
            reply = self._inner.put(key, body, mode)
        except TidelockError:
            self._narrator.say(got="error")
            raise
        self._end()
        match reply:
            case Landed():
                self._narrator.say(got="landed")
            case Unclear():
                self._narrator.say(got="unclear")
            case _:
                self._narrator.say(got="refused")
        return reply

    def delete(self, key: str) -> None:
        """Say it, remove, say it is done."""
        self._narrator.say(does=key)
        self._begin()
        try:
            self._inner.delete(key)
        except TidelockError:
            self._narrator.say(got="unclear")
            raise
        self._end()
        self._narrator.say(got="landed")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """List."""
        return self._inner.list(prefix, start_after=start_after)

    def upload(self, key: str) -> Upload:
        """Write it all at once in the end, as a put that is told of."""
        return gathered_upload(lambda body: self.put(key, body, Create()))

    def local_path(self, key: str) -> str | None:
        """Everything goes through here, so there are no paths."""
        del key
        return None

    def close(self) -> None:
        """Close what is behind."""
        self._inner.close()

    def _begin(self) -> None:
        self._requests += 1
        if self._requests == self._kill_at and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)

    def _end(self) -> None:
        if self._requests == self._kill_at and self._after:
            os.kill(os.getpid(), signal.SIGKILL)
