"""Breadth-first search of all states within the bounds; finds the shortest violation."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from testkit.explore.bounds import Bounds
from testkit.explore.checks import CheckFailed
from testkit.explore.trace import describe
from testkit.explore.world import World, Worlds, small_token_ranges
from tidelock.lock.state import Phase


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation and the shortest path to it.

    `path` has the index of the initial world, and then the index of the successor at each step;
    `lines` describes the same steps as text.
    """

    rule: str
    description: str
    path: tuple[int, ...]
    lines: tuple[str, ...]


@dataclass(slots=True)
class SearchResult:
    """The result of a search; `complete` if all worlds within the bounds were visited.

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
        """Number of transitions."""
        return self.fired.total()


def search(bounds: Bounds, *, states_max: int | None = None) -> SearchResult:
    """Visit every world within `bounds`, up to `states_max` or the first violation."""
    worlds = Worlds(bounds)
    found = SearchResult(bounds, rows=worlds.steps.rows)
    with small_token_ranges(bounds):
        came_from: dict[World, World | None] = dict.fromkeys(worlds.initial_worlds())
        try:
            found.complete = _visit(worlds, came_from, found, states_max)
        except _Stopped as stopped:
            found.violation = _violation(worlds, came_from, stopped)
    found.states = len(came_from)
    return found


class _Stopped(Exception):
    """A violation in `world`, or in a move from it."""

    def __init__(self, world: World, failure: CheckFailed) -> None:
        super().__init__(str(failure))
        self.world = world
        self.failure = failure


def _visit(
    worlds: Worlds,
    came_from: dict[World, World | None],
    found: SearchResult,
    states_max: int | None,
) -> bool:
    waiting = deque(came_from)
    limit = states_max or float("inf")
    fired = found.fired
    while waiting:
        if len(came_from) >= limit:
            return False
        world = waiting.popleft()
        try:
            found_worlds = worlds.successors(world)
        except CheckFailed as failure:
            raise _Stopped(world, failure) from failure
        for description, to in found_worlds:
            fired[description] += 1
            if to not in came_from:
                came_from[to] = world
                waiting.append(to)
                try:
                    worlds.check(to)
                except CheckFailed as failure:
                    raise _Stopped(to, failure) from failure
    return True


def _violation(
    worlds: Worlds, came_from: dict[World, World | None], stopped: _Stopped
) -> Violation:
    way = [stopped.world]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    way.reverse()
    path = [list(worlds.initial_worlds()).index(way[0])]
    for world, to in pairwise(way):
        path.append([next_ for _, next_ in worlds.successors(world)].index(to))
    failure = stopped.failure
    lines = [*_steps_of(worlds, path)]
    if failure.move:
        lines.append(f"then {failure.move}")
    return Violation(failure.rule, str(failure), tuple(path), tuple(lines))


def _steps_of(worlds: Worlds, path: list[int]) -> Iterator[str]:
    world = list(worlds.initial_worlds())[path[0]]
    yield f"{'start':<44} {describe(worlds, world)}"
    for choice in path[1:]:
        description, world = worlds.successors(world)[choice]
        yield f"{description:<44} {describe(worlds, world)}"


def replay(bounds: Bounds, path: list[int]) -> Iterator[str]:
    """Yield the steps of `path`, and the violation at its end."""
    worlds = Worlds(bounds)
    with small_token_ranges(bounds):
        try:
            yield from _steps_of(worlds, path)
            world = list(worlds.initial_worlds())[path[0]]
            for choice in path[1:]:
                world = worlds.successors(world)[choice][1]
            worlds.check(world)
            worlds.successors(world)
        except CheckFailed as failure:
            yield f"{failure} ({failure.move})" if failure.move else str(failure)
        else:
            yield "no violation on this path"
