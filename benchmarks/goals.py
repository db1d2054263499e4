"""What was aimed at, beside what was found. Pure."""

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
"""What an upsert into log files may take beyond the least job that Spark runs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal. `met` is None where something that it needs was not measured."""

    what: str
    aim: str
    found: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class _Race:
    """Ours beside another: at least so many times as fast, or at most so many times as long."""

    what: str
    ours: tuple[str, str]
    other: tuple[str, str]
    times: float
    faster: bool = True


_UP10, _UP1, _LOAD = "upsert 10 %", "upsert 1 %", "load"
_AFTER = f"read all after {COMMITS} upserts"
_SPARK, _LOGS = "tidelock-spark", "tidelock-spark-mor"
_LOCAL, _LOCAL_LOGS = "tidelock-local", "tidelock-local-mor"

_RACES: Sequence[_Race] = (
    _Race("copy-on-write upsert of 10 % on Spark", (_SPARK, _UP10), ("hudi", _UP10), 3),
    _Race("copy-on-write upsert of 10 % on Spark", (_SPARK, _UP10), ("delta", _UP10), 3),
    _Race("copy-on-write upsert of 10 % on Spark", (_SPARK, _UP10), ("iceberg", _UP10), 3),
    _Race(
        "copy-on-write upsert of 10 % on Spark",
        (_SPARK, _UP10),
        ("polars-limit", _UP10),
        1.7,
        faster=False,
    ),
    _Race("merge-on-read upsert of 1 % on Spark", (_LOGS, _UP1), ("hudi-mor", _UP1), 3),
    _Race("bulk load on Spark", (_SPARK, _LOAD), ("hudi", _LOAD), 2),
    _Race("bulk load on Spark", (_SPARK, _LOAD), ("parquet-spark", _LOAD), 1),
    _Race("bulk load without Spark", (_LOCAL, _LOAD), ("delta-rs", _LOAD), 1),
    _Race("upsert of 1 % without Spark", (_LOCAL, _UP1), ("delta-rs", _UP1), 3),
    _Race("upsert of 1 % without Spark, merge-on-read", (_LOCAL_LOGS, _UP1), ("delta-rs", _UP1), 3),
    _Race(f"snapshot read after {COMMITS} upserts", (_LOGS, _AFTER), ("hudi-mor", _AFTER), 2),
    _Race(
        f"snapshot read after {COMMITS} upserts",
        (_LOGS, _AFTER),
        (_LOGS, "the same rows, native Parquet"),
        1.5,
        faster=False,
    ),
)


@dataclass(frozen=True, slots=True)
class _Judge:
    """The figures of one run. Where others used the machine as well, CPU seconds are compared."""

    figures: Mapping[tuple[str, str], LakeFigure]
    rows: int
    is_busy: bool

    def pair(self, *keys: tuple[str, str]) -> list[float] | None:
        """Return the seconds of each system and measure, or None where one is not there."""
        found = [self.figures.get((SYSTEMS[system], measure)) for system, measure in keys]
        # A clock of the CPU has a resolution, and nothing takes no time.
        seconds = [max(one.cpu_s if self.is_busy else one.best_s, _LEAST_S) for one in found if one]
        return seconds if len(seconds) == len(keys) else None

    @property
    def unit(self) -> str:
        """Return what the seconds are."""
        size = f", {self.rows / 1e6:.1f} million rows" if self.rows else ""
        return f"{'s of CPU time' if self.is_busy else 's'}{size}"


def _judges(results: Results) -> list[_Judge]:
    """Return the runs, that of the most rows first: it is the one that is asked."""
    runs = {run.course: run for run in results.lake_runs}
    made = []
    for course in dict.fromkeys(one.course for one in results.lakes):
        run = runs.get(course)
        figures = {(one.system, one.measure): one for one in results.lakes if one.course == course}
        made.append(
            _Judge(figures, run.rows if run else 0, is_busy=run is not None and run.is_busy)
        )
    return sorted(made, key=lambda one: one.rows, reverse=True)


def goals(results: Results) -> list[Goal]:
    """Return every goal with what was found of it, in the largest run that has it."""
    judges = _judges(results)
    return [
        *(_raced(race, judges) for race in _RACES),
        _floor(judges),
        *_stable(judges),
        _writers("16 appenders on a local disk", results.writers, "append", 16, 1.0),
        _writers("4 upserters of the same keys", results.writers, "same", 4, 1.0),
        _writers("8 appenders on S3", results.writers_s3, "append", 8, 2.0),
        _old(results.growth),
    ]


def _raced(race: _Race, judges: Sequence[_Judge]) -> Goal:
    name = SYSTEMS[race.other[0]]
    if race.other[0] == race.ours[0]:
        name = race.other[1]
    if race.faster:
        aim = f"at least {race.times:g} times as fast as {name}"
        aim = f"no slower than {name}" if race.times == 1 else aim
    else:
        aim = f"at most {race.times:g} times as long as {name}"
    for judge in judges:
        if (found := judge.pair(race.ours, race.other)) is not None:
            ours, other = found
            ratio = other / ours if race.faster else ours / other
            met = ratio >= race.times if race.faster else ratio <= race.times
            said = f"{ratio:.2f} ({ours:.2f} and {other:.2f} {judge.unit})"
            return Goal(race.what, aim, said, met)
    return Goal(race.what, aim, "not measured", None)


def _floor(judges: Sequence[_Judge]) -> Goal:
    what, aim = "merge-on-read upsert of 1 % on Spark", "the least Spark job and 0.3 s"
    for judge in judges:
        found = judge.pair((_LOGS, _UP1), (_LOGS, "least Spark job"))
        if found is not None and not judge.is_busy:
            ours, least = found
            beyond_s = ours - least
            said = f"{least:.2f} s and {beyond_s:.2f} {judge.unit}"
            return Goal(what, aim, said, beyond_s <= BEYOND_S_MAX)
    return Goal(what, aim, "not measured", None)


def _stable(judges: Sequence[_Judge]) -> Iterator[Goal]:
    """Queries before and after rounds of changes, of each of ours and the steadiest other."""
    growth: Mapping[str, float] = next(filter(None, map(_growths, judges)), {})
    others = {name: value for name, value in growth.items() if not name.startswith(_OURS)}
    beside = ""
    if others:
        best = min(others, key=lambda name: others[name])
        worst = max(others, key=lambda name: others[name])
        beside = f"; others {others[best]:.2f} ({best}) to {others[worst]:.2f} ({worst})"
    for system in (_SPARK, _LOGS, _LOCAL, _LOCAL_LOGS):
        name = SYSTEMS[system]
        what, aim = f"queries after 5 rounds of changes, {name}", "at most 1.1 times as long"
        ours = growth.get(name)
        if ours is None:
            yield Goal(what, aim, "not measured", None)
        else:
            yield Goal(what, aim, f"{ours:.2f}{beside}", round(ours, 2) <= 1.1)


def _growths(judge: _Judge) -> Mapping[str, float]:
    """Return by system how many times as long queries take after rounds of changes."""
    found = {
        key: one.cpu_s if judge.is_busy else one.median_s for key, one in judge.figures.items()
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
