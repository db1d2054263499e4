"""One system's course: `python -m benchmarks.lakes.program SYSTEM INPUTS WORK ROWS COURSE [once]`.

Runs in an environment of that system's own, and needs nothing of this project but where the system
is this project. Prints a line of JSON for each time that something was measured: seconds, the CPU
seconds of everything that took part and of everybody else, the most memory that it had, the files
that it left behind, and this project's requests to its store. A line with a sum is the same
for all who did the work; a line with a reason is about something that the system could not do. With
`once` nothing is warmed up or repeated, which is enough to see that everything works.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from benchmarks.lakes.course import Step, steps, warm_up
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
from benchmarks.lakes.onspark import (
    Delta,
    Hudi,
    HudiLogs,
    Iceberg,
    Parquet,
    Tidelock,
    TidelockLogs,
)
from benchmarks.lakes.paimon import Paimon

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
    """Run the course; whatever a system cannot do, the rest is run."""
    system, inputs, work, rows, course, *once = sys.argv[1:]
    kind = LAKES[system]
    if not once:
        warm_up(kind, Path(inputs), Path(work) / "warm")
    for step in steps(course, kind, Path(inputs), Path(work), int(rows)):
        for _ in range(1 if once else step.times):
            said = _measured(step, Path(work))
            print(json.dumps(said), flush=True)
            if "reason" in said:
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
    """Return in a line what went wrong: of an error of the JVM, what was at its root."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if not lines[0].startswith("An error occurred while calling"):
        return lines[0][:_REASON_MAX]
    thrown = [line[1:].strip() for line in lines[1:] if line.startswith(":")]
    roots = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    if told := [*thrown, *roots][-1:]:
        return told[0][:_REASON_MAX]
    # Nothing but the call: the JVM is gone, and Python's side of the connection says so.
    return f"{lines[0]}: {error.__cause__ or 'the JVM did not answer'}"[:_REASON_MAX]


if __name__ == "__main__":
    main()
