"""What the other lakes took, as tables and plots: a row for each system, a column a measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import fill

from benchmarks.lakes.course import GOALS
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import WHOLE, LakeFigure, LakeRun
from benchmarks.lakes.lake import COMMITS
from benchmarks.plot import Bar, bars

Table = tuple[list[str], list[list[str]]]
_Found = Mapping[tuple[str, str], LakeFigure]

_LAKES = """## Beside other lakes

TPC-H's lineitem, sixteen columns and a key, on a local disk and two cores of one machine. Every
system runs in an environment and a process of its own, one after the other, after it has done
everything once with few rows. Seconds, the best and the median; queries are run three times in each
round. An upsert of 10 % changes 8 % of the rows by their key and adds 2 %; that every system ends
with the same rows is checked. *Zipf*: changed keys are most of all the last ones. *One partition*:
of a table with seven partitions, named to those who need that. *Reads* bring all columns of all
rows to the program, or throw them away in Spark. The rows to write lie in Parquet files of the same
machine: Tidelock on Spark reads such frames without a Spark job, which it cannot do for frames that
are computed, or on a cluster. Hudi runs on the newest Spark that a bundle of it is to be had for.
On Spark all write snappy, and Delta's log is brought together in two tasks, not in fifty, which is
what two cores want. Compare within a table, and rather by ratios than by seconds; on a machine that
is shared only the CPU seconds at the end compare, and goals are judged by them.
"""
_RUN = """### {rows:,} rows

Scale {scale:g}, {rounds}, {course}, on a machine that {shared}.{taken}
"""
_STEPS = {WHOLE: "every step", GOALS: "the steps that goals are judged by"}

_GROUPS: Sequence[tuple[str, Sequence[str]]] = (
    (
        "#### Loading and reading\n",
        ("load", "read all", "read one column", "read one key", "read a range"),
    ),
    (
        "#### Changing\n",
        ("upsert 1 %", "upsert 10 %", "upsert 1 %, Zipf", "upsert 10 %, Zipf", "delete 1 %"),
    ),
    (
        "#### One partition, and changes\n",
        (
            "load, partitions",
            "upsert 1 %, one partition",
            "upsert 10 %, one partition",
            "read all, changed",
            "read changes of 1 %",
        ),
    ),
)

_AGING = """#### Growing old

LST-Bench's measure: queries before and after five upserts of 1 %, and how many times as long they
take then. Merge-on-read tables are compacted before both.
"""
_MANY = f"""#### Merge-on-read

A snapshot of everything after {COMMITS} upserts of half a percent that nobody has compacted, and
the base files alone, read by Spark, once all is compacted. *Least Spark job*: it reads the batch of
1 % and throws it away.
"""
_EFFORT = """#### What it costs

CPU seconds of all processes together, and the most memory that they had, in megabytes.
"""
_WRITING = """#### What it writes

Files that a step left behind, made or written anew, and their megabytes.
"""
_ASKING = """#### Requests to the store

What this project asks of its store in a step. On Spark those of the driver alone: its workers write
data files, one request each, and read them.
"""
_PLOTTED = ("load", "upsert 1 %", "upsert 10 %", "read all")
_AFTER = f"read all after {COMMITS} upserts"
_FEW = "one of many upserts"
_NATIVE = "the same rows, native Parquet"
_COSTLY = ("load", "upsert 1 %", "upsert 10 %", "read all", _AFTER, _NATIVE)
_MANY_MEASURES = ("least Spark job", _FEW, _AFTER, _NATIVE)


def sections(
    figures: Sequence[LakeFigure], runs: Sequence[LakeRun], table: Callable[[Table], str]
) -> str:
    """Return this part of the page; `table` writes a heading and rows."""
    parts = [_LAKES]
    parts += [f'<img src="plots/{name}" alt="{title}" width="860">\n' for name, title in _names()]
    for course, run in _courses(figures, runs):
        found = {(one.system, one.measure): one for one in figures if one.course == course}
        parts += [_told(run)] if run is not None else []
        for text, made in _tables(found):
            parts += [text, table(made)] if made[1] else []
    return "\n".join(parts)


def _courses(
    figures: Sequence[LakeFigure], runs: Sequence[LakeRun]
) -> list[tuple[str, LakeRun | None]]:
    """Return the courses that were run, that of the most rows first."""
    known = {run.course: run for run in sorted(runs, key=lambda one: one.rows, reverse=True)}
    courses = dict.fromkeys([*known, *(one.course for one in figures)])
    return [(course, known.get(course)) for course in courses]


def _tables(found: _Found) -> Iterator[tuple[str, Table]]:
    for text, measures in _GROUPS:
        yield text, _timed(found, measures)
    yield _AGING, _aged(found)
    yield _MANY, _timed(found, _MANY_MEASURES)
    yield _EFFORT, _rows(found, _COSTLY, lambda one: f"{one.cpu_s:.1f} s, {one.peak_mb:,.0f} MB")
    left = {key: one for key, one in found.items() if one.files}
    yield (
        _WRITING,
        _rows(left, ("load", "upsert 1 %", "upsert 10 %", _FEW), _size),
    )
    asked = {key: one for key, one in found.items() if one.requests}
    yield (
        _ASKING,
        _rows(asked, ("load", "upsert 1 %", "upsert 10 %", _FEW, "read all", _AFTER), _requests),
    )


def _size(one: LakeFigure) -> str:
    return f"{one.files}, {one.written_mb:,.1f} MB"


def _requests(one: LakeFigure) -> str:
    return ", ".join(f"{count} {verb}" for verb, count in one.requests.items())


def plots(figures: Sequence[LakeFigure], runs: Sequence[LakeRun]) -> dict[str, str]:
    """Return the charts by the names of their files: each of the run of the most rows."""
    drawn = {}
    courses = [course for course, _ in _courses(figures, runs)]
    for (name, title), measure in zip(_names(), _PLOTTED, strict=True):
        there = {one.course for one in figures if one.measure == measure}
        course = next((each for each in courses if each in there), None)
        found = {
            one.system: one for one in figures if (one.course, one.measure) == (course, measure)
        }
        rows = [
            Bar(shown, found[shown].best_s, _kind(system))
            for system, shown in SYSTEMS.items()
            if shown in found
        ]
        drawn[name] = bars(title, "seconds, less is better", rows)
    return drawn


def _names() -> list[tuple[str, str]]:
    kept = str.maketrans({" ": "-", "%": None, ",": None})
    return [
        (f"lakes-{measure.translate(kept).rstrip('-')}.svg", measure.capitalize())
        for measure in _PLOTTED
    ]


def _kind(system: str) -> str:
    if system.startswith("tidelock"):
        return "ours"
    return "limit" if system.endswith("-limit") or system == "parquet-spark" else "other"


def _told(run: LakeRun) -> str:
    text = _RUN.format(
        rows=run.rows,
        scale=run.scale,
        rounds="one round" if run.rounds == 1 else f"{run.rounds} rounds",
        course=_STEPS[run.course],
        shared=_shared(run),
        taken=f" Taken {run.taken_at}." if run.taken_at else "",
    )
    return "\n\n".join(fill(part, 100) for part in text.split("\n\n")) + "\n"


def _shared(run: LakeRun) -> str:
    if not run.is_busy:
        return "nobody else used"
    if run.others is not None:
        return f"others used as well ({run.others:.1f} cores)"
    return f"others used as well (load {run.load_before:.1f} before, {run.load_after:.1f} after)"


def _timed(found: _Found, measures: Sequence[str]) -> Table:
    return _rows(found, measures, lambda one: f"{one.best_s:.2f} / {one.median_s:.2f}")


def _rows(found: _Found, measures: Sequence[str], cell: Callable[[LakeFigure], str]) -> Table:
    measures = [each for each in measures if any(key[1] == each for key in found)]
    rows = [
        [name, *(cell(found[name, each]) if (name, each) in found else "" for each in measures)]
        for name in SYSTEMS.values()
        if any((name, each) in found for each in measures)
    ]
    return ["system", *measures], rows


def _aged(found: _Found) -> Table:
    before, after = "queries, before", "queries, after"
    rows = [
        [
            name,
            f"{found[name, before].median_s:.2f}",
            f"{found[name, after].median_s:.2f}",
            f"**{found[name, after].median_s / found[name, before].median_s:.2f}**",
        ]
        for name in SYSTEMS.values()
        if (name, before) in found and (name, after) in found
    ]
    return ["system", before, after, "times"], rows
