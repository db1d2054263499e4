"""The results of a suite: figures, and the parameters of the run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

WHOLE: Final = "whole"
_OF_SUITE: Final = " (suite: "
BUSY_LOAD: Final = 4.0
BUSY_CORES: Final = 0.3
"""The number of cores that other processes, including the system, may use in a quiet run."""


@dataclass(frozen=True, slots=True)
class LakeFigure:
    """The figures of one system for one measure. Files and requests are those of the last run."""

    system: str
    measure: str
    best_s: float
    median_s: float
    cpu_s: float
    peak_mb: float
    times: int
    suite: str = WHOLE
    files: int = 0
    written_mb: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, system: str, measure: str, samples: Sequence[Mapping[str, Any]], suite: str
    ) -> LakeFigure:
        """Return the figure of several samples."""
        walls = [sample["wall_s"] for sample in samples]
        return cls(
            system,
            measure,
            min(walls),
            median(walls),
            median(sample["cpu_s"] for sample in samples),
            max(sample["peak_mb"] for sample in samples),
            len(samples),
            suite,
            samples[-1]["files"],
            samples[-1]["written_mb"],
            samples[-1]["requests"],
        )


@dataclass(frozen=True, slots=True)
class LakeRun:
    """The parameters of a run, and the load of the machine."""

    scale: float
    rows: int
    rounds: int
    load_before: float
    load_after: float
    suite: str = WHOLE
    others: float | None = None
    """The number of cores that other processes used, on average."""
    taken_at: str = ""

    @property
    def is_busy(self) -> bool:
        """Whether other processes used the machine; by its load if they were not measured."""
        if self.others is not None:
            return self.others > BUSY_CORES
        # The benchmark itself uses at most two cores.
        return max(self.load_before, self.load_after) > BUSY_LOAD


def missing_name(what: str, suite: str) -> str:
    """Return the name of a missing measure of a suite."""
    return what if suite == WHOLE else f"{what}{_OF_SUITE}{suite})"


def suite_of(name: str) -> str:
    """Return the suite of a name from `missing_name`."""
    return name.partition(_OF_SUITE)[2].rstrip(")") or WHOLE


def system_of(name: str) -> str:
    """Return the system of a name from `missing_name`, if it has one."""
    return name.partition(_OF_SUITE)[0].partition(": ")[0]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of a run, and why some measures are missing."""

    figures: list[LakeFigure]
    run: LakeRun
    missing: dict[str, str]
