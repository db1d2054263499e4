"""What a case runs in: a clock that only the case moves, a store in memory, actors with a baton.

Every actor has a thread, and exactly one thread runs at any time: whoever starts an actor waits
until it has come to the point it was to come to, or to its end. So a case takes the same course
every time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidelock.base.clock import Clock, Now
from tidelock.base.runtime import start_thread
from tidelock.engine.local import LocalEngine, Scan
from tidelock.kernel.read import slice_batches
from tidelock.store.contract import (
    ObjectMeta,
    ObjectStore,
    Overwrite,
    PutMode,
    PutReply,
    StoredObject,
    Upload,
)
from tidelock.store.memory import MemoryStore
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.block import Block, Header
from tidelock.table.logfile.reader import blocks_of
from tidelock.table.logfile.writer import log_bytes
from tidelock.table.naming import data_file

_BEGINNING_EPOCH_MS: Final = 1_700_000_000_000
_HUNG_S: Final = 240.0
_LEDGER: Final = ".hoodie/.tidelock/ledger/"
_HEARTBEATS: Final = ".hoodie/.heartbeat/"
_MARKERS: Final = ".hoodie/.temp/"


class CaseClock:
    """A clock that a look at it moves by a millisecond, and a sleep by as long as it takes."""

    def __init__(self, passed_ms: int = 0) -> None:
        """Begin at a fixed time."""
        self.passed_ms = passed_ms

    def now(self) -> Now:
        """Return the time, a millisecond after the last look."""
        self.passed_ms += 1
        return Now(monotonic_ms=self.passed_ms, wall_epoch_ms=_BEGINNING_EPOCH_MS + self.passed_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Let time pass, without waiting."""
        self.passed_ms += max(1, round(duration_ms))


class SlowClock(CaseClock):
    """The same time as another clock, always as much earlier on the wall."""

    def __init__(self, clock: CaseClock, behind_ms: int) -> None:
        """Be behind."""
        super().__init__()
        self._clock = clock
        self._behind_ms = behind_ms

    def now(self) -> Now:
        """Return the time, a millisecond after the last look."""
        now = self._clock.now()
        return Now(now.monotonic_ms, now.wall_epoch_ms - self._behind_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Let time pass for all."""
        self._clock.sleep_ms(duration_ms)


class CaseStore(MemoryStore):
    """A store in memory that can be copied: what a table holds is prepared once for many cases."""

    def copied(self, clock: Clock) -> CaseStore:
        """Return a store with the same objects."""
        other = CaseStore("case", clock=clock)
        other._objects = dict(self._objects)
        other._writes = self._writes
        return other

    def with_every_block(self, clock: Clock) -> CaseStore:
        """Return a store in which no log block says that it takes the place of others.

        Readers with Hudi's default settings merge every block in the order of the log files.
        """
        other = self.copied(clock)
        for key, body in self.objects().items():
            partition, _, name = key.rpartition("/")
            if isinstance(data_file(partition, name, len(body)), LogFile):
                other.put(key, _equal_blocks(body, key), Overwrite())
        return other

    def objects(self) -> dict[str, bytes]:
        """Return the bytes of every object."""
        return {key: stored.body for key, stored in self._objects.items()}


def _equal_blocks(body: bytes, where: str) -> bytes:
    """Return a log file of the same size without the header that names replaced blocks."""
    blocks = (block for block in blocks_of(body, where=where) if isinstance(block, Block))
    return log_bytes([replace(block, headers=_renamed(block.headers)) for block in blocks])


def _renamed(headers: Mapping[int, str]) -> dict[int, str]:
    names = {int(Header.COMPACTED_BLOCK_TIMES): int(Header.BLOCK_IDENTIFIER)}
    return {names.get(name, name): text for name, text in headers.items()}


@dataclass(frozen=True, slots=True)
class InlineEngine(LocalEngine):
    """Reads slices one after the other in the caller's thread: thousands of tiny tables."""

    def read(self, scan: Scan) -> list[pa.Table]:
        """Return the rows of all slices, in the order of the slices."""
        return [
            rows
            for piece in scan.slices
            for rows in slice_batches(
                scan.store,
                piece,
                scan.schema,
                rule=scan.rule,
                columns=scan.columns,
                as_of=scan.as_of,
                commit_times=scan.commit_times,
            )
        ]


class Actor:
    """One who does something to the table, as far as it is let."""

    def __init__(self, name: str, run: Callable[[ObjectStore], Any], store: ObjectStore) -> None:
        """Do nothing yet."""
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.reached: list[str] = []
        self._run = run
        self.store = ActorStore(store, self)
        self._until = ""
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._begun = False
        self.is_done = False

    def advance(self, until: str) -> bool:
        """Let the actor run until a point, or to its end if it never comes there; tell which."""
        if self.is_done:
            return True
        self._until = until
        if self._begun:
            self._go.release()
        else:
            self._begun = True
            start_thread(f"tidelock-interleaving-{self.name}", self._work)
        if not self._back.acquire(timeout=_HUNG_S):
            raise TimeoutError(f"actor {self.name} hangs on its way to {until or 'its end'}")
        return self.is_done

    def at(self, point: str) -> None:
        """Wait here, if this is the point."""
        if self._until != point:
            return
        self._until = ""
        self.reached.append(point)
        self._back.release()
        self._go.acquire()

    def _work(self) -> None:
        try:
            self.result = self._run(self.store)
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
            self._back.release()


class ActorStore:
    """The table's store as one actor uses it: its requests say how far the actor has come.

    placed    it knows what it will write where, and takes its request time
    begun     it has announced itself, and has written no data
    writing   it has read what it starts from, and its first data file comes next
    commit    its data is written, and its entry of the ledger comes next
    decided   its entry of the ledger is there, and not on the timeline yet

    Services stop before the entry of each fact in the same way: plan, claim, undo, boundary.
    """

    def __init__(self, inner: ObjectStore, actor: Actor) -> None:
        """Pass everything on."""
        self._inner = inner
        self._actor = actor

    @property
    def uri(self) -> str:
        """The table's place."""
        return self._inner.uri

    @property
    def identity(self) -> str:
        """The same as everybody's."""
        return self._inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or a range of it; None if absent."""
        return self._inner.get(key, start=start, end=end)

    def head(self, key: str) -> ObjectMeta | None:
        """Return what is known of the object without its bytes; None if absent."""
        return self._inner.head(key)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write, and wait before or after it if this is the point."""
        kind = str(json.loads(body).get("kind", "")) if key.startswith(_LEDGER) else ""
        if key.startswith(_HEARTBEATS):
            self._actor.at("placed")
        elif key.startswith(_MARKERS):
            self._actor.at("writing")
        elif kind:
            self._actor.at(kind)
        reply = self._inner.put(key, body, mode)
        if kind == "commit":
            self._actor.at("decided")
        elif key.endswith(".inflight"):
            self._actor.at("begun")
        return reply

    def delete(self, key: str) -> None:
        """Remove the object."""
        self._inner.delete(key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects below `prefix`."""
        return self._inner.list(prefix, start_after=start_after)

    def upload(self, key: str) -> Upload:
        """Return an upload."""
        return self._inner.upload(key)

    def local_path(self, key: str) -> str | None:
        """Return where the object is a file."""
        return self._inner.local_path(key)

    def close(self) -> None:
        """Leave the store to the others."""
