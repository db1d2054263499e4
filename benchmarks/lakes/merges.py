"""The merges of one system: `python -m benchmarks.lakes.merges SYSTEM INPUTS WORK ROUNDS`.

It runs in the environment of that system. It prints a line of JSON for each run of a statement, or
with the reason why it failed; a line with a sum must be the same for all systems.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.lakes.meter import cpu_s, machine_s
from benchmarks.lakes.onspark import Delta, Hudi, HudiTable, Iceberg, Tidelock, TidelockLogs
from benchmarks.lakes.program import cause

BATCHES = {"1 %": "up1", "10 %": "up10"}
UPSERT = "upsert"
ALONE = "MERGE, source alone"
BOTH = "MERGE, both sides"
KINDS: dict[str, type[HudiTable | Delta]] = {
    "tidelock-spark": Tidelock,
    "delta": Delta,
    "iceberg": Iceberg,
    "hudi": Hudi,
    "tidelock-spark-mor": TidelockLogs,
}

_MERGE = "MERGE INTO {table} t USING batch s ON t.id = s.id "
_STATEMENTS = {
    ALONE: _MERGE + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    BOTH: _MERGE
    + "WHEN MATCHED THEN UPDATE SET l_quantity = t.l_quantity + s.l_quantity"
    + " WHEN NOT MATCHED THEN INSERT *",
}


def statements(lake: HudiTable | Delta) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield the statements of a system. Hudi is measured with upserts, like its users run."""
    if isinstance(lake, HudiTable):
        yield UPSERT, lake.upsert
    if isinstance(lake, Hudi):
        return
    name = lake.name() if isinstance(lake, Delta) else f"tidelock.`{lake.work / 'table'}`"
    for statement, text in _STATEMENTS.items():
        yield statement, _merging(lake, text.format(table=name))


def _merging(lake: HudiTable | Delta, text: str) -> Callable[[str], None]:
    def merge(batch: str) -> None:
        lake.rows(batch).createOrReplaceTempView("batch")
        lake.spark.sql(text).collect()

    return merge


def main(system: str, inputs: Path, work: Path, rounds: int) -> None:
    """Warm up, then run every statement several times; print the time of each run."""
    small = _loaded(system, inputs / "warm", work / "small")
    for _, merge in statements(small):
        merge("up1")
    lake = _loaded(system, inputs, work / "large")
    for _ in range(rounds):
        for statement, merge in statements(lake):
            for share, batch in BATCHES.items():
                sample = {"statement": statement, "share": share, **_measured(merge, batch)}
                print(json.dumps(sample), flush=True)
    if not isinstance(lake, Hudi):
        print(json.dumps({"sum": lake.read_column()}), flush=True)


def _measured(merge: Callable[[str], None], batch: str) -> dict[str, object]:
    machine, cpu, began = machine_s(), cpu_s(), time.perf_counter()
    try:
        merge(batch)
    except Exception as error:
        traceback.print_exc()
        return {"reason": cause(error)}
    wall_s, spent_s = time.perf_counter() - began, cpu_s() - cpu
    others_s = max(machine_s() - machine - spent_s, 0.0)
    return {"wall_s": wall_s, "cpu_s": spent_s, "others_s": others_s}


def _loaded(system: str, inputs: Path, work: Path) -> HudiTable | Delta:
    work.mkdir(parents=True)
    lake = KINDS[system](inputs, work)
    lake.load()
    return lake


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
