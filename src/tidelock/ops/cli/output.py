"""What commands say: for people through rich, for programs as JSON, one object to a line.

Results go to standard output, complaints to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from tidelock.base.errors import TidelockError


class Output:
    """The two streams of one command.

    With `to_stderr` even results go to standard error: `lock run` leaves standard output to the
    command that it runs.
    """

    def __init__(self, *, as_json: bool, to_stderr: bool = False) -> None:
        """Write JSON lines instead of text with `as_json`."""
        self.as_json = as_json
        self._to_stderr = to_stderr

    def result(self, facts: Mapping[str, object], *human: Text | str) -> None:
        """Say what came out: `facts` to programs, `human` to people."""
        if self.as_json:
            stream = sys.stderr if self._to_stderr else sys.stdout
            stream.write(json.dumps(facts) + "\n")
            stream.flush()
            return
        console = self.console(stderr=self._to_stderr)
        for part in human:
            console.print(part)

    def remark(self, *human: Text | str) -> None:
        """Say something in passing to people; programs do not hear it."""
        if not self.as_json:
            for part in human:
                self.console(stderr=True).print(part)

    @staticmethod
    def console(*, stderr: bool = False) -> Console:
        """Return a console that leaves text as it is: no markup, no wrapping of long names."""
        return Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True, emoji=False)


def error_facts(kind: str, message: str, hint: str = "") -> dict[str, object]:
    """Return an error as programs are told it."""
    return {"error": {"kind": kind, "message": message, "hint": hint}}


def kind_of(error: TidelockError) -> str:
    """Return the kind of an error as programs are told it."""
    return error.kind.name.lower()


def facts(rows: Sequence[tuple[str, str | Text]]) -> list[Text]:
    """Return a line for each name and value, the values below each other."""
    width = max((len(name) for name, _ in rows), default=0)
    return [Text.assemble((f"  {name:<{width}}  ", "dim"), value) for name, value in rows]


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Text]:
    """Return a table whose columns are as wide as they must be; nothing in it is ever cut."""
    every = [headings, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(headings))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
    return [Text(lines[0], style="dim"), *(Text(line) for line in lines[1:])]


def duration(duration_ms: float) -> str:
    """Return a duration as a person says it: 340 ms, 12.3 s, 4 min 5 s, 2 h 3 min, 3 d 4 h."""
    left_ms = abs(duration_ms)
    if left_ms < 1000:
        return f"{left_ms:.0f} ms"
    if left_ms < 60_000:
        return f"{left_ms / 1000:.1f} s"
    seconds = round(left_ms / 1000)
    for size, unit, below, below_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size:,} {unit} {seconds % size // below} {below_unit}"
    return f"{seconds} s"


def counted(count: int, thing: str) -> str:
    """Return how many things there are: 1 file group, 2 file groups."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def moment(epoch_ms: int) -> str:
    """Return a wall time in UTC; far ones, which no calendar reaches, as their number."""
    try:
        at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"epoch ms {epoch_ms}"
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
