"""Every world that may follow a world: what clients, network, store and others may do next.

A world is a tuple of numbers: the time, what is left of the bounds, the lock object, the token
counter, the strays, the landed grants, and one number for each client. What a move does to a part
is worked out once and remembered, so most worlds cost a few look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

from tidelock.base.outcome import Landed
from tidelock.lock import acquiring
from tidelock.lock import events as e
from tidelock.lock.state import State
from tidelock.store.contract import Create
from tidelock.testing.explore import checks, others
from tidelock.testing.explore.bounds import OWNERS, Bounds
from tidelock.testing.explore.checks import Broken
from tidelock.testing.explore.clients import AWAITING, Move, Steps
from tidelock.testing.explore.serving import can_land, noting_release, serve
from tidelock.testing.explore.values import (
    WRITERS,
    Answered,
    Asked,
    Client,
    Landing,
    Names,
    Role,
    Stored,
    StoredCounter,
    Stray,
    free_nonce,
)

World = tuple[int, ...]
Follows = list[tuple[str, World]]
TIME, LEFT, LOCK, COUNTER, STRAYS, LOG, FIRST = range(7)

# What is left of the bounds, as the digits of one number, and MEDDLED once an operator did.
FAULT, JAVA, MEDDLING, JUMP, MEDDLED = 1, 10, 100, 1_000, 10_000

JAVA_WRITER = WRITERS.index("J")
OPERATOR = WRITERS.index("O")


class Worlds:
    """The worlds within `bounds`, and the parts they are made of."""

    def __init__(self, bounds: Bounds) -> None:
        """Know nothing yet but the bounds."""
        self.bounds = bounds
        self.steps = Steps(bounds)
        self.clients: Names[Client] = Names()
        self.locks: Names[Stored | None] = Names()
        self.counters: Names[StoredCounter | None] = Names()
        self.strays: Names[tuple[Stray, ...]] = Names()
        self.logs: Names[tuple[Landing, ...]] = Names()
        # Once an operator meddled, or with clocks that lie, only tokens keep owners apart.
        self._disorderly = MEDDLED if bounds.exclusive else 0
        self._moves: dict[tuple[int, int, int], tuple[tuple[int, Move], ...]] = {}
        self._served: dict[tuple[int, int, int], _Serving | None] = {}
        self._landed: dict[tuple[int, int, int], tuple[tuple[int, int, Stray], ...]] = {}
        self._alive: dict[tuple[int, int, int, bool], int] = {}
        self._awaited: dict[tuple[int, ...], int] = {}
        self._java: dict[tuple[int, int, int], tuple[tuple[str, int], ...]] = {}
        self._meddled: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}
        self._believes: dict[tuple[int, int], bool] = {}

    def firsts(self) -> Iterator[World]:
        """Yield the worlds in which everything begins."""
        b = self.bounds
        left = b.faults * FAULT + b.java_writes * JAVA + b.meddlings * MEDDLING
        left += b.clock_jumps * JUMP
        none = self.strays.number(()), self.logs.number(())
        for start in b.starts:
            lock, counter = others.start(start, b)
            objects = self.locks.number(lock), self.counters.number(counter)
            for skews in b.skews_ms():
                clients = (
                    self.clients.number(Client(State(owner, b.lease), operations, skew))
                    for owner, operations, skew in zip(
                        OWNERS, b.operations_of(), skews, strict=False
                    )
                )
                yield (0, left, *objects, *none, *clients)

    def after(self, world: World) -> Follows:
        """Return every world that may follow `world`, and what leads there."""
        follows: Follows = []
        if world[TIME] < self.bounds.time_steps:
            follows.append(("time passes", (world[TIME] + 1, *world[1:])))
        mentions = self._mentions(world)
        for place in range(FIRST, len(world)):
            self._by_client(world, place, mentions, follows)
            self._by_network(world, place, follows)
        if world[STRAYS]:
            self._by_strays(world, follows)
        if world[LEFT] >= JAVA:
            self._by_others(world, mentions, follows)
        return follows

    def check(self, world: World) -> None:
        """Check what must hold in every world: nobody believes beside another (P9, P10)."""
        time = world[TIME]
        believers = 0
        for name in world[FIRST:]:
            believes = self._believes.get((name, time))
            if believes is None:
                believes = self.steps.believes(self.clients.parts[name], time)
                self._believes[name, time] = believes
            believers += believes
        if not believers or world[LEFT] >= self._disorderly:
            return
        if believers > 1:
            raise Broken("exclusion", "two owners believe to hold the lock at the same time")
        lock = self.locks.parts[world[LOCK]]
        if lock and lock.record and lock.record.owner == "J" and not lock.record.expired:
            raise Broken("exclusion", "an owner believes to hold what a Java writer holds")

    def _mentions(self, world: World) -> int:
        mentions = (
            self.locks.mentions[world[LOCK]]
            | self.counters.mentions[world[COUNTER]]
            | self.strays.mentions[world[STRAYS]]
            | self.logs.mentions[world[LOG]]
        )
        for name in world[FIRST:]:
            mentions |= self.clients.mentions[name]
        return mentions

    # --- clients ----------------------------------------------------------------------------------

    def _by_client(self, world: World, place: int, mentions: int, follows: Follows) -> None:
        owner = place - FIRST
        key = (world[place], world[TIME], free_nonce(mentions, owner))
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = self._client_moves(*key, owner)
        faults = world[LEFT] % JAVA
        for to, move in moves:
            if move.fault and not faults:
                continue
            parts = list(world)
            parts[place] = to
            if move.fault:
                parts[LEFT] -= FAULT
            if move.stray:
                every = {*self.strays.parts[world[STRAYS]], move.stray}
                parts[STRAYS] = self.strays.number(tuple(sorted(every, key=repr)))
            if move.granted or move.renewed:
                self._believe(world, parts, move)
            follows.append((move.says, self._settled(parts)))

    def _client_moves(
        self, name: int, time: int, nonce: int, owner: int
    ) -> tuple[tuple[int, Move], ...]:
        client = self.clients.parts[name]
        moves = []
        for move in self.steps.moves(client, owner, time, nonce):
            to = self.clients.number(move.client)
            if to != name:
                moves.append((to, replace(move, says=f"{OWNERS[owner]}: {move.says}")))
        return tuple(moves)

    def _believe(self, world: World, parts: list[int], move: Move) -> None:
        """A client was told that it holds the lock: check it, and enter it in the log."""
        log = self.logs.parts[world[LOG]]
        places = (at for at, one in enumerate(log) if one.nonce == move.granted)
        mine = next(places, None) if move.granted else None
        counter = self.counters.parts[world[COUNTER]]
        lock = self.locks.parts[world[LOCK]]
        orderly = world[LEFT] < self._disorderly
        try:
            if move.granted:
                ceiling = counter.counter.ceiling if counter else 0
                checks.granted(log, mine, ceiling=ceiling, orderly=orderly)
            if orderly:
                checks.there(lock, move.granted or move.renewed)
        except Broken as broken:
            broken.move = move.says
            raise
        if mine is not None:
            believed = replace(log[mine], nonce="", granted=True)
            parts[LOG] = self.logs.number((*log[:mine], believed, *log[mine + 1 :]))

    # --- the network ------------------------------------------------------------------------------

    def _by_network(self, world: World, place: int, follows: Follows) -> None:
        """The client's request reaches the store, which acts on it."""
        key = (world[place], world[LOCK], world[COUNTER])
        if key not in self._served:
            self._served[key] = self._serving(*key)
        serving = self._served[key]
        if serving is None:
            return
        says, to, lock, counter, landing = serving
        parts = list(world)
        parts[place], parts[LOCK], parts[COUNTER] = to, lock, counter
        if landing:
            parts[LOG] = self.logs.number((*self.logs.parts[world[LOG]], landing))
        follows.append((says, self._settled(parts)))

    def _serving(self, name: int, lock: int, counter: int) -> _Serving | None:
        client = self.clients.parts[name]
        asked = client.flight
        if not isinstance(asked, Asked):
            return None
        objects = self.locks.parts[lock], self.counters.parts[counter]
        served = serve(asked, *objects, owner=client.state.owner, bounds=self.bounds)
        landing = None
        if isinstance(served.answer, Landed):
            client = noting_release(client, asked)
            if asked.role is Role.GRANT and isinstance(asked.request, e.WriteRecord):
                record = asked.request.record
                landing = Landing(OWNERS.index(record.owner), record.nonce, record.token)
        return (
            f"{client.state.owner}: {served.says}",
            self.clients.number(replace(client, flight=Answered(served.answer))),
            self.locks.number(served.lock),
            self.counters.number(served.counter),
            landing,
        )

    def _by_strays(self, world: World, follows: Follows) -> None:
        """A write that its sender gave up lands after all."""
        key = (world[STRAYS], world[LOCK], world[COUNTER])
        landed = self._landed.get(key)
        if landed is None:
            landed = self._landed[key] = tuple(self._stray_landings(*key))
        for lock, counter, stray in landed:
            parts = list(world)
            parts[LOCK], parts[COUNTER] = lock, counter
            rest = tuple(one for one in self.strays.parts[world[STRAYS]] if one != stray)
            parts[STRAYS] = self.strays.number(rest)
            place = FIRST + stray.owner
            client = noting_release(self.clients.parts[world[place]], stray.asked)
            parts[place] = self.clients.number(client)
            role = stray.asked.role.value if stray.asked.role else "write"
            follows.append((f"{OWNERS[stray.owner]}: a late {role} lands", self._settled(parts)))

    def _stray_landings(
        self, strays: int, lock: int, counter: int
    ) -> Iterator[tuple[int, int, Stray]]:
        objects = self.locks.parts[lock], self.counters.parts[counter]
        for stray in self.strays.parts[strays]:
            if can_land(stray.asked, *objects):
                owner = OWNERS[stray.owner]
                served = serve(stray.asked, *objects, owner=owner, bounds=self.bounds)
                yield self.locks.number(served.lock), self.counters.number(served.counter), stray

    # --- what has no future -----------------------------------------------------------------------

    def _settled(self, parts: list[int]) -> World:
        """Drop strays that can never land and landings that nobody waits for."""
        if parts[STRAYS]:
            key = (parts[STRAYS], parts[LOCK], parts[COUNTER], parts[LEFT] % JUMP >= MEDDLING)
            alive = self._alive.get(key)
            if alive is None:
                alive = self._alive[key] = self._strays_alive(*key)
            parts[STRAYS] = alive
        if parts[LOG]:
            log_key = (parts[LOG], *parts[FIRST:])
            kept = self._awaited.get(log_key)
            if kept is None:
                kept = self._awaited[log_key] = self._landings_awaited(*log_key)
            parts[LOG] = kept
        return tuple(parts)

    def _strays_alive(self, strays: int, lock: int, counter: int, deletable: bool) -> int:  # noqa: FBT001
        """A version that is gone never comes back; a lock object may yet be deleted."""
        objects = self.locks.parts[lock], self.counters.parts[counter]
        alive = []
        for stray in self.strays.parts[strays]:
            request = stray.asked.request
            creates = isinstance(request, e.WriteRecord) and isinstance(request.mode, Create)
            if can_land(stray.asked, *objects) or (creates and deletable):
                alive.append(stray)
        return self.strays.number(tuple(alive))

    def _landings_awaited(self, log: int, *names: int) -> int:
        states = [self.clients.parts[name].state for name in names]
        awaited = {one.sent.record.nonce for one in states if one.phase in AWAITING and one.sent}
        kept = [one for one in self.logs.parts[log] if one.granted or one.nonce in awaited]
        # Grants in order at the beginning say no more than the last of them.
        while len(kept) > 1 and kept[0].granted and kept[1].granted:
            del kept[0]
        return self.logs.number(tuple(kept))

    # --- others -----------------------------------------------------------------------------------

    def _by_others(self, world: World, mentions: int, follows: Follows) -> None:
        left = world[LEFT]
        if left % MEDDLING >= JAVA:
            java = (world[LOCK], world[TIME], free_nonce(mentions, JAVA_WRITER))
            if java not in self._java:
                lock = self.locks.parts[java[0]]
                writes = others.java_writes(lock, *java[1:], self.bounds)
                self._java[java] = tuple((says, self.locks.number(to)) for says, to in writes)
            for says, to in self._java[java]:
                follows.append((says, self._changed(world, LOCK, to, JAVA)))
        if left % JUMP >= MEDDLING:
            meddling = (world[LOCK], free_nonce(mentions, OPERATOR))
            if meddling not in self._meddled:
                done = others.meddlings(self.locks.parts[meddling[0]], meddling[1])
                self._meddled[meddling] = tuple((says, self.locks.number(to)) for says, to in done)
            spent = MEDDLING if left >= MEDDLED else MEDDLING - MEDDLED
            for says, to in self._meddled[meddling]:
                follows.append((says, self._changed(world, LOCK, to, spent)))
        if left % MEDDLED >= JUMP:
            for place in range(FIRST, len(world)):
                client = self.clients.parts[world[place]]
                jumped = replace(client, skew_ms=self.bounds.skew_ms - client.skew_ms)
                says = f"{client.state.owner}: its wall clock jumps"
                to = self.clients.number(jumped)
                follows.append((says, self._changed(world, place, to, JUMP)))

    def _changed(self, world: World, place: int, to: int, spent: int) -> World:
        parts = list(world)
        parts[place] = to
        parts[LEFT] -= spent
        return self._settled(parts)


_Serving = tuple[str, int, int, int, Landing | None]


def small_ranges(bounds: Bounds) -> AbstractContextManager[object]:
    """Let token ranges run out within a search: take few at a time."""
    return patch.object(acquiring, "TOKEN_RANGE", bounds.token_range)
