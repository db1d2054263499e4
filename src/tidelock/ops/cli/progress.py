"""A bar that shows how far a table service is, to people at a terminal and to nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

Told = Callable[[int, int], None]
"""Takes the bytes that are done, and of how many."""


@contextmanager
def progress_bar(what: str, console: Console, *, hidden: bool) -> Iterator[Told]:
    """Yield what is to be told of progress; the bar is gone afterwards."""
    if hidden or not console.is_terminal:
        yield lambda _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def told(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=max(1, total))

        yield told
