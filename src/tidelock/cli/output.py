"""Output of commands: text for people, JSON for programs, one object per line.

Results go to standard output, warnings and errors to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich import progress
from rich.console import Console
from rich.text import Text


class Output:
    """The two streams of one command.

    With `to_stderr`, results go to standard error too: `lock run` leaves standard output to the
    command that it runs.
    """

    def __init__(self, *, as_json: bool, to_stderr: bool = False) -> None:
        """Write JSON lines instead of text with `as_json`."""
        self.as_json = as_json
        self._to_stderr = to_stderr

    def result(self, facts: Mapping[str, object], *human: Text | str) -> None:
        """Write a result: `facts` as JSON, `human` as text."""
        if self.as_json:
            stream = sys.stderr if self._to_stderr else sys.stdout
            stream.write(json.dumps(facts) + "\n")
            stream.flush()
            return
        console = self.console(stderr=self._to_stderr)
        for part in human:
            console.print(part)

    def remark(self, *human: Text | str) -> None:
        """Write a remark to standard error; with JSON output, remarks are omitted."""
        if not self.as_json:
            for part in human:
                self.console(stderr=True).print(part)

    @staticmethod
    def console(*, stderr: bool = False) -> Console:
        """Return a console that prints text unchanged: no markup, no wrapping of long names."""
        return Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True, emoji=False)


def facts(rows: Sequence[tuple[str, str | Text]]) -> list[Text]:
    """Return a line for each name and value, with aligned values."""
    width = max((len(name) for name, _ in rows), default=0)
    return [Text.assemble((f"  {name:<{width}}  ", "dim"), value) for name, value in rows]


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Text]:
    """Return a table with columns as wide as their longest cell; nothing is truncated."""
    lines_of_cells = [headings, *rows]
    widths = [max(len(row[column]) for row in lines_of_cells) for column in range(len(headings))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in lines_of_cells
    ]
    return [Text(lines[0], style="dim"), *(Text(line) for line in lines[1:])]


ProgressCallback = Callable[[int, int], None]
"""Takes the number of bytes done, and the total."""


@contextmanager
def progress_bar(title: str, console: Console, *, hidden: bool) -> Iterator[ProgressCallback]:
    """Yield the callback for progress; the bar disappears at the end."""
    if hidden or not console.is_terminal:
        yield lambda _done, _total: None
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(title, total=None)

        def on_progress(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=max(1, total))

        yield on_progress
