"""A picture that is redrawn in place on a terminal, or lines as things happen elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

LogLine = tuple[int, str, str]
"""When it happened, in milliseconds from the beginning; what; and how it is shown."""

_LOG_SHOWN_MIN: Final = 2


class Screen:
    """Shows pictures on a terminal; elsewhere the lines of a log, and a summary now and then."""

    def __init__(self, console: Console, *, quiet: bool = False, summary_every_s: float) -> None:
        """Draw on `console`; with `quiet`, nothing."""
        self._console = console
        self._quiet = quiet
        self._every_s = summary_every_s
        self._live = (
            Live(console=console, auto_refresh=False, vertical_overflow="crop")
            if console.is_terminal and not quiet
            else None
        )
        self._told = 0
        self._summed_s = 0.0

    def __enter__(self) -> Self:
        """Take the terminal."""
        live: AbstractContextManager[Any] = self._live or nullcontext()
        live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back, with the last picture on it."""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(
        self,
        picture: Callable[[], RenderableType],
        log: Sequence[LogLine],
        summary: Callable[[], str],
        *,
        elapsed_s: float,
    ) -> None:
        """Show how things are now."""
        if self._live is not None:
            self._live.update(picture(), refresh=True)
        elif not self._quiet:
            self._lines(log, summary, elapsed_s)

    def latest(self, log: Sequence[LogLine], *, lines_above: int, most: int) -> Text:
        """Return the end of a log, as much of it as the terminal has room for."""
        shown = max(_LOG_SHOWN_MIN, min(most, self._console.height - lines_above))
        return Text("\n").join(
            Text.assemble((f"{at_ms / 1000:6.1f} s  ", "dim"), (says, style))
            for at_ms, says, style in log[-shown:]
        )

    def _lines(self, log: Sequence[LogLine], summary: Callable[[], str], elapsed_s: float) -> None:
        for at_ms, says, _ in log[self._told :]:
            self._console.print(f"{at_ms / 1000:6.1f} s  {says}", markup=False, soft_wrap=True)
        self._told = len(log)
        if elapsed_s - self._summed_s >= self._every_s:
            self._summed_s = elapsed_s
            self._console.print(f"{elapsed_s:6.1f} s  {summary()}", markup=False)
