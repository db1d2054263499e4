"""Findings of the doctor commands: a message, its level, and the advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.lock.admin import CounterInspection, Inspection


class Level(Enum):
    """The severity of a finding."""

    OK = "fine"
    NOTE = "note"
    PROBLEM = "problem"


class Repair(Enum):
    """A repair that `--fix` can make: conditional on the state it read, after saving a copy."""

    RECORD = "save a copy of the record, then replace it with a released one"
    COUNTER = "set the token counter above every token granted so far"
    ROLL_BACK = "roll back the writes of dead writers, and plans that cannot be executed"
    PUBLISH = "publish the commits of the ledger to the timeline"
    SWEEP = "delete markers and heartbeats of completed writes, and files of rolled back ones"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check; `exit_code` is that of the command if it is a problem."""

    about: str
    level: Level
    message: str
    advice: str = ""
    repair: Repair | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, and the lock as it was read."""

    findings: tuple[DoctorFinding, ...]
    seen: Inspection | None = None
    counter: CounterInspection | None = None

    @property
    def exit_code(self) -> int:
        """The exit status of the first problem; 0 without one."""
        return next((f.exit_code for f in self.findings if f.level is Level.PROBLEM), 0)

    @property
    def repairs(self) -> list[Repair]:
        """The possible repairs, the record first: its repair sets the counter as well."""
        found = {finding.repair for finding in self.findings}
        return [repair for repair in Repair if repair in found]


def ok(about: str, message: str) -> DoctorFinding:
    """Return a finding without a problem."""
    return DoctorFinding(about, Level.OK, message)


def note(about: str, message: str, advice: str = "", repair: Repair | None = None) -> DoctorFinding:
    """Return a finding that needs no immediate action."""
    return DoctorFinding(about, Level.NOTE, message, advice, repair)


def problem(
    about: str, message: str, advice: str, *, exit_code: int = 1, repair: Repair | None = None
) -> DoctorFinding:
    """Return a finding that requires action."""
    return DoctorFinding(about, Level.PROBLEM, message, advice, repair, exit_code)
