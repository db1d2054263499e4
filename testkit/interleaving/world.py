"""The environment of a case: a controlled clock, a store in memory, and actors run in turn.

Every actor has a thread, and exactly one thread runs at any time: the starter of an actor waits
until it has reached its point or its end. So a case runs the same way every time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidelock.core.clock import Clock, Now
from tidelock.core.threads import start_thread
from tidelock.execution.filegroup.read import slice_batches
from tidelock.execution.local.read import LocalEngine, Scan
from tidelock.hudi.file_groups import LogFile, data_file
from tidelock.hudi.log_blocks import Block, Header, log_bytes, parse_log
from tidelock.storage.contract import (
    ObjectMeta,
    ObjectStore,
    Overwrite,
    PutMode,
    PutReply,
    StoredObject,
    Upload,
)
from tidelock.storage.memory import MemoryStore

_BEGINNING_EPOCH_MS: Final = 1_700_000_000_000
_HUNG_S: Final = 240.0
_LEDGER: Final = ".hoodie/.tidelock/ledger/"
_HEARTBEATS: Final = ".hoodie/.heartbeat/"
_MARKERS: Final = ".hoodie/.temp/"


class CaseClock:
    """A clock that advances by a millisecond per read, and by the duration of a sleep."""

    def __init__(self, passed_ms: int = 0) -> None:
        """Start at a fixed time."""
        self.passed_ms = passed_ms

    def now(self) -> Now:
        """Return the time, a millisecond after the last read."""
        self.passed_ms += 1
        return Now(monotonic_ms=self.passed_ms, wall_epoch_ms=_BEGINNING_EPOCH_MS + self.passed_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Advance the time without waiting."""
        self.passed_ms += max(1, round(duration_ms))


class SlowClock(CaseClock):
    """The time of another clock, with a wall clock that is always behind by a fixed amount."""

    def __init__(self, clock: CaseClock, behind_ms: int) -> None:
        """Set the delay."""
        super().__init__()
        self._clock = clock
        self._behind_ms = behind_ms

    def now(self) -> Now:
        """Return the time, a millisecond after the last read."""
        now = self._clock.now()
        return Now(now.monotonic_ms, now.wall_epoch_ms - self._behind_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Advance the time of the shared clock."""
        self._clock.sleep_ms(duration_ms)


class CaseStore(MemoryStore):
    """A store in memory that can be copied, so that a table is prepared once for many cases."""

    def copied(self, clock: Clock) -> CaseStore:
        """Return a store with the same objects."""
        other = CaseStore("case", clock=clock)
        other._objects = dict(self._objects)
        other._writes = self._writes
        return other

    def with_every_block(self, clock: Clock) -> CaseStore:
        """Return a store in which no log block names the blocks it replaces.

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
    blocks = (block for block in parse_log(body, where=where) if isinstance(block, Block))
    return log_bytes([replace(block, headers=_renamed(block.headers)) for block in blocks])


def _renamed(headers: Mapping[int, str]) -> dict[int, str]:
    names = {int(Header.COMPACTED_BLOCK_TIMES): int(Header.BLOCK_IDENTIFIER)}
    return {names.get(name, name): text for name, text in headers.items()}


@dataclass(frozen=True, slots=True)
class InlineEngine(LocalEngine):
    """Reads slices one after the other in the caller's thread, for thousands of tiny tables."""

    def read(self, scan: Scan) -> list[pa.Table]:
        """Return the rows of all slices, in slice order."""
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
    """An actor that works on the table, up to the point it may reach."""

    def __init__(self, name: str, run: Callable[[ObjectStore], Any], store: ObjectStore) -> None:
        """Create the actor without starting it."""
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
        """Run the actor until a point, or to its end; return whether it reached the point."""
        if self.is_done:
            return True
        self._until = until
        if self._begun:
            self._go.release()
        else:
            self._begun = True
            start_thread(f"tidelock-interleaving-{self.name}", self._work)
        if not self._back.acquire(timeout=_HUNG_S):
            raise TimeoutError(f"actor {self.name} did not reach {until or 'its end'}")
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
    """The table's store as one actor uses it; its requests show the progress of the actor.

    placed    its rows are assigned to files, and it requests its instant next
    begun     its instant is requested, and no data is written
    writing   it has read its inputs, and writes its first data file next
    commit    its data is written, and it appends its entry to the ledger next
    decided   its entry is in the ledger, and not on the timeline yet

    Services stop before the entry of each fact in the same way: plan, claim, undo, boundary.
    """

    def __init__(self, inner: ObjectStore, actor: Actor) -> None:
        """Pass all requests on."""
        self._inner = inner
        self._actor = actor

    @property
    def uri(self) -> str:
        """The table's URI."""
        return self._inner.uri

    @property
    def identity(self) -> str:
        """Return the same identity for all actors."""
        return self._inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or a range of it; None if absent."""
        return self._inner.get(key, start=start, end=end)

    def head(self, key: str) -> ObjectMeta | None:
        """Return the metadata of the object; None if absent."""
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
        """Delete the object."""
        self._inner.delete(key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects with `prefix`."""
        return self._inner.list(prefix, start_after=start_after)

    def upload(self, key: str) -> Upload:
        """Return an upload."""
        return self._inner.upload(key)

    def local_path(self, key: str) -> str | None:
        """Return the path of the object, if it is a file."""
        return self._inner.local_path(key)

    def close(self) -> None:
        """Do nothing: the store is shared."""
