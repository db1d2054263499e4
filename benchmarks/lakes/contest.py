"""Runs every system through the course, each in its own environment, in turns."""

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

from benchmarks.lakes.course import batches
from benchmarks.lakes.environments import SYSTEMS, generator
from benchmarks.lakes.figure import WHOLE, Contest, LakeFigure, LakeRun, missing_name
from benchmarks.lakes.lake import NOT_OFFERED
from benchmarks.lakes.process import run
from benchmarks.lakes.rows import write_inputs
from tidelock.testing.servers import ServerUnavailable

_PROGRAM: Final = "benchmarks.lakes.program"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured: how many rows, how often, which systems, and which steps.

    With `once` nothing is warmed up or repeated: to see that everything works.
    """

    scale: float = 0.1
    rounds: int = 2
    systems: Sequence[str] = tuple(SYSTEMS)
    system_s_max: float = 300.0
    course: str = WHOLE
    once: bool = False


@dataclass(slots=True)
class _Notes:
    """What the systems said."""

    samples: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, dict[str, None]] = field(default_factory=dict)

    def take(self, shown: str, said: str) -> None:
        """Note the lines of one system."""
        for line in said.splitlines():
            if not line.startswith("{"):
                continue
            told: dict[str, Any] = json.loads(line)
            measure = str(told["measure"])
            if "sum" in told:
                self.sums.setdefault(measure, {})[shown] = float(told["sum"])
            elif told.get("reason") == NOT_OFFERED:
                self.lacking.setdefault(measure, {})[shown] = None
            elif "reason" in told:
                self.missing[f"{shown}: {measure or 'between two steps'}"] = str(told["reason"])
            elif measure:
                self.samples.setdefault((shown, measure), []).append(told)

    def found(self, asked: Asked, rows: int, load_before: float) -> Contest:
        """Return what has been measured so far."""
        wrong = _wrong(self.sums)
        figures = [
            LakeFigure.of(*key, samples, asked.course)
            for key, samples in self.samples.items()
            if key[0] not in wrong
        ]
        loads = load_before, os.getloadavg()[0]
        took = LakeRun(asked.scale, rows, asked.rounds, *loads, asked.course, self._others())
        lacking = {
            measure: f"not offered by {', '.join(systems)}"
            for measure, systems in self.lacking.items()
            if measure
        }
        missing = {
            missing_name(name, asked.course): why
            for name, why in {**self.missing, **wrong, **lacking}.items()
        }
        return Contest(figures, took, missing)

    def _others(self) -> float | None:
        timed = [sample for each in self.samples.values() for sample in each]
        wall_s = sum(sample["wall_s"] for sample in timed)
        return sum(sample["others_s"] for sample in timed) / wall_s if wall_s else None


def measure(asked: Asked, after_each: Callable[[Contest], None]) -> None:
    """Measure what each system takes, and note why some things cannot be measured.

    `after_each` is given what there is so far whenever a system has come to its end, so that it
    can be kept; the last time it is everything.

    Raises: `ServerUnavailable` where even the rows cannot be made.
    """
    notes = _Notes()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelock-lakes-") as name:
        folder = Path(name)
        rows = write_inputs(folder / "in", asked.scale, generator(), batches(asked.course))
        for turn in range(asked.rounds):
            for system in asked.systems:
                shown = SYSTEMS[system]
                if shown in notes.missing:
                    continue
                print(f"  round {turn + 1}: {system} ...", file=sys.stderr, flush=True)
                reason = _run(system, folder, rows, notes, asked)
                if reason is not None:
                    notes.missing[shown] = reason
                after_each(notes.found(asked, rows, load_before))


def _wrong(sums: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """A system whose rows are not those of the others did not do the work that was timed."""
    wrong = {}
    for name, found in sums.items():
        usual = statistics.median_low(found.values())
        for system, one in found.items():
            if abs(one - usual) > abs(usual) * 1e-9:
                wrong[system] = f"the table's {name} is {one}, that of the others {usual}"
    return wrong


def _run(system: str, folder: Path, rows: int, notes: _Notes, asked: Asked) -> str | None:
    """Run one system and note what it says; return why it did not come to its end, if so."""
    work = folder / "work"
    words: list[str | Path] = [folder / "in", work, str(rows), asked.course]
    words += ["once"] if asked.once else []
    try:
        ran = run(system, _PROGRAM, words, asked.system_s_max)
    except ServerUnavailable as error:
        return str(error).splitlines()[0][:300]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    notes.take(SYSTEMS[system], ran.said)
    return ran.reason
