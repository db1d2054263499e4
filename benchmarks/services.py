"""The cost of table services: compared with a rewrite, by number of commits, and for writers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidelock as tl

COMMITS = (10, 1_000, 10_000)
MERGING_GOAL, COPYING_GOAL, LATENCY_GOAL = 0.7, 3.0, 1.5
_FILES, _ROWS = 8, 300_000
_ROUNDS = 5
_WRITES = 300
_WORK = 30
"""The number of writes that a clean and an archive process, for every number of commits."""

_NOTHING = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
_WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_NARROW = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A service that rewrites data files, compared with pyarrow on the same base files."""

    what: str
    size_mb: float
    service_s: float
    plain_s: float
    goal: float | None

    @property
    def ratio(self) -> float:
        """The speed relative to pyarrow."""
        return self.plain_s / self.service_s


@dataclass(frozen=True, slots=True)
class Keeping:
    """The time of a clean and an archive, by the number of commits of the table."""

    commits: int
    clean_ms: float
    archive_ms: float


@dataclass(frozen=True, slots=True)
class Ingesting:
    """The latency of small upserts, with and without services."""

    services: str
    p50_ms: float
    p99_ms: float


def rewriting() -> list[Rewriting]:
    """Compact and cluster copies of a table, in turn."""
    sort = "hoodie.clustering.plan.strategy.sort.columns"
    layout = "hoodie.layout.optimize.strategy"
    cases: dict[str, tuple[str, float | None, dict[str, str]]] = {
        "compaction of 10 % changed rows": ("MERGE_ON_READ", MERGING_GOAL, {}),
        "clustering, copied": ("COPY_ON_WRITE", COPYING_GOAL, {}),
        "clustering, sorted by a column": ("COPY_ON_WRITE", None, {sort: "price"}),
        "clustering, z-order of two": (
            "COPY_ON_WRITE",
            None,
            {sort: "price,city", layout: "z-order"},
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("MERGE_ON_READ", "COPY_ON_WRITE"):
            _fill(Path(folder) / kind, kind)
        samples: dict[str, list[float]] = {what: [] for what in cases}
        plain: dict[str, list[float]] = {kind: [] for kind, _, _ in cases.values()}
        for _ in range(_ROUNDS):
            for what, (kind, _, options) in cases.items():
                samples[what].append(_served(Path(folder), kind, options))
            for kind, times in plain.items():
                times.append(_timed(partial(_rewritten, Path(folder) / kind)))
        sizes = {kind: _size_mb(Path(folder) / kind) for kind in plain}
    return [
        Rewriting(what, sizes[kind], min(samples[what]), min(plain[kind]), goal)
        for what, (kind, goal, _) in cases.items()
    ]


def keeping(commits: tuple[int, ...] = COMMITS) -> list[Keeping]:
    """Write one table; at each number of commits, time a clean and an archive of the same work."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder) / "table")
        tl.Table.create(location, _NARROW, key="id", ordering="ts").close()
        done = 0
        for size in commits:
            with tl.Table.open(location) as table:
                while done < size:
                    _upsert(table, done, 1)
                    done += 1
                table.clean()
                table.archive()
            cleans, archives = [], []
            for _ in range(_ROUNDS):
                with tl.Table.open(location, options=_NOTHING) as table:
                    for turn in range(_WORK):
                        _upsert(table, done + turn, 1)
                    cleans.append(_timed(table.clean))
                    archives.append(_timed(table.archive))
            found.append(Keeping(size, median(cleans) * 1_000, median(archives) * 1_000))
    return found


def ingesting() -> list[Ingesting]:
    """Upsert small batches: alone, with services in a thread, and in another process."""
    in_a_thread = {
        "hoodie.datasource.compaction.async.enable": "true",
        "hoodie.clean.async.enabled": "true",
        "hoodie.archive.async": "true",
        "hoodie.clean.automatic": "true",
        "hoodie.archive.automatic": "true",
    }
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for services, options in (("none", {}), ("in a thread", in_a_thread), ("in a process", {})):
            location = Path(folder) / services.replace(" ", "-")
            found.append(_ingested(location, services, {**_NOTHING, **options}))
    return found


def _ingested(location: Path, services: str, options: Mapping[str, str]) -> Ingesting:
    tl.Table.create(
        str(location), _NARROW, key="id", ordering="ts", type="MERGE_ON_READ", options=options
    ).close()
    with tl.Table.open(str(location), options=options) as table:
        table.bulk_insert(_narrow(0, 20_000))
        for turn in range(20):
            _upsert(table, turn, 100)
        other = _serving(location) if services == "in a process" else None
        try:
            samples = [_timed(partial(_upsert, table, turn, 100)) for turn in range(_WRITES)]
        finally:
            if other is not None:
                other.terminate()
                other.wait()
    ordered = sorted(samples)
    return Ingesting(services, median(ordered) * 1_000, ordered[int(0.99 * len(ordered))] * 1_000)


def _serving(location: Path) -> subprocess.Popen[bytes]:
    """Start a process that compacts, cleans and archives a table repeatedly."""
    program = (
        "import sys, time, tidelock as tl\n"
        "with tl.Table.open(sys.argv[1]) as table:\n"
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        table.compact(); table.clean(); table.archive(); time.sleep(0.5)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(location)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _fill(location: Path, kind: str) -> None:
    options = {**_NOTHING, "hoodie.parquet.small.file.limit": "0"}
    with tl.Table.create(
        str(location), _WIDE, key="id", ordering="ts", type=kind, options=options
    ) as table:
        for number in range(_FILES):
            table.bulk_insert(_wide(np.arange(number * _ROWS, (number + 1) * _ROWS), 1))
        if kind == "MERGE_ON_READ":
            table.upsert(_wide(np.arange(0, _FILES * _ROWS, 10), 2))


def _wide(ids: np.ndarray[tuple[int], np.dtype[np.int64]], ts: int) -> pa.Table:
    random = np.random.default_rng(ts)
    cities = pa.array([f"city {number}" for number in range(500)])
    columns = [
        pa.array(ids),
        pa.repeat(pa.scalar(ts, pa.int64()), len(ids)),
        cities.take(pa.array(random.integers(0, 500, len(ids)))),
        pa.array([f"name {number * 7919 % 1_000_003}" for number in ids.tolist()]),
        pa.array(np.round(random.random(len(ids)) * 1_000, 2)),
        pa.array(ids * 1_000_000, pa.timestamp("us", "UTC")),
    ]
    return pa.table(columns, schema=_WIDE)


def _served(folder: Path, kind: str, options: Mapping[str, str]) -> float:
    """Return the duration of a service on a copy of the table."""
    location = folder / "copy"
    shutil.copytree(folder / kind, location)
    with tl.Table.open(str(location), options={**_NOTHING, **options}) as table:
        run = table.compact if kind == "MERGE_ON_READ" else table.cluster
        took = _timed(run)
        assert len(table.files())
    shutil.rmtree(location)
    return took


def _rewritten(location: Path) -> None:
    """Read and write every base file with pyarrow alone, in several threads."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:

        def rewrite(path: Path) -> None:
            pq.write_table(pq.read_table(path), Path(folder) / path.name, compression="snappy")

        for done in pool.map(rewrite, sorted(location.glob("*.parquet"))):
            assert done is None


def _size_mb(location: Path) -> float:
    files = [*location.glob("*.parquet"), *location.glob(".*.log.*")]
    return sum(path.stat().st_size for path in files) / 1_000_000


def _upsert(table: tl.Table, turn: int, size: int) -> None:
    table.upsert(_narrow(turn * 37 % 20_000, size, turn))


def _narrow(first: int, size: int, ts: int = 0) -> pa.Table:
    ids = list(range(first, first + size))
    return pa.table([ids, [f"v{each}-{ts}" for each in ids], [ts] * size], schema=_NARROW)


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
