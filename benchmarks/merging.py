"""MERGE INTO compared with other table formats, with values from the source or from both sides.

Each system runs in its own environment and process. `python -m benchmarks.lakes --suite merges` has
options for the number of rows and rounds, and the systems.
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
from testkit.servers import ServerUnavailable

_PROGRAM: Final = "benchmarks.lakes.merges"
MERGE: Final = "MERGE, "
"""The prefix of the names of missing measures."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The best time of one system for a statement of one kind and size."""

    system: str
    statement: str
    share: str
    best_s: float
    rows: int
    cpu_s: float = 0.0
    others: float = 0.0
    """The number of cores that other processes used."""


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The number of rows and rounds, and the systems."""

    scale: float = 0.1
    rounds: int = 2
    systems: Sequence[str] = tuple(KINDS)
    system_s_max: float = 300.0


@dataclass(slots=True)
class Merges:
    """The results so far, and why some measures are missing."""

    figures: list[Merged] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    def take(self, shown: str, output: str, rows: int) -> None:
        """Parse the output of one system."""
        samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for line in output.splitlines():
            if not line.startswith("{"):
                continue
            sample: dict[str, Any] = json.loads(line)
            if "sum" in sample:
                self.sums[shown] = sample["sum"]
            elif "reason" in sample:
                self.missing[_name(shown, sample)] = sample["reason"]
            else:
                samples.setdefault((sample["statement"], sample["share"]), []).append(sample)
        self.figures += _best(shown, samples, rows)
        self._compare()

    def _compare(self) -> None:
        """Remove the figures of systems whose table differs from that of the others."""
        usual = statistics.median_low(self.sums.values()) if self.sums else 0.0
        for shown, total in self.sums.items():
            if abs(total - usual) > abs(usual) * 1e-9:
                reason = f"the sum is {total}, that of the others {usual}"
                self.missing[f"{MERGE}{shown}"] = reason
                self.figures = [each for each in self.figures if each.system != shown]


def _name(shown: str, sample: Mapping[str, Any]) -> str:
    return f"{MERGE}{shown}: {sample['statement']}, {sample['share']}"


def _best(
    shown: str, samples: Mapping[tuple[str, str], Sequence[Mapping[str, float]]], rows: int
) -> Iterator[Merged]:
    for (statement, share), times in samples.items():
        best = min(times, key=lambda one: one["wall_s"])
        cpu_s = min(one["cpu_s"] for one in times)
        others = best["others_s"] / best["wall_s"]
        yield Merged(shown, statement, share, best["wall_s"], rows, cpu_s, others)


def measure(options: MergeOptions, after_each: Callable[[Merges], None]) -> None:
    """Measure every system; `after_each` is called with the results so far."""
    found = Merges()
    with tempfile.TemporaryDirectory(prefix="tidelock-merging-") as name:
        folder = Path(name)
        try:
            batches = tuple(BATCHES.values())
            rows = write_inputs(folder / "in", options.scale, generator(), batches)
        except ServerUnavailable as error:
            found.missing["MERGE, other table formats"] = str(error)
            after_each(found)
            return
        for system in options.systems:
            print(f"  {system} ...", file=sys.stderr, flush=True)
            shown, work = SYSTEMS[system], folder / "work"
            try:
                words: list[str | Path] = [folder / "in", work, str(options.rounds)]
                ran = run(system, _PROGRAM, words, options.system_s_max)
            except ServerUnavailable as error:
                found.missing[f"{MERGE}{shown}"] = str(error).splitlines()[0][:300]
            else:
                found.take(shown, ran.output, rows)
                if ran.reason is not None:
                    found.missing[f"{MERGE}{shown}"] = ran.reason
            shutil.rmtree(work, ignore_errors=True)
            after_each(found)
