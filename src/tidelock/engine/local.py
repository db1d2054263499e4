"""The local engine: file slices read by the kernel in threads of this process, no JVM."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidelock.base.errors import DataCorrupt
from tidelock.base.runtime import worker_pool
from tidelock.engine.memory import SMALL_BYTES, give_back
from tidelock.kernel.basefile import BATCH_ROWS
from tidelock.kernel.filtering import RowFilter
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import slice_batches
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.logfile.reader import CorruptBlock

logger = logging.getLogger(__name__)

WORKERS_MAX: Final = 32
SLICES_PER_WORKER: Final = 2
"""How many slices may be begun for each thread: one short slice must not leave it idle."""
BATCHES_AHEAD: Final = 2
"""How many batches of a slice wait for a reader that takes its time."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read: slices in their order, and what of their rows (see `slice_batches`)."""

    store: ObjectStore
    slices: Sequence[FileSlice]
    schema: pa.Schema
    rule: MergeRule
    columns: Sequence[str] | None = None
    as_of: str | None = None
    commit_times: Collection[str] | None = None
    batch_rows: int = BATCH_ROWS
    passing: RowFilter | None = None


def default_workers() -> int:
    """Return how many threads suit this machine: reading waits for the store half of the time."""
    return max(4, min(WORKERS_MAX, 2 * (os.cpu_count() or 1)))


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Reads with up to `workers` threads; each call starts its own and ends them."""

    workers: int = field(default_factory=default_workers)

    def batches(self, scan: Scan) -> Generator[pa.Table, None, None]:
        """Yield the rows slice by slice, in the order of the slices.

        Slices are read ahead while the caller works, a bounded number of batches of a bounded
        number of slices. The first error, in whichever slice, ends every read.

        Raises: `NotFound`, `DataCorrupt`, `InvalidInput`, `Unsupported`, each naming the object.
        """
        return self._ordered(scan, BATCHES_AHEAD)

    def read(self, scan: Scan) -> list[pa.Table]:
        """Return the rows of all slices, in the order of the slices; raises as `batches` does."""
        # Everything will be in memory in the end, so no slice waits for the one before it.
        return list(self._ordered(scan, None))

    def _ordered(self, scan: Scan, ahead: int | None) -> Generator[pa.Table, None, None]:
        if not scan.slices:
            return
        workers = max(1, min(self.workers, len(scan.slices)))
        waiting = deque(scan.slices)
        begun: deque[_Lane] = deque()
        with worker_pool("tidelock-read", workers) as pool:
            relay = _Relay(pool, ahead)
            try:
                while waiting or begun:
                    while waiting and len(begun) < workers * SLICES_PER_WORKER:
                        begun.append(_Lane(_rows(scan, waiting.popleft())))
                        relay.begin(begun[-1])
                    yield from relay.taken(begun[0])
                    begun.popleft()
            finally:
                relay.stop()
        if sum(piece.size_bytes for piece in scan.slices) <= SMALL_BYTES:
            give_back()


@dataclass(eq=False, slots=True)
class _Lane:
    """One slice under way: where its rows come from, and those that nobody has taken yet."""

    source: Iterator[pa.Table]
    batches: deque[pa.Table] = field(default_factory=deque)
    ended: bool = False
    paused: bool = False


class _Relay:
    """Hands batches from the threads that read to the one caller that takes.

    A thread never waits for room: it leaves a lane that is full, and the caller who makes room has
    it taken up again. So a caller who stops half-way, and never says so, keeps no thread from
    ending with the program.
    """

    def __init__(self, pool: Executor, ahead: int | None) -> None:
        self._pool = pool
        self._ahead = ahead
        self._moved = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None

    def begin(self, lane: _Lane) -> None:
        """Have a thread read the lane until it is full, or at its end."""
        self._pool.submit(self._fill, lane)

    def taken(self, lane: _Lane) -> Iterator[pa.Table]:
        """Yield the batches of a lane until it ends. Raises the first error of any lane."""
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._error or lane.batches or lane.ended)
                if self._error is not None:
                    raise self._error
                if not lane.batches:
                    return
                batch = lane.batches.popleft()
                if lane.paused:
                    lane.paused = False
                    self.begin(lane)
            yield batch

    def stop(self) -> None:
        """Let no thread read on."""
        self._stopped = True

    def _fill(self, lane: _Lane) -> None:
        try:
            while not self._stopped:
                batch = next(lane.source, None)
                if not self._put(lane, batch):
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised again where rows are taken
            with self._moved:
                self._error = self._error or error
                self._moved.notify_all()

    def _put(self, lane: _Lane, batch: pa.Table | None) -> bool:
        """Add a batch, or with None the end; tell whether there is room for more."""
        with self._moved:
            if batch is None:
                lane.ended = True
            else:
                lane.batches.append(batch)
                lane.paused = self._ahead is not None and len(lane.batches) >= self._ahead
            self._moved.notify_all()
            return not (lane.ended or lane.paused)


def _rows(scan: Scan, piece: FileSlice) -> Iterator[pa.Table]:
    """Yield the rows of one slice; whatever goes wrong names it."""
    try:
        yield from slice_batches(
            scan.store,
            piece,
            scan.schema,
            rule=scan.rule,
            columns=scan.columns,
            as_of=scan.as_of,
            commit_times=scan.commit_times,
            on_corrupt=_tell,
            batch_rows=scan.batch_rows,
            passing=scan.passing,
        )
    except (pa.ArrowException, UnicodeError) as error:
        raise DataCorrupt(f"{_where(scan, piece)}: the rows cannot be read: {error}") from error
    except Exception as error:
        error.add_note(f"while reading {_where(scan, piece)}")
        raise


def _where(scan: Scan, piece: FileSlice) -> str:
    """Name the slice by its first file."""
    first = piece.base or next(iter(piece.logs), None)
    return f"{scan.store.uri}/{first.key if first else piece.file_id}"


def _tell(corrupt: CorruptBlock) -> None:
    logger.warning(
        "%s: %d bytes of a torn write at byte %d were skipped: %s",
        corrupt.where,
        corrupt.size_bytes,
        corrupt.offset,
        corrupt.reason,
    )
