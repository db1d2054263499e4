"""What an examination finds: one sentence each, what to do about it, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.lock.inspect import CounterInspection, Inspection


class Level(Enum):
    """How much a finding matters."""

    FINE = "fine"
    NOTE = "note"
    PROBLEM = "problem"


class Cure(Enum):
    """What `--fix` can do: conditional on what was seen, after a copy of what is replaced."""

    MEND_RECORD = "save the record beside itself, then replace it by a released one"
    MEND_COUNTER = "put the token counter above every token granted so far"
    ROLL_BACK = "roll back the writes of dead writers, and plans that nobody can execute any more"
    PUBLISH = "put what the ledger has decided on the timeline"
    SWEEP = "delete the markers and heartbeats of completed writes, and files of undone ones"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. With a problem the command ends with its `exit_code`."""

    about: str
    level: Level
    says: str
    advice: str = ""
    cure: Cure | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that was found, and what was seen while looking."""

    findings: tuple[Finding, ...]
    seen: Inspection | None = None
    counted: CounterInspection | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the first problem; 0 without one."""
        problems = [found for found in self.findings if found.level is Level.PROBLEM]
        return problems[0].exit_code if problems else 0

    @property
    def cures(self) -> list[Cure]:
        """What can be mended, the record first: mending it sets the counter as well."""
        wanted = {found.cure for found in self.findings}
        return [cure for cure in Cure if cure in wanted]


def fine(about: str, says: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(about, Level.FINE, says)


def note(about: str, says: str, advice: str = "", cure: Cure | None = None) -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(about, Level.NOTE, says, advice, cure)


def problem(
    about: str, says: str, advice: str, *, exit_code: int, cure: Cure | None = None
) -> Finding:
    """Return a finding that needs somebody to act."""
    return Finding(about, Level.PROBLEM, says, advice, cure, exit_code)
