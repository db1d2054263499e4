"""One system's course: `python -m benchmarks.lakes.program SYSTEM INPUTS WORK ROWS [once]`.

Runs in an environment of that system's own, and needs nothing of this project but where the system
is this project. Prints a line of JSON for each time that something was measured: seconds, the CPU
seconds of everything that took part, and the most memory that it had. A line with a sum is the same
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
from benchmarks.lakes.lake import (
    NOT_OFFERED,
    Lake,
    NotOffered,
    cpu_s,
    forget_peaks,
    peak_mb,
)
from benchmarks.lakes.limits import ArrowLimit, Limit
from benchmarks.lakes.local import (
    DeltaRs,
    DuckLake,
    Lance,
    PyIceberg,
    TidelockLocal,
    TidelockLocalLogs,
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


def main() -> None:
    """Run the course; whatever a system cannot do, the rest is run."""
    system, inputs, work, rows, *once = sys.argv[1:]
    kind = LAKES[system]
    if not once:
        warm_up(kind, Path(inputs), Path(work) / "warm")
    for step in steps(kind, Path(inputs), Path(work), int(rows)):
        for _ in range(1 if once else step.times):
            said = _measured(step)
            print(json.dumps(said), flush=True)
            if "reason" in said:
                break


def _measured(step: Step) -> dict[str, object]:
    forget_peaks()
    cpu, began = cpu_s(), time.perf_counter()
    try:
        found = step.run()
    except NotOffered:
        return {"measure": step.measure, "reason": NOT_OFFERED}
    except Exception as error:
        traceback.print_exc()
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        return {"measure": step.measure, "reason": reason[:200]}
    if step.is_sum:
        return {"measure": step.measure, "sum": found}
    return {
        "measure": step.measure,
        "wall_s": time.perf_counter() - began,
        "cpu_s": cpu_s() - cpu,
        "peak_mb": peak_mb(),
        "found": found if isinstance(found, int | float) else None,
    }


if __name__ == "__main__":
    main()
