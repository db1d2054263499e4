"""A clock controlled by the test, and a store with scripted replies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from tidelock.core.clock import Now
from tidelock.storage.contract import (
    Create,
    ObjectMeta,
    ObjectStore,
    PutMode,
    PutReply,
    StoredObject,
    Upload,
)
from tidelock.storage.uploads import BufferedUpload

EPOCH_MS = 1_700_000_000_000


class ManualClock:
    """Time that passes only by `sleep_ms` and `advance`; both clocks together unless stepped."""

    def __init__(self) -> None:
        """Start at an arbitrary time."""
        self._mutex = threading.Lock()
        self._elapsed_ms = 1_000.0
        self.wall_offset_ms = 0
        self.slept_ms: list[float] = []
        self.when_sleeping: Callable[[], None] = lambda: None

    def now(self) -> Now:
        """Read both clocks."""
        elapsed_ms = int(self._elapsed_ms)
        return Now(elapsed_ms, EPOCH_MS + elapsed_ms + self.wall_offset_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Advance the time at once."""
        self.slept_ms.append(duration_ms)
        self.advance(duration_ms)
        self.when_sleeping()

    def advance(self, duration_ms: float) -> None:
        """Advance the time."""
        with self._mutex:
            self._elapsed_ms += duration_ms


Script = Callable[[Callable[[], PutReply]], PutReply]
"""A scripted put: it may call through to the store, and returns any reply."""


class ScriptedStore:
    """A store whose next puts and gets follow a script; without a script they pass through."""

    def __init__(self, inner: ObjectStore) -> None:
        """Wrap `inner`."""
        self.inner = inner
        self.puts: deque[Script | None] = deque()
        self.gets: deque[Exception | None] = deque()
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []

    @property
    def uri(self) -> str:
        """The URI of the wrapped store."""
        return self.inner.uri

    @property
    def identity(self) -> str:
        """The identity of the wrapped store."""
        return self.inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Read, or fail as scripted."""
        self.requests.append(("get", key))
        problem = self.gets.popleft() if self.gets else None
        if problem is not None:
            raise problem
        return self.inner.get(key, start=start, end=end)

    def head(self, key: str) -> ObjectMeta | None:
        """Pass through."""
        return self.inner.head(key)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write, or reply as scripted."""
        self.requests.append(("put", key))
        self.bodies.append(body)

        def through() -> PutReply:
            return self.inner.put(key, body, mode)

        script = self.puts.popleft() if self.puts else None
        return through() if script is None else script(through)

    def delete(self, key: str) -> None:
        """Pass through."""
        self.inner.delete(key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Pass through."""
        return self.inner.list(prefix, start_after=start_after)

    def upload(self, key: str) -> Upload:
        """Write everything at the end, as a put that may be scripted."""
        return BufferedUpload(lambda body: self.put(key, body, Create()))

    def local_path(self, key: str) -> str | None:
        """Return None: every read goes through this store."""
        return None

    def close(self) -> None:
        """Pass through."""
        self.inner.close()

    def count(self, verb: str) -> int:
        """Return the number of requests of a kind."""
        return sum(1 for sent, _ in self.requests if sent == verb)


def answer(reply: PutReply) -> Script:
    """Return a script that replies without writing."""
    return lambda through: reply


def landing(reply: PutReply) -> Script:
    """Return a script that writes and then returns another reply, as if the reply was lost."""

    def script(through: Callable[[], PutReply]) -> PutReply:
        through()
        return reply

    return script


def failing(error: Exception) -> Script:
    """Return a script that raises without writing."""

    def script(through: Callable[[], PutReply]) -> PutReply:
        raise error

    return script
