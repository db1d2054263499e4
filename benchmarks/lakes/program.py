"""One system through the whole course: `python -m benchmarks.lakes.program SYSTEM INPUTS WORK`.

Runs in an environment of that system's own, and needs nothing of this project but where the system
is this project. Prints a line of JSON for each measure: seconds, and the CPU seconds of everything
that took part; the last has the sum of a column, which is the same for all who did the work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.lakes.lake import Lake, cpu_s
from benchmarks.lakes.local import DeltaRs, DuckLake, Lance, Limit, PyIceberg, TidelockLocal
from benchmarks.lakes.onspark import (
    Delta,
    Hudi,
    HudiLogs,
    Iceberg,
    Parquet,
    Tidelock,
    TidelockLogs,
)

LAKES: dict[str, type[Lake]] = {
    "tidelock-spark": Tidelock,
    "tidelock-spark-mor": TidelockLogs,
    "tidelock-local": TidelockLocal,
    "hudi": Hudi,
    "hudi-mor": HudiLogs,
    "delta": Delta,
    "iceberg": Iceberg,
    "parquet-spark": Parquet,
    "delta-rs": DeltaRs,
    "lance": Lance,
    "ducklake": DuckLake,
    "pyiceberg": PyIceberg,
    "polars-limit": Limit,
}


def course(lake: Lake) -> dict[str, Callable[[], object]]:
    """Return what is measured, in order."""
    if isinstance(lake, Parquet):
        return {
            "load": lake.load,
            "read all": lake.read_all,
            "read one column": lake.read_column,
        }
    return {
        "load": lake.load,
        "read all": lake.read_all,
        "read one column": lake.read_column,
        "read one key": lambda: lake.point(33),
        "upsert 1 %": lambda: lake.upsert("up1"),
        "upsert 10 %": lambda: lake.upsert("up10"),
        "delete 1 %": lake.delete,
        "read all, changed": lake.read_all,
        "sum": lake.read_column,
    }


def main() -> None:
    """Run the course; the last sum is the same for every system that did its work."""
    system, inputs, work = sys.argv[1:]
    Path(work).mkdir(parents=True)
    lake = LAKES[system](Path(inputs), Path(work))
    for measure, run in course(lake).items():
        cpu, began = cpu_s(), time.perf_counter()
        found = run()
        wall = time.perf_counter() - began
        line: dict[str, object] = {"measure": measure, "wall_s": wall, "cpu_s": cpu_s() - cpu}
        if measure == "sum":
            line["sum"] = found
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
