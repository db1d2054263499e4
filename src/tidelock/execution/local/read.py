"""The local read engine: file slices are read in threads of this process, without a JVM."""

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

from tidelock.core.errors import DataCorrupt
from tidelock.core.threads import worker_pool
from tidelock.execution.engine import RELEASE_BYTES_MAX, release_memory
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.read import BATCH_ROWS, slice_batches
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.log_blocks import CorruptBlock
from tidelock.storage.contract import ObjectStore

logger = logging.getLogger(__name__)

WORKERS_MAX: Final = 32
SLICES_PER_WORKER: Final = 2
"""The number of slices in progress per thread, so that a short slice does not leave it idle."""
BATCHES_AHEAD: Final = 2
"""The number of batches of a slice that are read ahead."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read: slices in order, and which of their rows (see `slice_batches`)."""

    store: ObjectStore
    slices: Sequence[FileSlice]
    schema: pa.Schema
    rule: MergeRule
    columns: Sequence[str] | None = None
    as_of: str | None = None
    commit_times: Collection[str] | None = None
    batch_rows: int = BATCH_ROWS
    row_filter: RowFilter | None = None


def default_workers() -> int:
    """Return the default number of threads; reading waits for the store half of the time."""
    return max(4, min(WORKERS_MAX, 2 * (os.cpu_count() or 1)))


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Reads with up to `workers` threads, which exist for the duration of a call."""

    workers: int = field(default_factory=default_workers)

    def batches(self, scan: Scan) -> Generator[pa.Table, None, None]:
        """Yield the rows slice by slice, in the order of the slices.

        Slices are read ahead: a bounded number of batches of a bounded number of slices. The first
        error in any slice ends the read. Raises: `NotFound`, `DataCorrupt`, `InvalidInput`,
        `Unsupported`, each naming the object.
        """
        return self._ordered(scan, BATCHES_AHEAD)

    def read(self, scan: Scan) -> list[pa.Table]:
        """Return the rows of all slices, in the order of the slices; raises as `batches`."""
        # All rows are held in memory anyway, so reading ahead is not limited.
        return list(self._ordered(scan, None))

    def _ordered(self, scan: Scan, ahead: int | None) -> Generator[pa.Table, None, None]:
        if not scan.slices:
            return
        workers = max(1, min(self.workers, len(scan.slices)))
        waiting = deque(scan.slices)
        streams: deque[_SliceStream] = deque()
        with worker_pool("tidelock-read", workers) as pool:
            relay = _BatchRelay(pool, ahead)
            try:
                while waiting or streams:
                    while waiting and len(streams) < workers * SLICES_PER_WORKER:
                        streams.append(_SliceStream(_slice_rows(scan, waiting.popleft())))
                        relay.begin(streams[-1])
                    yield from relay.take(streams[0])
                    streams.popleft()
            finally:
                relay.stop()
        if sum(file_slice.size_bytes for file_slice in scan.slices) <= RELEASE_BYTES_MAX:
            release_memory()


@dataclass(eq=False, slots=True)
class _SliceStream:
    """A slice being read: its source, and the batches not taken yet."""

    source: Iterator[pa.Table]
    batches: deque[pa.Table] = field(default_factory=deque)
    ended: bool = False
    paused: bool = False


class _BatchRelay:
    """Passes batches from reader threads to the caller.

    A thread never blocks: it leaves a stream that is full, and the caller resumes it after taking a
    batch. So a caller that stops halfway does not keep threads alive.
    """

    def __init__(self, pool: Executor, ahead: int | None) -> None:
        self._pool = pool
        self._ahead = ahead
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None

    def begin(self, stream: _SliceStream) -> None:
        """Read the stream in a thread until it is full or at its end."""
        self._pool.submit(self._fill, stream)

    def take(self, stream: _SliceStream) -> Iterator[pa.Table]:
        """Yield the batches of a stream until it ends. Raises the first error of any stream."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._error or stream.batches or stream.ended)
                if self._error is not None:
                    raise self._error
                if not stream.batches:
                    return
                batch = stream.batches.popleft()
                if stream.paused:
                    stream.paused = False
                    self.begin(stream)
            yield batch

    def stop(self) -> None:
        """Stop reading in all threads."""
        self._stopped = True

    def _fill(self, stream: _SliceStream) -> None:
        try:
            while not self._stopped:
                batch = next(stream.source, None)
                if not self._put(stream, batch):
                    return
        except BaseException as error:  # noqa: BLE001 - re-raised in `take`
            # Before this thread takes the next stream: the caller may be slow to notice the error.
            self._stopped = True
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _put(self, stream: _SliceStream, batch: pa.Table | None) -> bool:
        """Add a batch, or the end (None); return whether there is room for more."""
        with self._changed:
            if batch is None:
                stream.ended = True
            else:
                stream.batches.append(batch)
                stream.paused = self._ahead is not None and len(stream.batches) >= self._ahead
            self._changed.notify_all()
            return not (stream.ended or stream.paused)


def _slice_rows(scan: Scan, file_slice: FileSlice) -> Iterator[pa.Table]:
    """Yield the rows of one slice; errors name the slice."""
    try:
        yield from slice_batches(
            scan.store,
            file_slice,
            scan.schema,
            rule=scan.rule,
            columns=scan.columns,
            as_of=scan.as_of,
            commit_times=scan.commit_times,
            on_corrupt=_log_corrupt,
            batch_rows=scan.batch_rows,
            row_filter=scan.row_filter,
        )
    except (pa.ArrowException, UnicodeError) as error:
        raise DataCorrupt(
            f"{_slice_uri(scan, file_slice)}: the rows cannot be read: {error}"
        ) from error
    except Exception as error:
        error.add_note(f"while reading {_slice_uri(scan, file_slice)}")
        raise


def _slice_uri(scan: Scan, file_slice: FileSlice) -> str:
    """Return the URI of the slice's first file."""
    first = file_slice.base or next(iter(file_slice.logs), None)
    return f"{scan.store.uri}/{first.key if first else file_slice.file_id}"


def _log_corrupt(corrupt: CorruptBlock) -> None:
    logger.warning(
        "%s: skipped a corrupt block of %d bytes at byte %d: %s",
        corrupt.where,
        corrupt.size_bytes,
        corrupt.offset,
        corrupt.reason,
    )
