"""The screen of a demo: a picture redrawn in place on a terminal, log lines everywhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidelock.workload.journal import ProgramEvent

_LOG_LINES_MAX: Final = 200
_LOG_SHOWN_MIN: Final = 2


class LogLine(NamedTuple):
    """One line of the log of a demo; `at_ms` counts from the start of the demo."""

    at_ms: int
    message: str
    style: str = ""


@dataclass(slots=True)
class Scene(ABC):
    """The state of a demo that a screen shows."""

    title: ClassVar[str]
    summary_every_s: ClassVar[float]
    lines_above_log: ClassVar[int]
    log_shown_max: ClassVar[int]

    began_ms: int
    phase: str = ""
    log: list[LogLine] = field(default_factory=list)
    logged: int = 0
    """The number of lines logged so far; `log` has the last ones."""
    faults: list[str] = field(default_factory=list)

    def add_log(self, at_ms: int, message: str, style: str = "") -> None:
        """Add a line to the log."""
        self.log.append(LogLine(at_ms - self.began_ms, message, style))
        self.logged += 1
        del self.log[:-_LOG_LINES_MAX]

    @abstractmethod
    def add_event(self, event: ProgramEvent) -> None:
        """Add an event from the journal of a program."""

    @abstractmethod
    def summary(self) -> str:
        """Return one line that sums up the state."""

    @abstractmethod
    def body(self, now_ms: int) -> Sequence[RenderableType]:
        """Return the parts of the picture above the log."""


RIGHT: Final[dict[str, Any]] = {"justify": "right"}


def grid(**columns: dict[str, Any]) -> Table:
    """Return a table without borders; each column has a heading and its options."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading, column in columns.items():
        table.add_column(heading, **column)
    return table


def labeled(width: int, label: str, value: str, style: str = "") -> Text:
    """Return a line with a label in a column of `width`, and a value."""
    return Text.assemble((f"{label:<{width}}", "dim"), (value, style))


class Screen:
    """Shows a scene: a live picture on a terminal, otherwise log lines and periodic summaries."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        """Draw on `console`; with `quiet`, draw nothing."""
        self._console = console
        self._quiet = quiet
        self._live = (
            Live(console=console, auto_refresh=False, vertical_overflow="crop")
            if console.is_terminal and not quiet
            else None
        )
        self._printed = 0
        self._summary_ms = 0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop drawing and leave the last picture on the terminal."""
        if self._live is not None:
            self._live.stop()

    def show(self, scene: Scene, now_ms: int) -> None:
        """Show the current state."""
        elapsed_ms = now_ms - scene.began_ms
        if self._live is not None:
            title = f"{scene.title}   {elapsed_ms / 1000:5.1f} s   {scene.phase}"
            body = Group(*scene.body(now_ms), Text(), self._latest(scene))
            panel = Panel(body, title=title, title_align="left", border_style="blue")
            self._live.update(panel, refresh=True)
        elif not self._quiet:
            self._print_new(scene, elapsed_ms)

    def _latest(self, scene: Scene) -> Text:
        """Return the end of the log, as much of it as fits on the terminal."""
        room = self._console.height - scene.lines_above_log
        shown = max(_LOG_SHOWN_MIN, min(scene.log_shown_max, room))
        return Text("\n").join(
            Text.assemble((f"{line.at_ms / 1000:6.1f} s  ", "dim"), (line.message, line.style))
            for line in scene.log[-shown:]
        )

    def _print_new(self, scene: Scene, elapsed_ms: int) -> None:
        unprinted = min(len(scene.log), scene.logged - self._printed)
        for line in scene.log[len(scene.log) - unprinted :]:
            self._print(line.at_ms, line.message, soft_wrap=True)
        self._printed = scene.logged
        if elapsed_ms - self._summary_ms >= scene.summary_every_s * 1000:
            self._summary_ms = elapsed_ms
            self._print(elapsed_ms, scene.summary())

    def _print(self, at_ms: int, message: str, *, soft_wrap: bool = False) -> None:
        self._console.print(f"{at_ms / 1000:6.1f} s  {message}", markup=False, soft_wrap=soft_wrap)
