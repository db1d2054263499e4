"""The result of a run: its checks, its figures, and how both are shown to people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

_LABELS: Final[Mapping[bool | None, tuple[str, str]]] = {
    True: ("  ok    ", "green"),
    False: ("  WRONG ", "bold red"),
    None: ("  -     ", "dim"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that must hold, and whether it does; None if it could not be checked."""

    passed: bool | None
    message: str
    violations: int = 0
    """The number of wrong rows, reads, steps or objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a run: passed if no check failed."""

    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def check_lines(self) -> list[Text]:
        """Return one line per check."""
        return [Text.assemble(_LABELS[check.passed], check.message) for check in self.checks]

    def verdict(self) -> Text:
        """Return PASS or FAIL."""
        return Text("PASS", "bold green") if self.passed else Text("FAIL", "bold red")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport(RunReport):
    """The result of a demo."""

    figures: Mapping[str, int]
    """Numbers by their field name in JSON output."""
    faults: Sequence[str]
    """The faults that the demo injected."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "passed": self.passed,
            "checks": [{"passed": each.passed, "says": each.message} for each in self.checks],
            **self.figures,
            "faults": list(self.faults),
        }
