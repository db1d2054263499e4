"""The board: the scene on a terminal, redrawn in place, or as plain lines elsewhere."""

from __future__ import annotations

import statistics
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidelock.lock.inspect import Condition, Inspection
from tidelock.lock.lease import Lease
from tidelock.ops.fleet.screen import Screen
from tidelock.ops.lockdemo.journal import Did
from tidelock.ops.lockdemo.scene import Scene, Writer
from tidelock.ops.lockdemo.verdict import plain_acknowledged

_BAR = 12
_LINES_ABOVE_LOG = 18
_LOG_SHOWN_MAX = 10
_SUMMARY_EVERY_S = 5.0
_STYLES = {
    Condition.FREE: "green",
    Condition.HELD: "bold cyan",
    Condition.LAPSED: "yellow",
    Condition.DEAD: "bold yellow",
    Condition.UNREADABLE: "bold red",
}


class Board:
    """Shows a scene on a screen."""

    def __init__(self, console: Console, lease: Lease, *, quiet: bool = False) -> None:
        """Draw on `console`; with `quiet`, nothing."""
        self._lease = lease
        self._screen = Screen(console, quiet=quiet, summary_every_s=_SUMMARY_EVERY_S)

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._screen.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back, with the last picture on it."""
        self._screen.__exit__(kind, error, trace)

    def show(self, scene: Scene, seen: Inspection | None, now_ms: int, act: str) -> None:
        """Show the scene as it is now."""
        self._screen.show(
            lambda: self._picture(scene, seen, now_ms, act),
            scene.log,
            lambda: _summary(scene),
            elapsed_s=(now_ms - scene.began_ms) / 1000,
        )

    def _picture(self, scene: Scene, seen: Inspection | None, now_ms: int, act: str) -> Panel:
        log = self._screen.latest(scene.log, lines_above=_LINES_ABOVE_LOG, most=_LOG_SHOWN_MAX)
        parts: list[RenderableType] = [_lock_line(scene, seen, self._lease), Text()]
        parts += [_writers(scene), Text(), *_counters(scene), _handovers(scene), Text(), log]
        title = f"tidelock lock demo   {(now_ms - scene.began_ms) / 1000:5.1f} s   {act}"
        return Panel(Group(*parts), title=title, title_align="left", border_style="blue")


def _summary(scene: Scene) -> str:
    return "grants: " + ", ".join(f"{w.name} {w.grants}" for w in scene.writers.values())


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
