"""What a run of the course found: figures, and what they are of. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

WHOLE: Final = "whole"
_OF_COURSE: Final = " (course: "
BUSY_LOAD: Final = 4.0
BUSY_CORES: Final = 0.3
"""So much of a core may be used by others, the operating system among them, in a quiet run."""


@dataclass(frozen=True, slots=True)
class LakeFigure:
    """What one system took for one part of a course. Of files and requests: the last time."""

    system: str
    measure: str
    best_s: float
    median_s: float
    cpu_s: float
    peak_mb: float
    times: int
    course: str = WHOLE
    files: int = 0
    written_mb: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, system: str, measure: str, samples: Sequence[Mapping[str, Any]], course: str
    ) -> LakeFigure:
        """Return the figure of several times."""
        walls = [sample["wall_s"] for sample in samples]
        return cls(
            system,
            measure,
            min(walls),
            median(walls),
            median(sample["cpu_s"] for sample in samples),
            max(sample["peak_mb"] for sample in samples),
            len(samples),
            course,
            samples[-1]["files"],
            samples[-1]["written_mb"],
            samples[-1]["requests"],
        )


@dataclass(frozen=True, slots=True)
class LakeRun:
    """What the figures are of, and how busy the machine was."""

    scale: float
    rows: int
    rounds: int
    load_before: float
    load_after: float
    course: str = WHOLE
    others: float | None = None
    """How many cores everybody else used, on average of what was timed."""
    taken_at: str = ""

    @property
    def is_busy(self) -> bool:
        """Whether others used the machine; by its load, if nobody looked at them alone."""
        if self.others is not None:
            return self.others > BUSY_CORES
        # A contest alone keeps two cores busy, and no more.
        return max(self.load_before, self.load_after) > BUSY_LOAD


def missing_name(what: str, course: str) -> str:
    """Return what it is called that a course lacks something."""
    return what if course == WHOLE else f"{what}{_OF_COURSE}{course})"


def course_of(name: str) -> str:
    """Return the course that a name of `missing_name` is of."""
    return name.partition(_OF_COURSE)[2].rstrip(")") or WHOLE


def system_of(name: str) -> str:
    """Return the system that a name of `missing_name` is about, if it is about one."""
    return name.partition(_OF_COURSE)[0].partition(": ")[0]


@dataclass(frozen=True, slots=True)
class Contest:
    """What a run found, and why some things were not measured."""

    figures: list[LakeFigure]
    run: LakeRun
    missing: dict[str, str]
