"""What the other lakes took, as tables and plots: a row for each system, a column a measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill

from benchmarks.lakes.contest import LakeFigure, LakeRun
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.lake import COMMITS
from benchmarks.plot import Bar, bars

Table = tuple[list[str], list[list[str]]]

_LAKES = """## Beside other lakes

TPC-H's lineitem at scale {scale:g} ({rows:,} rows, sixteen columns and a key), local disk, two
cores of one machine that {shared}. Every system runs in an environment and a process of its own,
one after the other, {rounds}, after it has done everything once with few rows. Seconds, the best
and the median; queries are run three times in each round. An upsert of 10 % changes 8 % of the rows
by their key and adds 2 %; that every system ends with the same rows is checked. *Zipf*: changed
keys are most of all the last ones. *One partition*: of a table with seven partitions, named to
those who need that. *Reads* bring all columns of all rows to the program, or throw them away in
Spark. The rows to write lie in Parquet files of the same machine: Tidelock on Spark reads such
frames without a Spark job, which it cannot do for frames that are computed, or on a cluster.
Compare within a table, and rather by ratios than by seconds; on a machine that is shared only the
CPU seconds at the end compare, and goals are judged by them.
"""

_GROUPS: Sequence[tuple[str, Sequence[str]]] = (
    (
        "### Loading and reading\n",
        ("load", "read all", "read one column", "read one key", "read a range"),
    ),
    (
        "### Changing\n",
        ("upsert 1 %", "upsert 10 %", "upsert 1 %, Zipf", "upsert 10 %, Zipf", "delete 1 %"),
    ),
    (
        "### One partition, and changes\n",
        (
            "load, partitions",
            "upsert 1 %, one partition",
            "upsert 10 %, one partition",
            "read all, changed",
            "read changes of 1 %",
        ),
    ),
)

_AGING = """### Growing old

LST-Bench's measure: queries before and after five upserts of 1 %, and how many times as long they
take then. Merge-on-read tables are compacted before both.
"""
_MANY = f"""### Merge-on-read

A snapshot of everything after {COMMITS} upserts of half a percent that nobody has compacted, and
the base files alone, read by Spark, once all is compacted. *Least Spark job*: it reads the batch of
1 % and throws it away.
"""
_EFFORT = """### What it costs

CPU seconds of all processes together, and the most memory that they had, in megabytes.
"""
_PLOTTED = ("load", "upsert 1 %", "upsert 10 %", "read all")
_COSTLY = ("load", "upsert 1 %", "upsert 10 %", "read all")


def sections(
    figures: Sequence[LakeFigure], runs: Sequence[LakeRun], table: Callable[[Table], str]
) -> str:
    """Return this part of the page; `table` writes a heading and rows."""
    found = {(one.system, one.measure): one for one in figures}
    parts = [_intro(runs)]
    parts += [f'<img src="plots/{name}" alt="{title}" width="860">\n' for name, title in _names()]
    for text, measures in _GROUPS:
        parts += [text, table(_timed(found, measures))]
    parts += [_AGING, table(_aged(found)), _MANY]
    many = ("least Spark job", "one of many upserts", f"read all after {COMMITS} upserts")
    parts.append(table(_timed(found, (*many, "the same rows, native Parquet"))))
    parts += [_EFFORT, table(_effort(found))]
    return "\n".join(parts)


def plots(figures: Sequence[LakeFigure]) -> dict[str, str]:
    """Return the charts by the names of their files."""
    found = {(one.system, one.measure): one for one in figures}
    drawn = {}
    for (name, title), measure in zip(_names(), _PLOTTED, strict=True):
        rows = [
            Bar(shown, found[shown, measure].best_s, _kind(system))
            for system, shown in SYSTEMS.items()
            if (shown, measure) in found
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


def _intro(runs: Sequence[LakeRun]) -> str:
    if not runs:
        return "## Beside other lakes\n"
    run = runs[-1]
    shared = (
        f"others used as well (load {run.load_before:.1f} before, {run.load_after:.1f} after)"
        if run.is_busy
        else "nobody else used"
    )
    rounds = "in one round" if run.rounds == 1 else f"in {run.rounds} rounds"
    text = _LAKES.format(scale=run.scale, rows=run.rows, shared=shared, rounds=rounds)
    return "\n\n".join(fill(part, 100) for part in text.split("\n\n")) + "\n"


_Found = Mapping[tuple[str, str], LakeFigure]


def _timed(found: _Found, measures: Sequence[str]) -> Table:
    there = [name for name in measures if any(key[1] == name for key in found)]
    return _rows(found, there, lambda one: f"{one.best_s:.2f} / {one.median_s:.2f}")


def _effort(found: _Found) -> Table:
    return _rows(found, _COSTLY, lambda one: f"{one.cpu_s:.1f} s, {one.peak_mb:,.0f} MB")


def _rows(found: _Found, measures: Sequence[str], cell: Callable[[LakeFigure], str]) -> Table:
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
