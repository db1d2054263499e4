"""Breadth-first search through every world within the bounds: the shortest way to a mistake."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tidelock.lock.state import Phase
from tidelock.testing.explore.bounds import Bounds
from tidelock.testing.explore.checks import Broken
from tidelock.testing.explore.trace import describe
from tidelock.testing.explore.world import World, Worlds, small_ranges


@dataclass(frozen=True, slots=True)
class Violation:
    """A mistake and the shortest way to it.

    `path` says which of the first worlds to start in, and then which of the following ones to
    enter each time; `lines` tells the same story to people.
    """

    rule: str
    says: str
    path: tuple[int, ...]
    lines: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What a search came to: `complete` if no world within the bounds was left out.

    `rows` counts the table's rows as (phase, event, phase after); `fired` the kinds of moves.
    """

    bounds: Bounds
    states: int = 0
    complete: bool = False
    violation: Violation | None = None
    rows: Counter[tuple[Phase, str, Phase]] = field(default_factory=Counter, repr=False)
    fired: Counter[str] = field(default_factory=Counter, repr=False)

    @property
    def transitions(self) -> int:
        """How often one world followed another."""
        return self.fired.total()


def search(bounds: Bounds, *, states_max: int | None = None) -> Found:
    """Visit every world within `bounds`, or `states_max` of them, or up to the first mistake."""
    worlds = Worlds(bounds)
    found = Found(bounds, rows=worlds.steps.rows)
    with small_ranges(bounds):
        came_from: dict[World, World | None] = dict.fromkeys(worlds.firsts())
        try:
            found.complete = _visit(worlds, came_from, found, states_max)
        except _Stopped as stopped:
            found.violation = _violation(worlds, came_from, stopped)
    found.states = len(came_from)
    return found


class _Stopped(Exception):
    """The search met a mistake in or right after `world`."""

    def __init__(self, world: World, broken: Broken) -> None:
        super().__init__(str(broken))
        self.world = world
        self.broken = broken


def _visit(
    worlds: Worlds, came_from: dict[World, World | None], found: Found, states_max: int | None
) -> bool:
    waiting = deque(came_from)
    limit = states_max or float("inf")
    fired = found.fired
    while waiting:
        if len(came_from) >= limit:
            return False
        world = waiting.popleft()
        try:
            follows = worlds.after(world)
        except Broken as broken:
            raise _Stopped(world, broken) from broken
        for says, to in follows:
            fired[says] += 1
            if to not in came_from:
                came_from[to] = world
                waiting.append(to)
                try:
                    worlds.check(to)
                except Broken as broken:
                    raise _Stopped(to, broken) from broken
    return True


def _violation(
    worlds: Worlds, came_from: dict[World, World | None], stopped: _Stopped
) -> Violation:
    way = [stopped.world]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    way.reverse()
    path = [list(worlds.firsts()).index(way[0])]
    for world, to in pairwise(way):
        path.append([next_ for _, next_ in worlds.after(world)].index(to))
    broken = stopped.broken
    lines = [*_story(worlds, path)]
    if broken.move:
        lines.append(f"then {broken.move}")
    return Violation(broken.rule, str(broken), tuple(path), tuple(lines))


def _story(worlds: Worlds, path: list[int]) -> Iterator[str]:
    world = list(worlds.firsts())[path[0]]
    yield f"{'start':<44} {describe(worlds, world)}"
    for choice in path[1:]:
        says, world = worlds.after(world)[choice]
        yield f"{says:<44} {describe(worlds, world)}"


def replay(bounds: Bounds, path: list[int]) -> Iterator[str]:
    """Yield the story of `path`, step by step, and the mistake it ends in, if it still does."""
    worlds = Worlds(bounds)
    with small_ranges(bounds):
        try:
            yield from _story(worlds, path)
            world = list(worlds.firsts())[path[0]]
            for choice in path[1:]:
                world = worlds.after(world)[choice][1]
            worlds.check(world)
            worlds.after(world)
        except Broken as broken:
            yield f"{broken} ({broken.move})" if broken.move else str(broken)
        else:
            yield "no mistake on this way"
