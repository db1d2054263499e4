"""The comparison of table formats as tables and plots: a row per system, a column per measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import fill

from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import WHOLE, LakeFigure, LakeRun
from benchmarks.lakes.lake import COMMITS
from benchmarks.lakes.suites import GOALS
from benchmarks.plot import Bar, bars

Table = tuple[list[str], list[list[str]]]
_Found = Mapping[tuple[str, str], LakeFigure]

_LAKES = """## Compared with other table formats

TPC-H's lineitem, sixteen columns and a key, on a local disk and two cores of one machine. Every
system runs in its own environment and process, one after the other, after a warm-up with few rows.
The tables show the best and the median seconds; queries are run three times in each round. An
upsert of 10 % updates 8 % of the rows by key and inserts 2 %. The final rows of all systems are
checked to be equal. *Zipf*: most updated keys are among the last ones. *One partition*: of a table
with seven partitions, with a predicate on the partition where a system needs it. *Reads* return all
columns of all rows to the program, or discard them in Spark. The input rows are in Parquet files on
the same machine: Tidelock on Spark reads such data frames without a Spark job, which is not
possible for computed ones or on a cluster. Hudi runs on the newest Spark version that it has a
bundle for. On Spark all systems write snappy, and Delta's log is read in two tasks instead of
fifty, which is better on two cores. Compare ratios within a table rather than seconds; on a shared
machine, only the CPU seconds at the end are comparable, and goals use them.
"""
_RUN = """### {rows:,} rows

Scale {scale:g}, {rounds}, {suite}, on {shared}.{taken}
"""
_STEPS = {WHOLE: "every step", GOALS: "the steps with goals"}

_GROUPS: Sequence[tuple[str, Sequence[str]]] = (
    (
        "#### Loading and reading\n",
        ("load", "read all", "read one column", "read one key", "read a range"),
    ),
    (
        "#### Upserts and deletes\n",
        ("upsert 1 %", "upsert 10 %", "upsert 1 %, Zipf", "upsert 10 %, Zipf", "delete 1 %"),
    ),
    (
        "#### One partition, and incremental reads\n",
        (
            "load, partitions",
            "upsert 1 %, one partition",
            "upsert 10 %, one partition",
            "read all, changed",
            "read changes of 1 %",
        ),
    ),
)

_AGING = """#### Stability

LST-Bench's measure: queries before and after five upserts of 1 %, and the ratio of their times.
Merge-on-read tables are compacted before both.
"""
_MANY = f"""#### Merge-on-read

A full snapshot read after {COMMITS} upserts of half a percent without a compaction, and a read of
the base files alone with Spark after a compaction. *Least Spark job*: it reads the batch of 1 % and
discards it.
"""
_EFFORT = """#### CPU and memory

CPU seconds of all processes together, and their peak memory in megabytes.
"""
_WRITING = """#### Written files

The files that a step created or rewrote, and their size in megabytes.
"""
_ASKING = """#### Requests to the store

The requests of this project to its store in a step. On Spark these are the requests of the driver
alone: its workers read data files, and write each with one request.
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
    """Return this part of the page; `table` formats a header and rows."""
    parts = [_LAKES]
    parts += [f'<img src="plots/{name}" alt="{title}" width="860">\n' for name, title in _names()]
    for suite, run in _suites(figures, runs):
        found = {(one.system, one.measure): one for one in figures if one.suite == suite}
        parts += [_run_text(run)] if run is not None else []
        for text, made in _tables(found):
            parts += [text, table(made)] if made[1] else []
    return "\n".join(parts)


def _suites(
    figures: Sequence[LakeFigure], runs: Sequence[LakeRun]
) -> list[tuple[str, LakeRun | None]]:
    """Return the suites that were run, the one with the most rows first."""
    known = {run.suite: run for run in sorted(runs, key=lambda one: one.rows, reverse=True)}
    suites = dict.fromkeys([*known, *(one.suite for one in figures)])
    return [(suite, known.get(suite)) for suite in suites]


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
    options = {key: one for key, one in found.items() if one.requests}
    yield (
        _ASKING,
        _rows(options, ("load", "upsert 1 %", "upsert 10 %", _FEW, "read all", _AFTER), _requests),
    )


def _size(one: LakeFigure) -> str:
    return f"{one.files}, {one.written_mb:,.1f} MB"


def _requests(one: LakeFigure) -> str:
    return ", ".join(f"{count} {verb}" for verb, count in one.requests.items())


def plots(figures: Sequence[LakeFigure], runs: Sequence[LakeRun]) -> dict[str, str]:
    """Return the charts by file name, each of the run with the most rows."""
    drawn = {}
    suites = [suite for suite, _ in _suites(figures, runs)]
    for (name, title), measure in zip(_names(), _PLOTTED, strict=True):
        there = {one.suite for one in figures if one.measure == measure}
        suite = next((each for each in suites if each in there), None)
        found = {one.system: one for one in figures if (one.suite, one.measure) == (suite, measure)}
        rows = [
            Bar(shown, found[shown].best_s, _kind(system))
            for system, shown in SYSTEMS.items()
            if shown in found
        ]
        drawn[name] = bars(title, "seconds, lower is better", rows)
    return drawn


def _names() -> list[tuple[str, str]]:
    saved = str.maketrans({" ": "-", "%": None, ",": None})
    return [
        (f"lakes-{measure.translate(saved).rstrip('-')}.svg", measure.capitalize())
        for measure in _PLOTTED
    ]


def _kind(system: str) -> str:
    if system.startswith("tidelock"):
        return "ours"
    return "limit" if system.endswith("-limit") or system == "parquet-spark" else "other"


def _run_text(run: LakeRun) -> str:
    text = _RUN.format(
        rows=run.rows,
        scale=run.scale,
        rounds="one round" if run.rounds == 1 else f"{run.rounds} rounds",
        suite=_STEPS[run.suite],
        shared=_shared(run),
        taken=f" Measured {run.taken_at}." if run.taken_at else "",
    )
    return "\n\n".join(fill(part, 100) for part in text.split("\n\n")) + "\n"


def _shared(run: LakeRun) -> str:
    if not run.is_busy:
        return "an otherwise idle machine"
    if run.others is not None:
        return f"a shared machine (other processes used {run.others:.1f} cores)"
    return f"a shared machine (load {run.load_before:.1f} before, {run.load_after:.1f} after)"


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
