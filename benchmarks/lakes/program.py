"""Run a suite: `python -m benchmarks.lakes.program SYSTEM INPUTS WORK ROWS SUITE [once]`.

It runs in the environment of that system, and is independent of this project unless it measures it.
It prints a line of JSON for each sample: seconds, the CPU seconds of its own processes and of all
others, its peak memory, the files that it wrote, and this project's requests to its store. A line
with a sum must be the same for all systems; a line with a reason names a step that the system does
not support. With `once` there is no warm-up or repetition, to check that everything works.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from benchmarks.lakes.lake import NOT_OFFERED, Lake, NotOffered
from benchmarks.lakes.limits import ArrowLimit, Limit
from benchmarks.lakes.local import (
    DeltaRs,
    DuckLake,
    Lance,
    PyIceberg,
    TidelockLocal,
    TidelockLocalLogs,
)
from benchmarks.lakes.meter import (
    cpu_s,
    files_below,
    forget_peaks,
    machine_s,
    peak_mb,
    store_requests,
    written,
)
from benchmarks.lakes.onspark import Delta, Hudi, HudiLogs, Iceberg, Parquet, Tidelock, TidelockLogs
from benchmarks.lakes.paimon import Paimon
from benchmarks.lakes.suites import Step, steps, warm_up

LAKES: dict[str, type[Lake]] = {
    "tidelock-spark": Tidelock,
    "tidelock-spark-mor": TidelockLogs,
    "tidelock-local": TidelockLocal,
    "tidelock-local-mor": TidelockLocalLogs,
    "hudi": Hudi,
    "hudi-mor": HudiLogs,
    "delta": Delta,
    "iceberg": Iceberg,
    "parquet-spark": Parquet,
    "delta-rs": DeltaRs,
    "lance": Lance,
    "ducklake": DuckLake,
    "pyiceberg": PyIceberg,
    "paimon": Paimon,
    "polars-limit": Limit,
    "pyarrow-limit": ArrowLimit,
}


_REASON_MAX = 300


def main() -> None:
    """Run the suite; if a step fails, continue with the next one."""
    system, inputs, work, rows, suite, *once = sys.argv[1:]
    kind = LAKES[system]
    if not once:
        warm_up(kind, Path(inputs), Path(work) / "warm")
    for step in steps(suite, kind, Path(inputs), Path(work), int(rows)):
        for _ in range(1 if once else step.times):
            sample = _measured(step, Path(work))
            print(json.dumps(sample), flush=True)
            if "reason" in sample:
                break


def _measured(step: Step, work: Path) -> dict[str, object]:
    forget_peaks()
    files, requests = files_below(work), store_requests()
    machine, cpu, began = machine_s(), cpu_s(), time.perf_counter()
    try:
        found = step.run()
    except NotOffered:
        return {"measure": step.measure, "reason": NOT_OFFERED}
    except Exception as error:
        traceback.print_exc()
        return {"measure": step.measure, "reason": cause(error)}
    if step.is_sum:
        return {"measure": step.measure, "sum": found}
    wall_s, spent_s = time.perf_counter() - began, cpu_s() - cpu
    made = written(files, files_below(work))
    return {
        "measure": step.measure,
        "wall_s": wall_s,
        "cpu_s": spent_s,
        "others_s": max(machine_s() - machine - (cpu_s() - cpu), 0.0),
        "peak_mb": peak_mb(),
        "files": made.files,
        "written_mb": made.mb,
        "requests": {
            verb: count - requests.get(verb, 0)
            for verb, count in store_requests().items()
            if count > requests.get(verb, 0)
        },
        "found": found if isinstance(found, int | float) else None,
    }


def cause(error: BaseException) -> str:
    """Return the cause of an error in one line; for an error of the JVM, its root cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if not lines[0].startswith("An error occurred while calling"):
        return lines[0][:_REASON_MAX]
    thrown = [line[1:].strip() for line in lines[1:] if line.startswith(":")]
    roots = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    if causes := [*thrown, *roots][-1:]:
        return causes[0][:_REASON_MAX]
    # Only the call is known: the JVM has exited, so the Python side reports the error.
    return f"{lines[0]}: {error.__cause__ or 'the JVM did not answer'}"[:_REASON_MAX]


if __name__ == "__main__":
    main()
