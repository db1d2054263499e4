"""Findings of a validation: an object, its problem, and the next step. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding."""

    PROBLEM = "problem"
    """A reader gets wrong rows or none, now or after the next step of another writer."""
    WARNING = "warning"
    """Rows are correct; something is left over or unusual."""


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """One deviation from a consistent table."""

    severity: Severity
    check: str
    object: str
    what: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Validation:
    """All findings for one table, and the number of objects examined."""

    uri: str
    findings: tuple[ValidationFinding, ...]
    examined: Mapping[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[ValidationFinding, ...]:
        """The findings that make a table inconsistent."""
        return tuple(each for each in self.findings if each.severity is Severity.PROBLEM)

    @property
    def is_consistent(self) -> bool:
        """Return whether there is no problem; warnings do not count."""
        return not self.problems

    @property
    def counts(self) -> Mapping[Severity, int]:
        """The number of findings by severity."""
        return Counter(each.severity for each in self.findings)


@dataclass(frozen=True, slots=True)
class ValidationCheck:
    """A kind of check, by its name in findings."""

    name: str

    def problem(self, about: str, what: str, next_step: str) -> ValidationFinding:
        """Return a finding that requires action."""
        return ValidationFinding(Severity.PROBLEM, self.name, about, what, next_step)

    def warning(self, about: str, what: str, next_step: str) -> ValidationFinding:
        """Return a finding that does not affect rows."""
        return ValidationFinding(Severity.WARNING, self.name, about, what, next_step)
