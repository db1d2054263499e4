"""Goals and results. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.growth import Growth
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import LakeFigure
from benchmarks.lakes.lake import COMMITS
from benchmarks.suite import Results
from benchmarks.writers import WritersResult

_OURS = "tidelock"
_LEAST_S = 0.01
BEYOND_S_MAX = 0.3
"""The time that an upsert into log files may take in addition to a minimal Spark job."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal. `met` is None if one of its measures is missing."""

    what: str
    aim: str
    found: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class _Target:
    """A ratio to another system: at least N times as fast, or at most N times as long."""

    what: str
    ours: tuple[str, str]
    other: tuple[str, str]
    times: float
    faster: bool = True


_UP10, _UP1, _LOAD = "upsert 10 %", "upsert 1 %", "load"
_AFTER = f"read all after {COMMITS} upserts"
_SPARK, _LOGS = "tidelock-spark", "tidelock-spark-mor"
_LOCAL, _LOCAL_LOGS = "tidelock-local", "tidelock-local-mor"

_TARGETS: Sequence[_Target] = (
    _Target("copy-on-write upsert of 10 % on Spark", (_SPARK, _UP10), ("hudi", _UP10), 3),
    _Target("copy-on-write upsert of 10 % on Spark", (_SPARK, _UP10), ("delta", _UP10), 3),
    _Target("copy-on-write upsert of 10 % on Spark", (_SPARK, _UP10), ("iceberg", _UP10), 3),
    _Target(
        "copy-on-write upsert of 10 % on Spark",
        (_SPARK, _UP10),
        ("polars-limit", _UP10),
        1.7,
        faster=False,
    ),
    _Target("merge-on-read upsert of 1 % on Spark", (_LOGS, _UP1), ("hudi-mor", _UP1), 3),
    _Target("bulk load on Spark", (_SPARK, _LOAD), ("hudi", _LOAD), 2),
    _Target("bulk load on Spark", (_SPARK, _LOAD), ("parquet-spark", _LOAD), 1),
    _Target("bulk load without Spark", (_LOCAL, _LOAD), ("delta-rs", _LOAD), 1),
    _Target("upsert of 1 % without Spark", (_LOCAL, _UP1), ("delta-rs", _UP1), 3),
    _Target(
        "upsert of 1 % without Spark, merge-on-read", (_LOCAL_LOGS, _UP1), ("delta-rs", _UP1), 3
    ),
    _Target(f"snapshot read after {COMMITS} upserts", (_LOGS, _AFTER), ("hudi-mor", _AFTER), 2),
    _Target(
        f"snapshot read after {COMMITS} upserts",
        (_LOGS, _AFTER),
        (_LOGS, "the same rows, native Parquet"),
        1.5,
        faster=False,
    ),
)


@dataclass(frozen=True, slots=True)
class _MeasuredRun:
    """The figures of one run. On a shared machine, CPU seconds are compared."""

    figures: Mapping[tuple[str, str], LakeFigure]
    rows: int
    is_busy: bool

    def pair(self, *keys: tuple[str, str]) -> list[float] | None:
        """Return the seconds of each system and measure, or None if one is missing."""
        found = [self.figures.get((SYSTEMS[system], measure)) for system, measure in keys]
        # CPU clocks have a limited resolution, so zero is replaced by the smallest value.
        seconds = [max(one.cpu_s if self.is_busy else one.best_s, _LEAST_S) for one in found if one]
        return seconds if len(seconds) == len(keys) else None

    @property
    def unit(self) -> str:
        """The unit of the seconds."""
        size = f", {self.rows / 1e6:.1f} million rows" if self.rows else ""
        return f"{'s of CPU time' if self.is_busy else 's'}{size}"


def _measured_runs(results: Results) -> list[_MeasuredRun]:
    """Return the runs, the one with the most rows first: goals use the first with a figure."""
    runs = {run.suite: run for run in results.lake_runs}
    made = []
    for suite in dict.fromkeys(one.suite for one in results.lakes):
        run = runs.get(suite)
        figures = {(one.system, one.measure): one for one in results.lakes if one.suite == suite}
        made.append(
            _MeasuredRun(figures, run.rows if run else 0, is_busy=run is not None and run.is_busy)
        )
    return sorted(made, key=lambda one: one.rows, reverse=True)


def goals(results: Results) -> list[Goal]:
    """Return every goal with its result, from the largest run that measured it."""
    measured_runs = _measured_runs(results)
    return [
        *(_compared(target, measured_runs) for target in _TARGETS),
        _floor(measured_runs),
        *_stable(measured_runs),
        _writers("16 appenders on a local disk", results.writers, "append", 16, 1.0),
        _writers("4 upserters of the same keys", results.writers, "same", 4, 1.0),
        _writers("8 appenders on S3", results.writers_s3, "append", 8, 2.0),
        _old(results.growth),
    ]


def _compared(target: _Target, measured_runs: Sequence[_MeasuredRun]) -> Goal:
    name = SYSTEMS[target.other[0]]
    if target.other[0] == target.ours[0]:
        name = target.other[1]
    if target.faster:
        aim = f"at least {target.times:g} times as fast as {name}"
        aim = f"no slower than {name}" if target.times == 1 else aim
    else:
        aim = f"at most {target.times:g} times as long as {name}"
    for measured in measured_runs:
        if (found := measured.pair(target.ours, target.other)) is not None:
            ours, other = found
            ratio = other / ours if target.faster else ours / other
            met = ratio >= target.times if target.faster else ratio <= target.times
            found_text = f"{ratio:.2f} ({ours:.2f} and {other:.2f} {measured.unit})"
            return Goal(target.what, aim, found_text, met)
    return Goal(target.what, aim, "not measured", None)


def _floor(measured_runs: Sequence[_MeasuredRun]) -> Goal:
    what, aim = "merge-on-read upsert of 1 % on Spark", "the least Spark job and 0.3 s"
    for measured in measured_runs:
        found = measured.pair((_LOGS, _UP1), (_LOGS, "least Spark job"))
        if found is not None and not measured.is_busy:
            ours, least = found
            beyond_s = ours - least
            found_text = f"{least:.2f} s and {beyond_s:.2f} {measured.unit}"
            return Goal(what, aim, found_text, beyond_s <= BEYOND_S_MAX)
    return Goal(what, aim, "not measured", None)


def _stable(measured_runs: Sequence[_MeasuredRun]) -> Iterator[Goal]:
    """Yield the goals on queries before and after rounds of changes, with the other systems."""
    growth: Mapping[str, float] = next(filter(None, map(_growths, measured_runs)), {})
    others = {name: value for name, value in growth.items() if not name.startswith(_OURS)}
    compared = ""
    if others:
        best = min(others, key=lambda name: others[name])
        worst = max(others, key=lambda name: others[name])
        compared = f"; others {others[best]:.2f} ({best}) to {others[worst]:.2f} ({worst})"
    for system in (_SPARK, _LOGS, _LOCAL, _LOCAL_LOGS):
        name = SYSTEMS[system]
        what, aim = f"queries after 5 rounds of changes, {name}", "at most 1.1 times as long"
        ours = growth.get(name)
        if ours is None:
            yield Goal(what, aim, "not measured", None)
        else:
            yield Goal(what, aim, f"{ours:.2f}{compared}", round(ours, 2) <= 1.1)


def _growths(measured: _MeasuredRun) -> Mapping[str, float]:
    """Return for each system the ratio of query times after and before rounds of changes."""
    found = {
        key: one.cpu_s if measured.is_busy else one.median_s
        for key, one in measured.figures.items()
    }
    return {
        name: found[name, "queries, after"] / max(found[name, "queries, before"], _LEAST_S)
        for name in SYSTEMS.values()
        if (name, "queries, after") in found and (name, "queries, before") in found
    }


def _writers(
    what: str, measured: Sequence[WritersResult], kind: str, count: int, times: float
) -> Goal:
    aim = "first of all, none failed, none lost" if times == 1 else "twice the best other"
    rows = {one.system: one for one in measured if one.kind == kind and one.writers == count}
    others = [one for name, one in rows.items() if name != _OURS]
    if _OURS not in rows or not others:
        return Goal(what, aim, "not measured", None)
    ours, best = rows[_OURS], max(others, key=lambda one: one.commits_per_s)
    ratio = ours.commits_per_s / best.commits_per_s
    met = ratio >= times and not ours.failed and not ours.lost
    found = (
        f"{ratio:.2f} times {best.system} ({ours.commits_per_s:.0f} and"
        f" {best.commits_per_s:.0f} landed a second), {ours.failed} failed, {ours.lost} lost"
    )
    return Goal(what, aim, found, met)


def _old(measured: Sequence[Growth]) -> Goal:
    what, aim = "commit to a table of 10,000 commits", "at most 1.2 times as long as to one of 10"
    by_age = {one.commits: one.commit_ms for one in measured}
    if 10 not in by_age or 10_000 not in by_age:
        return Goal(what, aim, "not measured", None)
    ratio = by_age[10_000] / by_age[10]
    return Goal(what, aim, f"{ratio:.2f}", ratio <= 1.2)
