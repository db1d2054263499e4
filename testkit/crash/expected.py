"""The messages of a victim before it died, and the object states that they allow."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelock.core.errors import TidelockError
from tidelock.core.outcome import Landed
from tidelock.storage.contract import (
    Create,
    ObjectMeta,
    ObjectStore,
    PutMode,
    PutReply,
    StoredObject,
    Unclear,
    Upload,
)
from tidelock.storage.uploads import BufferedUpload

MESSAGE_BYTES_MAX = 64 * 1024


@dataclass(slots=True)
class ExpectedState:
    """The possible bodies of each object; None means absent."""

    possible: dict[str, set[bytes | None]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    finished: bool = False
    bugs: list[str] = field(default_factory=list)
    _pending: tuple[str, bytes | None] | None = None

    def record(self, message: dict[str, str]) -> None:
        """Process a message of the victim."""
        match message:
            case {"does": key, "body": body}:
                self._pending = (key, base64.b64decode(body))
            case {"does": key}:
                self._pending = (key, None)
            case {"got": reply}:
                self._resolve(reply)
            case {"token": token}:
                self.tokens.append(int(token))
            case {"bug": text}:
                self.bugs.append(text)
            case _:
                self.finished = True

    def _resolve(self, reply: str) -> None:
        assert self._pending is not None, f"{reply} without a request"
        key, body = self._pending
        self._pending = None
        if reply == "landed":
            self.possible[key] = {body}
        elif reply == "unclear" or body is None:
            # A failed delete may have happened; a failed put has not written anything.
            self._either(key, body)

    def _either(self, key: str, body: bytes | None) -> None:
        self.possible.setdefault(key, {None}).add(body)

    def close(self) -> None:
        """End of the messages: the last request may or may not have happened."""
        if self._pending is not None:
            self._either(*self._pending)
            self._pending = None


class Reporter:
    """Sends messages from the victim. `send` is not one of the counted system calls."""

    def __init__(self, wire: socket.socket) -> None:
        """Use the socket `wire`."""
        self._wire = wire

    def send(self, **message: str) -> None:
        """Send a message to the harness; it arrives even if this process is killed next."""
        self._wire.send(json.dumps(message).encode())


class ReportingStore:
    """A store that reports each request and its reply, and may kill the process at one request.

    `kill_at` counts requests from 1. With `after`, the process is killed after that request.
    """

    def __init__(
        self, inner: ObjectStore, reporter: Reporter, *, kill_at: int = 0, after: bool = False
    ) -> None:
        """Wrap `inner`."""
        self._inner = inner
        self._reporter = reporter
        self._kill_at = kill_at
        self._after = after
        self._requests = 0

    @property
    def uri(self) -> str:
        """URI of the wrapped store."""
        return self._inner.uri

    @property
    def identity(self) -> str:
        """Identity of the wrapped store."""
        return self._inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Read the object."""
        self._begin()
        found = self._inner.get(key, start=start, end=end)
        self._end()
        return found

    def head(self, key: str) -> ObjectMeta | None:
        """Read the metadata."""
        self._begin()
        found = self._inner.head(key)
        self._end()
        return found

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Report the request, write, report the reply."""
        self._reporter.send(does=key, body=base64.b64encode(body).decode())
        self._begin()
        try:
            reply = self._inner.put(key, body, mode)
        except TidelockError:
            self._reporter.send(got="error")
            raise
        self._end()
        match reply:
            case Landed():
                self._reporter.send(got="landed")
            case Unclear():
                self._reporter.send(got="unclear")
            case _:
                self._reporter.send(got="refused")
        return reply

    def delete(self, key: str) -> None:
        """Report the request, delete, report the reply."""
        self._reporter.send(does=key)
        self._begin()
        try:
            self._inner.delete(key)
        except TidelockError:
            self._reporter.send(got="unclear")
            raise
        self._end()
        self._reporter.send(got="landed")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """List the objects."""
        return self._inner.list(prefix, start_after=start_after)

    def upload(self, key: str) -> Upload:
        """Write the object with one reported put at the end."""
        return BufferedUpload(lambda body: self.put(key, body, Create()))

    def local_path(self, key: str) -> str | None:
        """Return None: all access goes through this store."""
        del key
        return None

    def close(self) -> None:
        """Close the wrapped store."""
        self._inner.close()

    def _begin(self) -> None:
        self._requests += 1
        if self._requests == self._kill_at and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)

    def _end(self) -> None:
        if self._requests == self._kill_at and self._after:
            os.kill(os.getpid(), signal.SIGKILL)
