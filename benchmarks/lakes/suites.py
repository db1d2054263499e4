"""The suites: the steps of each system, their order, and their repetitions.

The whole suite has every step; the goals suite has only the steps with goals, so that it can be run
with many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lakes.figure import WHOLE
from benchmarks.lakes.lake import COMMITS, PARTITION, ROUNDS, Lake
from benchmarks.lakes.local import TidelockLocalLogs
from benchmarks.lakes.onspark import HudiLogs, OnSpark, Parquet, TidelockLogs

GOALS = "goals"
SUITES = (WHOLE, GOALS)
READS = 3
"""The number of runs of each query; the first one may be slower."""
_POINT = 33
_RANGE_SHARE = 50
"""A range has this fraction of the keys."""
_LOGS = TidelockLogs | HudiLogs | TidelockLocalLogs
"""The merge-on-read tables."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action and its repetitions. Without a name it is not measured."""

    measure: str
    run: Callable[[], object]
    times: int = 1
    is_sum: bool = False


def batches(suite: str) -> Sequence[str] | None:
    """Return the batches of rows that a suite needs, or None for all."""
    few = [f"few{turn}" for turn in range(1, COMMITS + 1)]
    return ["up1", "up10", "round1", "round2", *few] if suite == GOALS else None


def warm_up(kind: type[Lake], inputs: Path, work: Path) -> None:
    """Run everything once with few rows, so that all code is loaded."""
    work.mkdir(parents=True)
    lake = kind(inputs / "warm", work)
    lake.load()
    if not isinstance(lake, Parquet):
        lake.upsert("up1")
        lake.delete()
    lake.read_all()
    lake.point(_POINT)


def steps(suite: str, kind: type[Lake], inputs: Path, work: Path, rows: int) -> Iterator[Step]:
    """Yield the steps of a suite."""
    lake = _lake(kind, inputs, work / "main")
    if suite == GOALS:
        yield from _judged(lake)
        if isinstance(lake, _LOGS):
            yield from _many(_lake(kind, inputs, work / "many"))
        return
    yield from _reading(lake, rows)
    if isinstance(lake, Parquet):
        return
    yield from _changing(lake)
    yield from _aging(lake, rows)
    hot = _lake(kind, inputs, work / "hot", PARTITION)
    yield Step("load, partitions", hot.load)
    yield Step("upsert 1 %, one partition", lambda: hot.upsert("hot1"))
    yield Step("upsert 10 %, one partition", lambda: hot.upsert("hot10"))
    yield Step("sum of partitions", hot.read_column, is_sum=True)
    if isinstance(lake, _LOGS):
        yield from _many(_lake(kind, inputs, work / "many"))


def _lake(kind: type[Lake], inputs: Path, work: Path, by: str | None = None) -> Lake:
    work.mkdir(parents=True)
    return kind(inputs, work, by)


def _judged(lake: Lake) -> Iterator[Step]:
    """Yield the steps with goals. Upserts into log files are short, so they are repeated."""
    yield Step("load", lake.load)
    yield Step("read all", lake.read_all, READS)
    if isinstance(lake, Parquet):
        return
    if isinstance(lake, OnSpark):
        yield Step("least Spark job", lambda: lake.only_read("up1"), READS)
    for batch in ("up1", "round1", "round2") if isinstance(lake, _LOGS) else ("up1",):
        yield Step("upsert 1 %", lambda batch=batch: lake.upsert(batch))  # type: ignore[misc]
    if not isinstance(lake, _LOGS):
        yield Step("upsert 10 %", lambda: lake.upsert("up10"))
    kind = "merge-on-read" if isinstance(lake, _LOGS) else "copy-on-write"
    yield Step(f"sum, {kind}", lake.read_column, is_sum=True)


def _reading(lake: Lake, rows: int) -> Iterator[Step]:
    yield Step("load", lake.load)
    yield Step("read all", lake.read_all, READS)
    yield Step("read one column", lake.read_column, READS)
    yield Step("read one key", lambda: lake.point(_POINT), READS)
    # TPC-H uses only a quarter of the order numbers, and a key has room for eight lines.
    middle = rows * 4
    yield Step(
        "read a range", lambda: lake.between(middle, middle + rows * 8 // _RANGE_SHARE), READS
    )


def _changing(lake: Lake) -> Iterator[Step]:
    if isinstance(lake, OnSpark):
        yield Step("least Spark job", lambda: lake.only_read("up1"), READS)
    yield Step("upsert 1 %", lambda: lake.upsert("up1"))
    yield Step("upsert 10 %", lambda: lake.upsert("up10"))
    yield Step("upsert 1 %, Zipf", lambda: lake.upsert("zipf1"))
    yield Step("upsert 10 %, Zipf", lambda: lake.upsert("zipf10"))
    yield Step("delete 1 %", lake.delete)
    yield Step("read all, changed", lake.read_all, READS)
    yield Step("sum", lake.read_column, is_sum=True)
    yield Step("", lake.start_changes)
    yield Step("", lambda: lake.upsert("round1"))
    yield Step("read changes of 1 %", lake.changes, READS)


def _aging(lake: Lake, rows: int) -> Iterator[Step]:
    """Yield LST-Bench's measure of stability: queries before and after rounds of changes."""

    def queries() -> None:
        lake.read_all()
        lake.read_column()
        lake.between(rows * 4, rows * 5)

    yield Step("", lake.compact)
    yield Step("queries, before", queries, READS)
    for turn in range(1, ROUNDS + 1):
        yield Step("upsert 1 %", lambda turn=turn: lake.upsert(f"round{turn}"))  # type: ignore[misc]
    yield Step("", lake.compact)
    yield Step("queries, after", queries, READS)
    yield Step("sum after rounds", lake.read_column, is_sum=True)


def _many(lake: Lake) -> Iterator[Step]:
    """Yield many small commits into log files, and full reads after them."""
    yield Step("", lake.load)
    for turn in range(1, COMMITS + 1):
        yield Step("one of many upserts", lambda turn=turn: lake.upsert(f"few{turn}"))  # type: ignore[misc]
    yield Step(f"read all after {COMMITS} upserts", lake.read_all, READS)
    yield Step("sum of many upserts", lake.read_column, is_sum=True)
    if isinstance(lake, TidelockLogs):
        yield Step("", lake.compact)
        yield Step("the same rows, native Parquet", lake.only_base, READS)
