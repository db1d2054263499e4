"""Reading and writing one file group: `python -m benchmarks.file_group [rows]`.

312,500 rows of 10 columns are a sixteenth of five million. The measured actions take turns, so that
other load affects all of them. CPU time is shown next to wall time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from testkit.slices import read_slice
from tidelock.execution.filegroup.context import (
    BloomSettings,
    FileResult,
    FileSettings,
    LogFormat,
    WriteContext,
)
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.write import create_base, merge_base
from tidelock.hudi.file_groups import BaseFile, FileSlice, LogFile, data_file
from tidelock.hudi.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    avro_schema,
    render_schema,
    with_meta,
)
from tidelock.storage.local import LocalStore

ROWS = 312_500
TURNS = 7


def rows_at(numbers: np.ndarray, seed: int) -> pa.Table:
    """Return rows with these numbers: keys, times, amounts, strings of low and high cardinality."""
    drawn = np.random.default_rng(seed)
    size = len(numbers)
    keys = pa.array(np.char.add("key-", np.char.zfill(numbers.astype("U"), 12)))
    when = drawn.integers(1_600_000_000_000_000, 1_700_000_000_000_000, size)
    return pa.table(
        {
            RECORD_KEY: keys,
            PARTITION_PATH: pa.repeat(pa.scalar("p"), size),
            "id": keys,
            "ts": pa.array(when).cast(pa.timestamp("us", "UTC")),
            "version": pa.array(np.full(size, seed)),
            "amount": pa.array(drawn.random(size) * 1000),
            "price": pa.array(drawn.random(size)),
            "quantity": pa.array(drawn.integers(0, 1000, size).astype(np.int32)),
            "city": _one_of([f"city-{i}" for i in range(200)], drawn, size),
            "status": _one_of(["NEW", "PAID", "SENT", "DONE", "GONE"], drawn, size),
            "user": _one_of([f"user-{i:06}" for i in range(50_000)], drawn, size),
            "note": pa.array(drawn.integers(0, 2**60, size)).cast(pa.string()),
        }
    )


def _one_of(values: list[str], drawn: np.random.Generator, size: int) -> pa.Array:
    return pa.array(values).take(pa.array(drawn.integers(0, len(values), size)))


@dataclass
class Bench:
    """A folder with a file group, and rows to write."""

    folder: Path
    rows: int
    turn: int = 0
    store: LocalStore = field(init=False)
    stored: pa.Table = field(init=False)
    changes: pa.Table = field(init=False)
    base: FileResult = field(init=False)

    def __post_init__(self) -> None:
        """Write the group."""
        # Disk flushes are not measured; polars does not wait for them either.
        self.store = LocalStore(self.folder, fsync=False)
        self.stored = rows_at(np.arange(self.rows), 1)
        chosen = np.random.default_rng(2).choice(self.rows, self.rows // 10, replace=False)
        self.changes = rows_at(np.sort(chosen), 2)
        self.base = self.created("10")

    def context(self, instant: str, **settings: Any) -> WriteContext:
        """Return the context of a write."""
        user = self.stored.drop([RECORD_KEY, PARTITION_PATH]).schema
        avro = render_schema(avro_schema(user, table="bench"))
        laid_out = FileSettings(file_bytes_max=None, **settings)
        return WriteContext(instant, 0, with_meta(user), avro, settings=laid_out, markers=False)

    def fresh(self) -> str:
        """Return an unused instant."""
        self.turn += 1
        return f"{100 + self.turn}"

    def created(self, instant: str, **settings: Any) -> FileResult:
        """Write all rows as a group."""
        (result,) = create_base(
            self.store,
            self.context(instant, **settings),
            partition="p",
            file_id="group-0",
            slot=0,
            rows=[self.stored],
        )
        return result

    def slice_of(self, *results: FileResult) -> FileSlice:
        """Return the slice of a base file and its log files."""
        files = [_file(result) for result in results]
        base, *logs = files
        assert isinstance(base, BaseFile)
        found = tuple(log for log in logs if isinstance(log, LogFile))
        return FileSlice("p", "group-0", base.instant, base, found)

    def merged(self) -> FileResult:
        """Merge 10 % of the rows into the group."""
        piece = self.slice_of(self.base)
        return merge_base(self.store, self.context(self.fresh()), piece, slot=0, rows=self.changes)

    def appended(self, form: LogFormat) -> FileResult:
        """Append 10 % of the rows to the group."""
        ctx = self.context(self.fresh(), log_format=form)
        return append_log(self.store, ctx, self.slice_of(self.base), slot=0, rows=self.changes)

    def read(self, log: FileResult) -> pa.Table:
        """Read the group with a log file on top."""
        piece = self.slice_of(self.base, log)
        return read_slice(self.store, piece, self.context("1").schema, rule=MergeRule())


def _file(result: FileResult) -> BaseFile | LogFile:
    name = (result.stat.path or "").rpartition("/")[2]
    found = data_file("p", name, result.stat.file_size_in_bytes or 0)
    assert found is not None
    return found


def polars_work(bench: Bench) -> Mapping[str, Callable[[], object]]:
    """Return the same actions with polars, if it is installed."""
    try:
        import polars as pl
    except ImportError:
        return {}
    stored = bench.store.local_path(_file(bench.base).key)
    size = bench.changes.num_rows
    meta = {COMMIT_TIME: "101", COMMIT_SEQNO: "101_0_000000", FILE_NAME: "group-0"}
    changes = bench.changes
    for name, value in meta.items():
        changes = changes.append_column(name, pa.repeat(pa.scalar(value), size))
    newer, target = pl.from_arrow(changes), bench.folder / "polars.parquet"
    assert isinstance(newer, pl.DataFrame)

    def merge() -> None:
        older = pl.scan_parquet(stored or "")
        names = older.collect_schema().names()
        saved = older.join(newer.lazy(), on=RECORD_KEY, how="anti")
        pl.concat([saved, newer.lazy().select(names)]).sink_parquet(target, compression="snappy")

    whole = pl.read_parquet(stored or "")
    return {
        "polars anti-join and write": merge,
        "polars write": lambda: whole.write_parquet(target, compression="snappy"),
    }


def work(bench: Bench) -> Mapping[str, Callable[[], object]]:
    """Return the measured actions."""
    avro, parquet = bench.appended(LogFormat.AVRO), bench.appended(LogFormat.PARQUET)
    whole = pq.read_table(bench.store.local_path(_file(bench.base).key))
    target = bench.folder / "arrow.parquet"
    return {
        "merge 10 %": bench.merged,
        "create": lambda: bench.created(bench.fresh()),
        "create with a bloom filter": lambda: bench.created(bench.fresh(), bloom=BloomSettings()),
        "Arrow write": lambda: pq.write_table(whole, target),
        **polars_work(bench),
        "append 10 %, Avro": lambda: bench.appended(LogFormat.AVRO),
        "append 10 %, Parquet": lambda: bench.appended(LogFormat.PARQUET),
        "read with an Avro log": lambda: bench.read(avro),
        "read with a Parquet log": lambda: bench.read(parquet),
    }


def main(arguments: list[str]) -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), int(arguments[0]) if arguments else ROWS)
        doing = work(bench)
        walls: dict[str, list[float]] = {name: [] for name in doing}
        spent: dict[str, list[float]] = {name: [] for name in doing}
        for _ in range(TURNS):
            for name, once in doing.items():
                wall, processor = time.perf_counter(), time.process_time()
                once()
                walls[name].append(time.perf_counter() - wall)
                spent[name].append(time.process_time() - processor)
    print(f"{bench.rows:,} rows, {_file(bench.base).size_bytes / 2**20:.1f} MB, least of {TURNS}")
    for name in doing:
        print(f"{name:28} {min(walls[name]) * 1e3:7.0f} ms  {min(spent[name]) * 1e3:7.0f} ms cpu")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
