"""Runs every system through the course, each in its own environment, in turns."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.lakes.environments import SYSTEMS, environment, generator
from benchmarks.lakes.lake import NOT_OFFERED
from benchmarks.lakes.rows import write_inputs
from tidelock.testing.servers import ServerUnavailable

_ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = "benchmarks.lakes.program"
SCALE: Final = 0.1
ROUNDS: Final = 2
SYSTEM_S_MAX: Final = 300.0
BUSY_LOAD: Final = 4.0


@dataclass(frozen=True, slots=True)
class LakeFigure:
    """What one system took for one part of the course."""

    system: str
    measure: str
    best_s: float
    median_s: float
    cpu_s: float
    peak_mb: float
    times: int


@dataclass(frozen=True, slots=True)
class LakeRun:
    """What the figures are of, and how busy the machine was."""

    scale: float
    rows: int
    rounds: int
    load_before: float
    load_after: float

    @property
    def is_busy(self) -> bool:
        """Whether others used the machine: a contest alone keeps two cores busy, and no more."""
        return max(self.load_before, self.load_after) > BUSY_LOAD


@dataclass(slots=True)
class _Notes:
    """What the systems said."""

    walls: dict[tuple[str, str], list[dict[str, float]]] = field(default_factory=dict)
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
                self.missing[f"{shown}, {measure or 'between two steps'}"] = str(told["reason"])
            elif measure:
                self.walls.setdefault((shown, measure), []).append(told)


def measure(
    scale: float = SCALE,
    rounds: int = ROUNDS,
    systems: Sequence[str] = tuple(SYSTEMS),
    system_s_max: float = SYSTEM_S_MAX,
    *,
    once: bool = False,
) -> tuple[list[LakeFigure], LakeRun, dict[str, str]]:
    """Return what each system took, of how much, and why some things were not measured.

    With `once` nothing is warmed up or repeated: to see that everything works.

    Raises: `ServerUnavailable` where even the rows cannot be made.
    """
    notes = _Notes()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelock-lakes-") as name:
        folder = Path(name)
        rows = write_inputs(folder / "in", scale, generator())
        for turn in range(rounds):
            for system in systems:
                shown = SYSTEMS[system]
                if shown in notes.missing:
                    continue
                print(f"  round {turn + 1}: {system} ...", file=sys.stderr, flush=True)
                reason = _run(system, folder, rows, notes, system_s_max, once=once)
                if reason is not None:
                    notes.missing[shown] = reason
    wrong = _wrong(notes.sums)
    found = [_figure(*key, samples) for key, samples in notes.walls.items() if key[0] not in wrong]
    run = LakeRun(scale, rows, rounds, before, os.getloadavg()[0])
    lacking = {
        measure: f"not offered by {', '.join(systems)}"
        for measure, systems in notes.lacking.items()
        if measure
    }
    return found, run, {**notes.missing, **wrong, **lacking}


def _figure(system: str, name: str, samples: Sequence[Mapping[str, float]]) -> LakeFigure:
    walls = [sample["wall_s"] for sample in samples]
    return LakeFigure(
        system,
        name,
        min(walls),
        statistics.median(walls),
        statistics.median(sample["cpu_s"] for sample in samples),
        max(sample["peak_mb"] for sample in samples),
        len(samples),
    )


def _wrong(sums: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """A system whose rows are not those of the others did not do the work that was timed."""
    wrong = {}
    for name, found in sums.items():
        usual = statistics.median_low(found.values())
        for system, one in found.items():
            if abs(one - usual) > abs(usual) * 1e-9:
                wrong[system] = f"the table's {name} is {one}, that of the others {usual}"
    return wrong


def _run(
    system: str, folder: Path, rows: int, notes: _Notes, system_s_max: float, *, once: bool
) -> str | None:
    """Run one system and note what it says; return why it did not come to its end, if so."""
    try:
        where = environment(system)
    except ServerUnavailable as error:
        return str(error).splitlines()[0][:300]
    work = folder / "work"
    words = ["once"] if once else []
    shutil.rmtree(work, ignore_errors=True)
    with (folder / "said").open("w+") as said, (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [where.python, "-m", _PROGRAM, system, folder / "in", work, str(rows), *words],
            cwd=_ROOT,
            env={**os.environ, **where.variables},
            stdout=said,
            stderr=errors,
            # A group of its own, so that its JVM and its workers end with it.
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(system_s_max)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        notes.take(SYSTEMS[system], said.read())
        errors.seek(0)
        told = errors.read()
    shutil.rmtree(work, ignore_errors=True)
    if os.environ.get("BENCH_ERRORS"):
        print(told, file=sys.stderr)
    if code is None:
        return f"stopped after {system_s_max:.0f} s; the rest was not reached"
    return None if code == 0 else f"ended with {code}: {_last_line(told)}"


def _last_line(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
