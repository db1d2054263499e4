"""The figures of writing or reading a large table."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableFigure:
    """Wall times in seconds, and the CPU seconds of all processes."""

    what: str
    best_s: float
    median_s: float
    cpu_s: float


def measure() -> list[TableFigure]:
    """Run the Spark comparison in a separate process, because it starts a JVM."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.table.spark"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [TableFigure(**each) for each in json.loads(done.stdout.splitlines()[-1])]
