"""What a validation finds: one object, what is wrong with it, and what to do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    """A reader gets wrong rows or none, now or at the next step of another writer."""
    WARNING = "warning"
    """Rows are right; something is left over, or unusual."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    check: str
    object: str
    what: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Validation:
    """All findings of one table, and how much was looked at."""

    uri: str
    findings: tuple[Finding, ...]
    examined: Mapping[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that make a table inconsistent."""
        return tuple(each for each in self.findings if each.severity is Severity.PROBLEM)

    @property
    def is_consistent(self) -> bool:
        """Tell whether there is no problem; warnings do not count."""
        return not self.problems

    @property
    def counts(self) -> Mapping[Severity, int]:
        """How many findings there are of each severity."""
        return Counter(each.severity for each in self.findings)


def problem(check: str, about: str, what: str, next_step: str) -> Finding:
    """Return a finding that somebody has to act on."""
    return Finding(Severity.PROBLEM, check, about, what, next_step)


def warning(check: str, about: str, what: str, next_step: str) -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(Severity.WARNING, check, about, what, next_step)
