"""The board: the scene on a terminal, redrawn in place, or as plain lines elsewhere."""

from __future__ import annotations

import statistics
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidelock.ops.demo.scene import Actor, Scene
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.screen import Screen
from tidelock.txn.entry import (
    Adopt,
    Boundary,
    Claim,
    Commit,
    Entry,
    Plan,
    Release,
    Rollback,
    Turn,
    Undo,
)

_LINES_ABOVE_LOG: Final = 26
_LOG_SHOWN_MAX: Final = 8
_SUMMARY_EVERY_S: Final = 10
_KINDS: Final = {
    Role.PYTHON: "Python",
    Role.SPARK: "Spark df.write",
    Role.SQL: "Spark SQL",
    Role.SERVICES: "services",
    Role.READER: "reader",
}
_WRITERS: Final = frozenset({Role.PYTHON, Role.SPARK, Role.SQL})


class Board:
    """Shows a scene on a screen."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        """Draw on `console`; with `quiet`, nothing."""
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

    def show(self, scene: Scene, now_ms: int, act: str) -> None:
        """Show the scene as it is now."""
        self._screen.show(
            lambda: self._picture(scene, now_ms, act),
            scene.log,
            lambda: _summary(scene),
            elapsed_s=(now_ms - scene.began_ms) / 1000,
        )

    def _picture(self, scene: Scene, now_ms: int, act: str) -> Panel:
        log = self._screen.latest(scene.log, lines_above=_LINES_ABOVE_LOG, most=_LOG_SHOWN_MAX)
        parts: list[RenderableType] = [_programs(scene), Text(), *_totals(scene, now_ms), Text()]
        parts += [_ledger(scene), Text(), log]
        title = f"tidelock demo   {(now_ms - scene.began_ms) / 1000:5.1f} s   {act}"
        return Panel(Group(*parts), title=title, title_align="left", border_style="blue")


def _summary(scene: Scene) -> str:
    steps = ", ".join(
        f"{actor.name} {len(scene.record.steps_of(actor.name))}"
        for actor in scene.actors.values()
        if actor.role in _WRITERS
    )
    if not scene.record.landed:
        return "the programs are starting"
    return f"writes: {steps}; {scene.solved} conflicts solved"


def _programs(scene: Scene) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("program")
    table.add_column("writes by")
    table.add_column("pid", justify="right")
    table.add_column("now", min_width=24)
    table.add_column("landed", justify="right")
    for actor in scene.actors.values():
        landed = str(len(scene.record.steps_of(actor.name))) if actor.role in _WRITERS else ""
        table.add_row(actor.name, _KINDS[actor.role], str(actor.pid), _now(actor), landed)
    return table


def _now(actor: Actor) -> Text:
    if actor.killed:
        return Text("killed (SIGKILL)", style="bold red")
    return Text(actor.now, style="cyan" if actor.writing else "dim")


def _totals(scene: Scene, now_ms: int) -> list[Text]:
    record = scene.record
    took_ms = [took for _, took in record.wrote_ms[-200:]]
    latency = f", median {statistics.median(took_ms):.0f} ms" if took_ms else ""
    rate = f"{len(record.landed)} landed, {scene.rate(now_ms):.1f}/s{latency}"
    failed = len(record.failures)
    conflicts = f"{scene.solved} solved by merging again, {failed} failed"
    served = ", ".join(f"{name} {count}" for name, count in sorted(record.served.items()) if count)
    waits = ", ".join(f"{plan.action} {plan.next_step}" for plan in scene.pending[:2])
    return [
        _fact("writes", rate),
        _fact("conflicts", conflicts, "bold green" if scene.solved and not failed else ""),
        _fact("services", served or "nothing to do yet"),
        _fact("pending", waits or "no plan waits"),
        _fact("lock", _lock(scene)),
    ]


def _lock(scene: Scene) -> str:
    seen = scene.lock
    if seen is None or seen.record is None:
        return "not taken yet"
    holder = f"{seen.condition.value}, token {seen.record.token}"
    return f"{holder} (Hudi's storage lock, a courtesy: the ledger decides)"


def _fact(name: str, says: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<11}", "dim"), (says, style))


def _ledger(scene: Scene) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("ledger", justify="right")
    table.add_column("what was decided", min_width=40)
    for entry in scene.entries:
        table.add_row(str(entry.position), _decided(entry))
    return table


def _decided(entry: Entry) -> Text:
    match entry.fact:
        case Commit(mark=mark, footprint=footprint, rebased=rebased):
            who = f"{mark.application}, step {mark.version}: " if mark is not None else ""
            again = f", merged again {rebased}x" if rebased else ""
            return Text(f"{who}{footprint.deed}{again}", style="green" if rebased else "")
        case Plan(action, targets):
            return Text(f"plan: {action.value} of {len(targets)} file groups", style="blue")
        case Adopt(action=action):
            return Text(f"plan: {action.value} of a writer without a ledger", style="blue")
        case Claim(attempt=attempt):
            return Text(f"somebody executes it, attempt {attempt}", style="blue")
        case Rollback(reason=reason):
            return Text(f"roll-back: {reason}", style="yellow")
        case Undo(reason=reason, instants=instants):
            return Text(f"undo {len(instants)}: {reason}", style="yellow")
        case Boundary(position):
            return Text(f"archived up to {position}", style="dim")
        case Turn():
            return Text("a writer asks for its turn", style="dim")
        case Release():
            return Text("a savepoint is given up", style="dim")
        case _:
            return Text("a commit of a writer without a ledger")
