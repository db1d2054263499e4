"""The cost of history: opening, reading and a small commit, by the number of commits."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa

import tidelock as tl

COMMITS = (10, 1_000, 10_000)
_ROUNDS = 15
_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])


@dataclass(frozen=True, slots=True)
class Growth:
    """A table with `commits` one-row commits: medians in milliseconds, and its timeline files.

    Clean and archive run inline, which is the default.
    """

    commits: int
    open_ms: float
    read_ms: float
    commit_ms: float
    active_files: int


def measure(sizes: tuple[int, ...] = COMMITS) -> list[Growth]:
    """Write one table, and measure it at each size."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder) / "table")
        tl.Table.create(location, _SCHEMA, key="id", ordering="ts").close()
        done = 0
        with tl.Table.open(location) as table:
            for size in sizes:
                while done < size:
                    _write(table, done)
                    done += 1
                found.append(_look(location, size))
    return found


def _look(location: str, size: int) -> Growth:
    timeline = Path(location) / ".hoodie" / "timeline"
    with tl.Table.open(location) as table:
        commit_ms = _median_ms(lambda turn: _write(table, size + turn))
        read_ms = _median_ms(lambda _: table.read())
    return Growth(
        commits=size,
        open_ms=_median_ms(lambda _: tl.Table.open(location).close()),
        read_ms=read_ms,
        commit_ms=commit_ms,
        active_files=sum(1 for path in timeline.iterdir() if path.is_file()),
    )


def _write(table: tl.Table, turn: int) -> None:
    table.upsert(pa.table([[turn % 50], [f"v{turn}"], [turn]], schema=_SCHEMA))


def _median_ms(action: Callable[[int], object]) -> float:
    samples = []
    for turn in range(_ROUNDS):
        began = time.perf_counter()
        action(turn)
        samples.append((time.perf_counter() - began) * 1_000)
    return median(samples)
