"""What the other lakes took, as tables: a row for each system, a column for each measure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.lakes.contest import SYSTEMS, LakeFigure

LAKES = """## Beside other lakes

TPC-H's lineitem at scale 1 (six million rows, sixteen columns and a key), local disk, two cores.
Every system runs in an environment and a process of its own, one after the other, with a warm Spark
session where it has one; seconds, the best of the rounds. An upsert of 1 % changes 48,000 rows by
their key and adds 12,000; that every system ends with the same rows is checked. *Reads* bring all
columns of all rows to the program, or throw them away in Spark. Goals on Spark: copy-on-write
upserts three times faster than Hudi, Delta and Iceberg; loading twice as fast as Hudi and no slower
than Spark's own Parquet. Without Spark: loading no slower than delta-rs, upserts three times as
fast.
"""


def rows_of(figures: Sequence[LakeFigure]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows, systems in their order."""
    measures = list(dict.fromkeys(one.measure for one in figures))
    found = {(one.system, one.measure): one for one in figures}
    rows = [
        [system, *(_seconds(found.get((system, measure))) for measure in measures)]
        for system in SYSTEMS.values()
        if any(one.system == system for one in figures)
    ]
    return ["system", *measures], rows


def _seconds(figure: LakeFigure | None) -> str:
    return "" if figure is None else f"{figure.best_s:.2f}"
