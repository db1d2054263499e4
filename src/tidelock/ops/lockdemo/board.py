"""The board: the scene on a terminal, redrawn in place, or as plain lines elsewhere."""

from __future__ import annotations

import statistics
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidelock.lock.inspect import Condition, Inspection
from tidelock.lock.lease import Lease
from tidelock.ops.lockdemo.journal import Did
from tidelock.ops.lockdemo.scene import Scene, Writer
from tidelock.ops.lockdemo.verdict import plain_acknowledged

_BAR = 12
_LINES_ABOVE_LOG = 16
_LOG_SHOWN_MAX = 10
_STYLES = {
    Condition.FREE: "green",
    Condition.HELD: "bold cyan",
    Condition.LAPSED: "yellow",
    Condition.DEAD: "bold yellow",
    Condition.UNREADABLE: "bold red",
}


class Board:
    """Shows a scene: live on a terminal, else the lines of its log and a summary now and then."""

    def __init__(self, console: Console, lease: Lease, *, quiet: bool = False) -> None:
        """Draw on `console`; with `quiet`, nothing."""
        self._console = console
        self._lease = lease
        self._quiet = quiet
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

    def show(self, scene: Scene, seen: Inspection | None, now_ms: int, act: str) -> None:
        """Show the scene as it is now."""
        if self._live is not None:
            self._live.update(self._picture(scene, seen, now_ms, act), refresh=True)
        elif not self._quiet:
            self._lines(scene, now_ms)

    def _lines(self, scene: Scene, now_ms: int) -> None:
        for at_ms, says, _ in scene.log[self._told :]:
            self._console.print(f"{at_ms / 1000:6.1f} s  {says}", markup=False, soft_wrap=True)
        self._told = len(scene.log)
        elapsed_s = (now_ms - scene.began_ms) / 1000
        if elapsed_s - self._summed_s >= 5:
            self._summed_s = elapsed_s
            grants = ", ".join(f"{w.name} {w.grants}" for w in scene.writers.values())
            self._console.print(f"{elapsed_s:6.1f} s  grants: {grants}", markup=False)

    def _picture(self, scene: Scene, seen: Inspection | None, now_ms: int, act: str) -> Panel:
        room = self._console.height - _LINES_ABOVE_LOG - 2
        shown = max(2, min(_LOG_SHOWN_MAX, room))
        log = Text("\n").join(
            Text.assemble((f"{at_ms / 1000:6.1f} s  ", "dim"), (says, style))
            for at_ms, says, style in scene.log[-shown:]
        )
        parts: list[RenderableType] = [_lock_line(scene, seen, self._lease), Text()]
        parts += [_writers(scene), Text(), *_counters(scene), _handovers(scene), Text(), log]
        title = f"tidelock lock demo   {(now_ms - scene.began_ms) / 1000:5.1f} s   {act}"
        return Panel(Group(*parts), title=title, title_align="left", border_style="blue")


def _lock_line(scene: Scene, seen: Inspection | None, lease: Lease) -> Text:
    if seen is None or seen.record is None:
        return Text("lock   not taken yet")
    record, style = seen.record, _STYLES[seen.condition]
    line = Text.assemble("lock   ", (f"{seen.condition.value:<7}", style), f" token {record.token}")
    holder = next((w for w in scene.writers.values() if w.token == record.token), None)
    if record.expired or holder is None:
        return line
    left_ms = max(0, seen.takeover_in_ms or 0)
    whole_ms = lease.validity_ms + lease.drift_ms + lease.grace_ms
    filled = round(_BAR * min(1.0, left_ms / whole_ms))
    lease_ms = seen.expires_in_ms or 0
    line.append(f"  {holder.name:<5} ", "bold")
    line.append("━" * filled, style)
    line.append("·" * (_BAR - filled), "dim")
    line.append(f"  lease {max(0, lease_ms) / 1000:.1f} s, takeover in {left_ms / 1000:.1f} s")
    return line


def _writers(scene: Scene) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("writer")
    table.add_column("pid", justify="right")
    table.add_column("now", min_width=18)
    table.add_column("grants", justify="right")
    table.add_column("token", justify="right")
    table.add_column("hand-over", justify="right")
    table.add_column("refused", justify="right")
    for writer in scene.writers.values():
        last = f"{writer.handovers_ms[-1]} ms" if writer.handovers_ms else ""
        refused = Text(str(writer.refused or ""), style="bold green")
        row = (writer.name, str(writer.pid), _now(writer), str(writer.grants))
        table.add_row(*row, str(writer.token or ""), last, refused)
    return table


def _now(writer: Writer) -> Text:
    if writer.killed:
        return Text("killed (SIGKILL)", style="bold red")
    if writer.stopped:
        return Text("stopped (SIGSTOP)", style="bold red")
    style = "bold cyan" if writer.now == "holds the lock" else "dim"
    return Text(writer.now, style="yellow" if writer.now.startswith("LOST") else style)


def _counters(scene: Scene) -> list[Text]:
    wrote, refused = scene.count(Did.WROTE), scene.count(Did.REFUSED)
    fenced = Text.assemble(
        ("fenced counter  ", "dim"), f"{scene.fenced_value} of {wrote} increments"
    )
    fenced.append(f", {refused} stale {'write' if refused == 1 else 'writes'} refused by token")
    wrote_plain = plain_acknowledged(scene.events)
    lost = max(0, wrote_plain - scene.plain_value) if refused else 0
    plain = Text.assemble(
        ("plain counter   ", "dim"), f"{wrote_plain - lost} of {wrote_plain} increments"
    )
    if lost:
        plain.append(f", {lost} destroyed by the late writer", "bold red")
    faults = Text.assemble(
        ("faults injected ", "dim"), (str(len(scene.faults)), "red" if scene.faults else "")
    )
    return [fenced, plain, faults]


def _handovers(scene: Scene) -> Text:
    every = [ms for writer in scene.writers.values() for ms in writer.handovers_ms]
    if not every:
        return Text("hand-overs      none yet", style="dim")
    median = statistics.median(every)
    return Text.assemble(
        ("hand-overs      ", "dim"),
        f"{len(every)}, median {median:.0f} ms, longest {max(every)} ms",
    )
