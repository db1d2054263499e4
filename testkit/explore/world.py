"""The successors of a world: moves of clients, network, store and external actors.

A world is a tuple of numbers: the time, the remaining bounds, the lock object, the token counter,
the late writes, the landed grants, and one number per client. The effect of a move on a part is
cached, so most worlds need only a few look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

from testkit.explore import checks, external_actors
from testkit.explore.bounds import OWNERS, Bounds
from testkit.explore.checks import CheckFailed
from testkit.explore.clients import AWAITING, Move, Steps
from testkit.explore.store import can_land, serve, with_release
from testkit.explore.values import (
    WRITERS,
    Client,
    Landing,
    LateWrite,
    PartTable,
    PendingReply,
    Role,
    SentRequest,
    Stored,
    StoredCounter,
    free_nonce,
)
from tidelock.core.outcome import Landed
from tidelock.lock import acquire
from tidelock.lock import events as e
from tidelock.lock.state import LockClientState
from tidelock.storage.contract import Create

World = tuple[int, ...]
Successors = list[tuple[str, World]]
TIME, LEFT, LOCK, COUNTER, LATE_WRITES, LOG, FIRST = range(7)

# The remaining bounds, as digits of one number; OPERATOR_ACTED once an operator acted.
FAULT, JAVA, OPERATOR_ACTION, JUMP, OPERATOR_ACTED = 1, 10, 100, 1_000, 10_000

JAVA_WRITER = WRITERS.index("J")
OPERATOR = WRITERS.index("O")


class Worlds:
    """The worlds within `bounds`, and their parts."""

    def __init__(self, bounds: Bounds) -> None:
        """Start with empty tables."""
        self.bounds = bounds
        self.steps = Steps(bounds)
        self.clients: PartTable[Client] = PartTable()
        self.locks: PartTable[Stored | None] = PartTable()
        self.counters: PartTable[StoredCounter | None] = PartTable()
        self.late_writes: PartTable[tuple[LateWrite, ...]] = PartTable()
        self.logs: PartTable[tuple[Landing, ...]] = PartTable()
        # After an operator action, or with clocks out of bounds, only tokens separate owners.
        self._disorderly = OPERATOR_ACTED if bounds.exclusive else 0
        self._moves: dict[tuple[int, int, int], tuple[tuple[int, Move], ...]] = {}
        self._served: dict[tuple[int, int, int], _Serving | None] = {}
        self._landed: dict[tuple[int, int, int], tuple[tuple[int, int, LateWrite], ...]] = {}
        self._alive: dict[tuple[int, int, int, bool], int] = {}
        self._awaited: dict[tuple[int, ...], int] = {}
        self._java: dict[tuple[int, int, int], tuple[tuple[str, int], ...]] = {}
        self._operator_moves: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}
        self._believes: dict[tuple[int, int], bool] = {}

    def initial_worlds(self) -> Iterator[World]:
        """Yield the initial worlds."""
        b = self.bounds
        left = b.faults * FAULT + b.java_writes * JAVA + b.operator_actions * OPERATOR_ACTION
        left += b.clock_jumps * JUMP
        none = self.late_writes.number(()), self.logs.number(())
        for start in b.starts:
            lock, counter = external_actors.start(start, b)
            objects = self.locks.number(lock), self.counters.number(counter)
            for skews in b.skews_ms():
                clients = (
                    self.clients.number(Client(LockClientState(owner, b.lease), operations, skew))
                    for owner, operations, skew in zip(
                        OWNERS, b.operations_of(), skews, strict=False
                    )
                )
                yield (0, left, *objects, *none, *clients)

    def successors(self, world: World) -> Successors:
        """Return the successors of `world`, and the move that leads to each."""
        found_worlds: Successors = []
        if world[TIME] < self.bounds.time_steps:
            found_worlds.append(("time passes", (world[TIME] + 1, *world[1:])))
        mentions = self._mentions(world)
        for place in range(FIRST, len(world)):
            self._by_client(world, place, mentions, found_worlds)
            self._by_network(world, place, found_worlds)
        if world[LATE_WRITES]:
            self._by_late_writes(world, found_worlds)
        if world[LEFT] >= JAVA:
            self._by_others(world, mentions, found_worlds)
        return found_worlds

    def check(self, world: World) -> None:
        """Check that at most one client reports HELD or UNSURE (P9, P10)."""
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
            raise CheckFailed("exclusion", "two owners report HELD at the same time")
        lock = self.locks.parts[world[LOCK]]
        if lock and lock.record and lock.record.owner == "J" and not lock.record.expired:
            raise CheckFailed(
                "exclusion", "an owner reports HELD while a Java writer holds the lock"
            )

    def _mentions(self, world: World) -> int:
        mentions = (
            self.locks.mentions[world[LOCK]]
            | self.counters.mentions[world[COUNTER]]
            | self.late_writes.mentions[world[LATE_WRITES]]
            | self.logs.mentions[world[LOG]]
        )
        for name in world[FIRST:]:
            mentions |= self.clients.mentions[name]
        return mentions

    # --- clients ----------------------------------------------------------------------------------

    def _by_client(self, world: World, place: int, mentions: int, found_worlds: Successors) -> None:
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
            if move.late_write:
                every = {*self.late_writes.parts[world[LATE_WRITES]], move.late_write}
                parts[LATE_WRITES] = self.late_writes.number(tuple(sorted(every, key=repr)))
            if move.granted or move.renewed:
                self._believe(world, parts, move)
            found_worlds.append((move.description, self._pruned(parts)))

    def _client_moves(
        self, name: int, time: int, nonce: int, owner: int
    ) -> tuple[tuple[int, Move], ...]:
        client = self.clients.parts[name]
        moves = []
        for move in self.steps.moves(client, owner, time, nonce):
            to = self.clients.number(move.client)
            if to != name:
                moves.append(
                    (to, replace(move, description=f"{OWNERS[owner]}: {move.description}"))
                )
        return tuple(moves)

    def _believe(self, world: World, parts: list[int], move: Move) -> None:
        """Check a reported grant or renewal, and enter it in the log."""
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
                checks.check_stored(lock, move.granted or move.renewed)
        except CheckFailed as failure:
            failure.move = move.description
            raise
        if mine is not None:
            believed = replace(log[mine], nonce="", granted=True)
            parts[LOG] = self.logs.number((*log[:mine], believed, *log[mine + 1 :]))

    # --- the network ------------------------------------------------------------------------------

    def _by_network(self, world: World, place: int, found_worlds: Successors) -> None:
        """Let the request of a client reach the store."""
        key = (world[place], world[LOCK], world[COUNTER])
        if key not in self._served:
            self._served[key] = self._serving(*key)
        serving = self._served[key]
        if serving is None:
            return
        description, to, lock, counter, landing = serving
        parts = list(world)
        parts[place], parts[LOCK], parts[COUNTER] = to, lock, counter
        if landing:
            parts[LOG] = self.logs.number((*self.logs.parts[world[LOG]], landing))
        found_worlds.append((description, self._pruned(parts)))

    def _serving(self, name: int, lock: int, counter: int) -> _Serving | None:
        client = self.clients.parts[name]
        sent = client.in_flight
        if not isinstance(sent, SentRequest):
            return None
        objects = self.locks.parts[lock], self.counters.parts[counter]
        served = serve(sent, *objects, owner=client.state.owner, bounds=self.bounds)
        landing = None
        if isinstance(served.answer, Landed):
            client = with_release(client, sent)
            if sent.role is Role.GRANT and isinstance(sent.request, e.WriteRecord):
                record = sent.request.record
                landing = Landing(OWNERS.index(record.owner), record.nonce, record.token)
        return (
            f"{client.state.owner}: {served.description}",
            self.clients.number(replace(client, in_flight=PendingReply(served.answer))),
            self.locks.number(served.lock),
            self.counters.number(served.counter),
            landing,
        )

    def _by_late_writes(self, world: World, found_worlds: Successors) -> None:
        """Let a write land whose sender no longer waits."""
        key = (world[LATE_WRITES], world[LOCK], world[COUNTER])
        landed = self._landed.get(key)
        if landed is None:
            landed = self._landed[key] = tuple(self._late_landings(*key))
        for lock, counter, late_write in landed:
            parts = list(world)
            parts[LOCK], parts[COUNTER] = lock, counter
            rest = tuple(
                one for one in self.late_writes.parts[world[LATE_WRITES]] if one != late_write
            )
            parts[LATE_WRITES] = self.late_writes.number(rest)
            place = FIRST + late_write.owner
            client = with_release(self.clients.parts[world[place]], late_write.sent)
            parts[place] = self.clients.number(client)
            role = late_write.sent.role.value if late_write.sent.role else "write"
            found_worlds.append(
                (f"{OWNERS[late_write.owner]}: a late {role} lands", self._pruned(parts))
            )

    def _late_landings(
        self, late_writes: int, lock: int, counter: int
    ) -> Iterator[tuple[int, int, LateWrite]]:
        objects = self.locks.parts[lock], self.counters.parts[counter]
        for late_write in self.late_writes.parts[late_writes]:
            if can_land(late_write.sent, *objects):
                owner = OWNERS[late_write.owner]
                served = serve(late_write.sent, *objects, owner=owner, bounds=self.bounds)
                yield (
                    self.locks.number(served.lock),
                    self.counters.number(served.counter),
                    late_write,
                )

    # --- pruning ----------------------------------------------------------------------------------

    def _pruned(self, parts: list[int]) -> World:
        """Drop late writes that can never land, and landings that no client awaits."""
        if parts[LATE_WRITES]:
            key = (
                parts[LATE_WRITES],
                parts[LOCK],
                parts[COUNTER],
                parts[LEFT] % JUMP >= OPERATOR_ACTION,
            )
            alive = self._alive.get(key)
            if alive is None:
                alive = self._alive[key] = self._live_late_writes(*key)
            parts[LATE_WRITES] = alive
        if parts[LOG]:
            log_key = (parts[LOG], *parts[FIRST:])
            awaited = self._awaited.get(log_key)
            if awaited is None:
                awaited = self._awaited[log_key] = self._landings_awaited(*log_key)
            parts[LOG] = awaited
        return tuple(parts)

    def _live_late_writes(self, late_writes: int, lock: int, counter: int, deletable: bool) -> int:  # noqa: FBT001
        """Return the late writes that may still land; a replaced version never returns."""
        objects = self.locks.parts[lock], self.counters.parts[counter]
        alive = []
        for late_write in self.late_writes.parts[late_writes]:
            request = late_write.sent.request
            creates = isinstance(request, e.WriteRecord) and isinstance(request.mode, Create)
            if can_land(late_write.sent, *objects) or (creates and deletable):
                alive.append(late_write)
        return self.late_writes.number(tuple(alive))

    def _landings_awaited(self, log: int, *names: int) -> int:
        states = [self.clients.parts[name].state for name in names]
        nonces = {one.sent.record.nonce for one in states if one.phase in AWAITING and one.sent}
        awaited = [one for one in self.logs.parts[log] if one.granted or one.nonce in nonces]
        # Of several ordered grants at the start, only the last matters.
        while len(awaited) > 1 and awaited[0].granted and awaited[1].granted:
            del awaited[0]
        return self.logs.number(tuple(awaited))

    # --- others -----------------------------------------------------------------------------------

    def _by_others(self, world: World, mentions: int, found_worlds: Successors) -> None:
        left = world[LEFT]
        if left % OPERATOR_ACTION >= JAVA:
            java = (world[LOCK], world[TIME], free_nonce(mentions, JAVA_WRITER))
            if java not in self._java:
                lock = self.locks.parts[java[0]]
                writes = external_actors.java_writes(lock, *java[1:], self.bounds)
                self._java[java] = tuple(
                    (description, self.locks.number(to)) for description, to in writes
                )
            for description, to in self._java[java]:
                found_worlds.append((description, self._changed(world, LOCK, to, JAVA)))
        if left % JUMP >= OPERATOR_ACTION:
            action = (world[LOCK], free_nonce(mentions, OPERATOR))
            if action not in self._operator_moves:
                done = external_actors.operator_actions(self.locks.parts[action[0]], action[1])
                self._operator_moves[action] = tuple(
                    (description, self.locks.number(to)) for description, to in done
                )
            spent = OPERATOR_ACTION if left >= OPERATOR_ACTED else OPERATOR_ACTION - OPERATOR_ACTED
            for description, to in self._operator_moves[action]:
                found_worlds.append((description, self._changed(world, LOCK, to, spent)))
        if left % OPERATOR_ACTED >= JUMP:
            for place in range(FIRST, len(world)):
                client = self.clients.parts[world[place]]
                jumped = replace(client, skew_ms=self.bounds.skew_ms - client.skew_ms)
                description = f"{client.state.owner}: its wall clock jumps"
                to = self.clients.number(jumped)
                found_worlds.append((description, self._changed(world, place, to, JUMP)))

    def _changed(self, world: World, place: int, to: int, spent: int) -> World:
        parts = list(world)
        parts[place] = to
        parts[LEFT] -= spent
        return self._pruned(parts)


_Serving = tuple[str, int, int, int, Landing | None]


def small_token_ranges(bounds: Bounds) -> AbstractContextManager[object]:
    """Reserve few tokens at a time, so that ranges run out within a search."""
    return patch.object(acquire, "TOKEN_RANGE", bounds.token_range)
