"""Runs a suite on every system, each in its own environment, in turn."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.lakes.environments import SYSTEMS, generator
from benchmarks.lakes.figure import WHOLE, Comparison, LakeFigure, LakeRun, missing_name
from benchmarks.lakes.lake import NOT_OFFERED
from benchmarks.lakes.process import run
from benchmarks.lakes.rows import write_inputs
from benchmarks.lakes.suites import batches
from testkit.servers import ServerUnavailable

_PROGRAM: Final = "benchmarks.lakes.program"


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """The number of rows and rounds, the systems, and the suite.

    With `once` there is no warm-up or repetition, to check that everything works.
    """

    scale: float = 0.1
    rounds: int = 2
    systems: Sequence[str] = tuple(SYSTEMS)
    system_s_max: float = 300.0
    suite: str = WHOLE
    once: bool = False


@dataclass(slots=True)
class _Samples:
    """The output of the systems."""

    samples: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, dict[str, None]] = field(default_factory=dict)

    def take(self, shown: str, output: str) -> None:
        """Parse the output of one system."""
        for line in output.splitlines():
            if not line.startswith("{"):
                continue
            sample: dict[str, Any] = json.loads(line)
            measure = str(sample["measure"])
            if "sum" in sample:
                self.sums.setdefault(measure, {})[shown] = float(sample["sum"])
            elif sample.get("reason") == NOT_OFFERED:
                self.lacking.setdefault(measure, {})[shown] = None
            elif "reason" in sample:
                self.missing[f"{shown}: {measure or 'between two steps'}"] = str(sample["reason"])
            elif measure:
                self.samples.setdefault((shown, measure), []).append(sample)

    def result(self, options: ComparisonOptions, rows: int, load_before: float) -> Comparison:
        """Return the results so far."""
        wrong = _wrong(self.sums)
        figures = [
            LakeFigure.of(*key, samples, options.suite)
            for key, samples in self.samples.items()
            if key[0] not in wrong
        ]
        loads = load_before, os.getloadavg()[0]
        took = LakeRun(options.scale, rows, options.rounds, *loads, options.suite, self._others())
        lacking = {
            measure: f"not offered by {', '.join(systems)}"
            for measure, systems in self.lacking.items()
            if measure
        }
        missing = {
            missing_name(name, options.suite): why
            for name, why in {**self.missing, **wrong, **lacking}.items()
        }
        return Comparison(figures, took, missing)

    def _others(self) -> float | None:
        timed = [sample for each in self.samples.values() for sample in each]
        wall_s = sum(sample["wall_s"] for sample in timed)
        return sum(sample["others_s"] for sample in timed) / wall_s if wall_s else None


def measure(options: ComparisonOptions, after_each: Callable[[Comparison], None]) -> None:
    """Measure every system, and record why some measures are missing.

    `after_each` is called with the results so far after each system, so that they can be saved.

    Raises: `ServerUnavailable` if the input rows cannot be generated.
    """
    collected = _Samples()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelock-lakes-") as name:
        folder = Path(name)
        rows = write_inputs(folder / "in", options.scale, generator(), batches(options.suite))
        for turn in range(options.rounds):
            for system in options.systems:
                shown = SYSTEMS[system]
                if shown in collected.missing:
                    continue
                print(f"  round {turn + 1}: {system} ...", file=sys.stderr, flush=True)
                reason = _run(system, folder, rows, collected, options)
                if reason is not None:
                    collected.missing[shown] = reason
                after_each(collected.result(options, rows, load_before))


def _wrong(sums: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the systems whose table differs from that of the others; they are not compared."""
    wrong = {}
    for name, result in sums.items():
        usual = statistics.median_low(result.values())
        for system, one in result.items():
            if abs(one - usual) > abs(usual) * 1e-9:
                wrong[system] = f"the table's {name} is {one}, that of the others {usual}"
    return wrong


def _run(
    system: str, folder: Path, rows: int, collected: _Samples, options: ComparisonOptions
) -> str | None:
    """Run one system and parse its output; return the reason if it did not finish."""
    work = folder / "work"
    words: list[str | Path] = [folder / "in", work, str(rows), options.suite]
    words += ["once"] if options.once else []
    try:
        ran = run(system, _PROGRAM, words, options.system_s_max)
    except ServerUnavailable as error:
        return str(error).splitlines()[0][:300]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    collected.take(SYSTEMS[system], ran.output)
    return ran.reason
