"""MERGE INTO beside other lakes: rows that the source alone tells, and rows that both sides do.

Each system runs in an environment and a process of its own. `python -m benchmarks.lakes --course
merges` chooses how many rows, how often, and which systems.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.lakes.environments import SYSTEMS, generator
from benchmarks.lakes.merges import BATCHES, KINDS
from benchmarks.lakes.process import run
from benchmarks.lakes.rows import write_inputs
from tidelock.testing.servers import ServerUnavailable

_PROGRAM: Final = "benchmarks.lakes.merges"
MERGE: Final = "MERGE, "
"""How the name begins of what was not measured here."""


@dataclass(frozen=True, slots=True)
class Merged:
    """How long one system took for a statement of one kind and size, at best."""

    system: str
    statement: str
    share: str
    best_s: float
    rows: int
    cpu_s: float = 0.0
    others: float = 0.0
    """How many cores everybody else used meanwhile."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured: how many rows, how often, and which systems."""

    scale: float = 0.1
    rounds: int = 2
    systems: Sequence[str] = tuple(KINDS)
    system_s_max: float = 300.0


@dataclass(slots=True)
class Merges:
    """What was found so far, and why some things were not."""

    figures: list[Merged] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    def take(self, shown: str, said: str, rows: int) -> None:
        """Note the lines of one system."""
        samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for line in said.splitlines():
            if not line.startswith("{"):
                continue
            told: dict[str, Any] = json.loads(line)
            if "sum" in told:
                self.sums[shown] = told["sum"]
            elif "reason" in told:
                self.missing[_name(shown, told)] = told["reason"]
            else:
                samples.setdefault((told["statement"], told["share"]), []).append(told)
        self.figures += _best(shown, samples, rows)
        self._compare()

    def _compare(self) -> None:
        """A system whose rows are not those of the others did not do the work that was timed."""
        usual = statistics.median_low(self.sums.values()) if self.sums else 0.0
        for shown, total in self.sums.items():
            if abs(total - usual) > abs(usual) * 1e-9:
                said = f"the sum is {total}, that of the others {usual}"
                self.missing[f"{MERGE}{shown}"] = said
                self.figures = [each for each in self.figures if each.system != shown]


def _name(shown: str, told: Mapping[str, Any]) -> str:
    return f"{MERGE}{shown}: {told['statement']}, {told['share']}"


def _best(
    shown: str, samples: Mapping[tuple[str, str], Sequence[Mapping[str, float]]], rows: int
) -> Iterator[Merged]:
    for (statement, share), times in samples.items():
        best = min(times, key=lambda one: one["wall_s"])
        cpu_s = min(one["cpu_s"] for one in times)
        others = best["others_s"] / best["wall_s"]
        yield Merged(shown, statement, share, best["wall_s"], rows, cpu_s, others)


def measure(asked: Asked, after_each: Callable[[Merges], None]) -> None:
    """Measure what each system takes; `after_each` is given what there is so far."""
    found = Merges()
    with tempfile.TemporaryDirectory(prefix="tidelock-merging-") as name:
        folder = Path(name)
        try:
            wanted = tuple(BATCHES.values())
            rows = write_inputs(folder / "in", asked.scale, generator(), wanted)
        except ServerUnavailable as error:
            found.missing["MERGE beside other lakes"] = str(error)
            after_each(found)
            return
        for system in asked.systems:
            print(f"  {system} ...", file=sys.stderr, flush=True)
            shown, work = SYSTEMS[system], folder / "work"
            try:
                words: list[str | Path] = [folder / "in", work, str(asked.rounds)]
                ran = run(system, _PROGRAM, words, asked.system_s_max)
            except ServerUnavailable as error:
                found.missing[f"{MERGE}{shown}"] = str(error).splitlines()[0][:300]
            else:
                found.take(shown, ran.said, rows)
                if ran.reason is not None:
                    found.missing[f"{MERGE}{shown}"] = ran.reason
            shutil.rmtree(work, ignore_errors=True)
            after_each(found)
