"""Every world that may follow a world: what the clients, the network, the store, a Java writer,
an operator and time may do next.

A world is a tuple of numbers: time, what is left of the bounds, the lock object, the token
counter, the strays, the landed grants, and one number for each client.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

from tidelock.base.outcome import Landed
from tidelock.lock import acquiring
from tidelock.lock import events as e
from tidelock.lock.record import Counter, Record
from tidelock.lock.state import State
from tidelock.store.contract import Create, Match, PutMode, Refused
from tidelock.testing.explore import checks
from tidelock.testing.explore.bounds import DRIFT_MS, EPOCH_MS, INSTANTS_MS, OWNERS, Bounds
from tidelock.testing.explore.checks import Broken
from tidelock.testing.explore.clients import AWAITING, Move, Steps
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
TIME, LEFT, LOCK, COUNTER, STRAYS, LOG, FIRST = range(7)

# What is left of the bounds, in one number: three decimal places, and whether an operator meddled.
FAULT, JAVA, MEDDLING, JUMP, MEDDLED = 1, 10, 100, 1_000, 10_000

JAVA_WRITER = WRITERS.index("J")
OPERATOR = WRITERS.index("O")
SPOILED = Stored("spoiled", None)


class Worlds:
    """The worlds within `bounds`, and the parts they are made of."""

    def __init__(self, bounds: Bounds) -> None:
        """Make the parts of the first worlds."""
        self.bounds = bounds
        self.steps = Steps(bounds)
        self._disorderly = MEDDLED if bounds.exclusive else 0
        self.fired: Tally[str] = Tally()
        self.clients: Names[Client] = Names()
        self.locks: Names[Stored | None] = Names()
        self.counters: Names[StoredCounter | None] = Names()
        self.strays: Names[tuple[Stray, ...]] = Names()
        self.logs: Names[tuple[Landing, ...]] = Names()
        self._moves: dict[tuple[int, int, int], tuple[tuple[int, Move], ...]] = {}
        self._served: dict[tuple[int, int, int], tuple[int, int, int, Landing | None, str]] = {}
        self._landed: dict[tuple[int, int, int], tuple[tuple[int, int, Stray], ...]] = {}
        self._settled: dict[tuple[int, int, int, bool], int] = {}
        self._java: dict[tuple[int, int, int], tuple[tuple[str, int], ...]] = {}
        self._operator: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}
        self._jumps: dict[int, int] = {}
        self._believes: dict[tuple[int, int], bool] = {}
        self._awaits: dict[int, str] = {}
        self._logs_kept: dict[tuple[int, ...], int] = {}

    # --- the beginning ----------------------------------------------------------------------------

    def firsts(self) -> Iterator[World]:
        """Yield the worlds in which everything begins."""
        b = self.bounds
        left = b.faults * FAULT + b.java_writes * JAVA + b.meddlings * MEDDLING
        left += b.clock_jumps * JUMP
        for start in b.starts:
            lock, counter = self._start(start)
            for skews in b.skews_ms():
                clients = (
                    self.clients.number(
                        Client(State(owner, b.lease), left=b.operations, skew_ms=skew)
                    )
                    for owner, skew in zip(OWNERS, skews, strict=False)
                )
                none = self.strays.number(()), self.logs.number(())
                yield (0, left, lock, counter, *none, *clients)

    def _start(self, start: str) -> tuple[int, int]:
        counter = StoredCounter("Z:0", Counter(self.bounds.token_range, "Z:0"))
        until = EPOCH_MS + self.bounds.validity_ms
        ours = Record(False, until, "Z", token=1, token_ceiling=self.bounds.token_range, nonce="Z:1")
        starts: dict[str, tuple[Stored | None, StoredCounter | None]] = {
            "absent": (None, None),
            "free": (Stored("Z:1", replace(ours, expired=True)), counter),
            "held": (Stored("Z:1", ours), counter),
            "java": (Stored("Z:1", Record(True, until, "J")), counter),
            "spoiled": (SPOILED, None),
        }
        lock, tokens = starts[start]
        return self.locks.number(lock), self.counters.number(tokens)

    # --- what may happen next ---------------------------------------------------------------------

    def after(self, world: World) -> list[tuple[str, World]]:
        """Return every world that may follow `world`, and what leads there."""
        follows: list[tuple[str, World]] = []
        if world[TIME] < self.bounds.time_steps:
            follows.append(("time passes", (world[TIME] + 1, *world[1:])))
        mentions = self._mentions(world)
        for place in range(FIRST, len(world)):
            self._by_client(world, place, mentions, follows)
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

    # --- clients and their requests ---------------------------------------------------------------

    def _by_client(
        self, world: World, place: int, mentions: int, follows: list[tuple[str, World]]
    ) -> None:
        name = world[place]
        owner = place - FIRST
        key = (name, world[TIME], free_nonce(mentions, owner))
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
                parts[STRAYS] = self._with_stray(world[STRAYS], move.stray)
            if move.granted:
                self._grant(world, parts, owner, move)
            if move.renewed:
                self._renewed(world, owner, move)
            follows.append((move.says, self._settle(parts)))
        served = self._serve(world, place)
        if served:
            follows.append(served)

    def _client_moves(
        self, name: int, time: int, nonce: int, owner: int
    ) -> tuple[tuple[int, Move], ...]:
        client = self.clients.parts[name]
        moves = []
        for move in self.steps.moves(client, owner, time, nonce):
            to = self.clients.number(move.client)
            if to != name:
                says = f"{client.state.owner}: {move.says}"
                moves.append((to, replace(move, says=says)))
        return tuple(moves)

    def _serve(self, world: World, place: int) -> tuple[str, World] | None:
        """The client's request reaches the store, and the store acts on it."""
        name = world[place]
        key = (name, world[LOCK], world[COUNTER])
        served = self._served.get(key)
        if served is None:
            flight = self.clients.parts[name].flight
            if not isinstance(flight, Asked):
                return None
            served = self._served[key] = self._act(name, flight, world)
        lock, counter, to, landing, says = served
        parts = list(world)
        parts[LOCK], parts[COUNTER], parts[place] = lock, counter, to
        if landing:
            log = (*self.logs.parts[world[LOG]], landing)
            parts[LOG] = self.logs.number(log)
        return says, self._settle(parts)

    def _act(
        self, name: int, asked: Asked, world: World
    ) -> tuple[int, int, int, Landing | None, str]:
        client = self.clients.parts[name]
        owner = client.state.owner
        lock, counter = self.locks.parts[world[LOCK]], self.counters.parts[world[COUNTER]]
        landing = None
        answer: Landed | Refused | e.Reading
        match asked.request:
            case e.ReadRecord():
                answer, says = _reading(lock), "the record is read"
            case e.ReadCounter():
                answer = e.FoundCounter(counter.version, counter.counter) if counter else e.Absent()
                says = "the counter is read"
            case e.WriteRecord(mode, record):
                assert asked.role is not None
                says = f"the {asked.role.value} is refused"
                answer = Refused()
                if _matches(mode, lock):
                    says = f"the {asked.role.value} of token {record.token} lands"
                    self._check_landing(owner, says, asked, lock)
                    lock, answer = Stored(record.nonce, record), Landed(record.nonce)
                    client = _noting_release(client, asked)
                    if asked.role is Role.GRANT:
                        landing = Landing(OWNERS.index(owner), record.nonce, record.token)
            case e.WriteCounter(mode, value):
                answer, says = Refused(), "the token range is refused"
                if _matches(mode, counter):
                    says = f"the token range up to {value.ceiling} lands"
                    checks.counter_landing(counter, asked)
                    counter, answer = StoredCounter(value.nonce, value), Landed(value.nonce)
        to = self.clients.number(replace(client, flight=Answered(answer)))
        return (
            self.locks.number(lock),
            self.counters.number(counter),
            to,
            landing,
            f"{owner}: {says}",
        )

    def _check_landing(
        self, owner: str, says: str, asked: Asked, lock: Stored | None
    ) -> None:
        try:
            checks.landing(asked, lock, owner, self.bounds)
        except Broken as broken:
            broken.move = f"{owner}: {says}"
            raise

    # --- grants -----------------------------------------------------------------------------------

    def _grant(self, world: World, parts: list[int], owner: int, move: Move) -> None:
        log = self.logs.parts[world[LOG]]
        places = [at for at, one in enumerate(log) if one.nonce == move.granted]
        mine = places[0] if places else None
        counter = self.counters.parts[world[COUNTER]]
        orderly = world[LEFT] < self._disorderly
        try:
            checks.granted(
                log, mine, ceiling=counter.counter.ceiling if counter else 0, orderly=orderly
            )
            assert mine is not None
            lock = self.locks.parts[world[LOCK]]
            if orderly and (lock is None or lock.version != move.granted):
                raise Broken("L5", "Granted was said of a record that is not there any more")
        except Broken as broken:
            broken.move = move.says
            raise
        believed = replace(log[mine], nonce="", granted=True)
        parts[LOG] = self.logs.number((*log[:mine], believed, *log[mine + 1 :]))

    def _renewed(self, world: World, owner: int, move: Move) -> None:
        lock = self.locks.parts[world[LOCK]]
        if world[LEFT] < self._disorderly and (lock is None or lock.version != move.renewed):
            broken = Broken("L5", "Renewed was said of a record that is not there")
            broken.move = move.says
            raise broken

    def _settle(self, parts: list[int]) -> World:
        """Drop what has no future: strays that cannot land, landings nobody waits for."""
        if parts[STRAYS]:
            meddling = parts[LEFT] % JUMP >= MEDDLING
            key = (parts[STRAYS], parts[LOCK], parts[COUNTER], meddling)
            settled = self._settled.get(key)
            if settled is None:
                settled = self._settled[key] = self._alive(*key)
            parts[STRAYS] = settled
        if parts[LOG]:
            log_key = (parts[LOG], *parts[FIRST:])
            kept = self._logs_kept.get(log_key)
            if kept is None:
                kept = self._logs_kept[log_key] = self._awaited(*log_key)
            parts[LOG] = kept
        return tuple(parts)

    def _awaited(self, log: int, *names: int) -> int:
        waits = set()
        for name in names:
            state = self.clients.parts[name].state
            if state.phase in AWAITING and state.sent:
                waits.add(state.sent.record.nonce)
        kept = [one for one in self.logs.parts[log] if one.granted or one.nonce in waits]
        # Grants in order at the beginning say no more than the last of them.
        while len(kept) > 1 and kept[0].granted and kept[1].granted:
            del kept[0]
        return self.logs.number(tuple(kept))

    # --- strays -----------------------------------------------------------------------------------

    def _with_stray(self, strays: int, stray: Stray) -> int:
        every = {*self.strays.parts[strays], stray}
        return self.strays.number(tuple(sorted(every, key=repr)))

    def _alive(self, strays: int, lock: int, counter: int, meddling: bool) -> int:  # noqa: FBT001
        """Return the strays that may still land: a version that is gone never comes back."""
        alive = []
        for stray in self.strays.parts[strays]:
            request = stray.asked.request
            assert isinstance(request, e.WriteRecord | e.WriteCounter)
            place: Stored | StoredCounter | None = self.counters.parts[counter]
            if isinstance(request, e.WriteRecord):
                place = self.locks.parts[lock]
                if meddling and isinstance(request.mode, Create):
                    alive.append(stray)
                    continue
            if _matches(request.mode, place):
                alive.append(stray)
        return self.strays.number(tuple(alive))

    def _by_strays(self, world: World, follows: list[tuple[str, World]]) -> None:
        key = (world[STRAYS], world[LOCK], world[COUNTER])
        landed = self._landed.get(key)
        if landed is None:
            landed = self._landed[key] = tuple(self._stray_landings(*key))
        for lock, counter, stray in landed:
            parts = list(world)
            parts[LOCK], parts[COUNTER] = lock, counter
            rest = [one for one in self.strays.parts[world[STRAYS]] if one != stray]
            parts[STRAYS] = self.strays.number(tuple(rest))
            place = FIRST + stray.owner
            client = _noting_release(self.clients.parts[world[place]], stray.asked)
            parts[place] = self.clients.number(client)
            role = stray.asked.role.value if stray.asked.role else "write"
            follows.append((f"{OWNERS[stray.owner]}: a late {role} lands", self._settle(parts)))

    def _stray_landings(
        self, strays: int, lock: int, counter: int
    ) -> Iterator[tuple[int, int, Stray]]:
        before, tokens = self.locks.parts[lock], self.counters.parts[counter]
        for stray in self.strays.parts[strays]:
            request = stray.asked.request
            if isinstance(request, e.WriteRecord) and _matches(request.mode, before):
                owner = OWNERS[stray.owner]
                self._check_landing(owner, "a late write lands", stray.asked, before)
                after = Stored(request.record.nonce, request.record)
                yield self.locks.number(after), counter, stray
            if isinstance(request, e.WriteCounter) and _matches(request.mode, tokens):
                checks.counter_landing(tokens, stray.asked)
                value = StoredCounter(request.counter.nonce, request.counter)
                yield lock, self.counters.number(value), stray

    # --- others -----------------------------------------------------------------------------------

    def _by_others(self, world: World, mentions: int, follows: list[tuple[str, World]]) -> None:
        left = world[LEFT]
        if left % MEDDLING >= JAVA:
            java = (world[LOCK], world[TIME], free_nonce(mentions, JAVA_WRITER))
            if java not in self._java:
                self._java[java] = tuple(self._java_writes(*java))
            for says, lock in self._java[java]:
                follows.append((says, self._changed(world, LOCK, lock, JAVA)))
        if left % JUMP >= MEDDLING:
            meddling = (world[LOCK], free_nonce(mentions, OPERATOR))
            if meddling not in self._operator:
                self._operator[meddling] = tuple(self._meddlings(*meddling))
            for says, lock in self._operator[meddling]:
                changed = self._changed(world, LOCK, lock, MEDDLING - MEDDLED)
                follows.append((says, changed))
        if left % MEDDLED >= JUMP:
            for place in range(FIRST, len(world)):
                client = self.clients.parts[world[place]]
                jumped = replace(client, skew_ms=self.bounds.skew_ms - client.skew_ms)
                changed = self._changed(world, place, self.clients.number(jumped), JUMP)
                follows.append((f"{client.state.owner}: its wall clock jumps", changed))

    def _changed(self, world: World, place: int, to: int, cost: int) -> World:
        parts = list(world)
        parts[place] = to
        parts[LEFT] -= cost
        return self._settle(parts)

    def _java_writes(self, lock: int, time: int, nonce: int) -> Iterator[tuple[str, int]]:
        """A Java writer takes a free record, renews or releases its own; three fields each time.

        Its clock is ahead by the drift, the worst within the band. It never reads ours again.
        """
        stored = self.locks.parts[lock]
        wall = EPOCH_MS + INSTANTS_MS[time] + DRIFT_MS
        live = Record(False, wall + self.bounds.validity_ms, "J")
        version = f"J:{nonce}"
        if stored is None:
            yield "Java: takes", self.locks.number(Stored(version, live))
            return
        record = stored.record
        if record is None:
            return
        if record.expired or wall > record.valid_until_epoch_ms + DRIFT_MS:
            yield "Java: takes", self.locks.number(Stored(version, live))
        elif record.owner == "J":
            yield "Java: renews", self.locks.number(Stored(version, live))
            released = replace(record, expired=True)
            yield "Java: releases", self.locks.number(Stored(version, released))

    def _meddlings(self, lock: int, nonce: int) -> Iterator[tuple[str, int]]:
        stored = self.locks.parts[lock]
        if stored is None:
            return
        yield "operator: deletes the lock object", self.locks.number(None)
        if stored.record is None:
            return
        yield "operator: spoils the lock object", self.locks.number(SPOILED)
        if not stored.record.expired:
            version = f"O:{nonce}"
            freed = replace(
                stored.record, expired=True, nonce=version, previous=stored.record.as_previous()
            )
            yield "operator: releases by force", self.locks.number(Stored(version, freed))


def small_ranges(bounds: Bounds) -> AbstractContextManager[object]:
    """Let token ranges run out within a search: take few at a time."""
    return patch.object(acquiring, "TOKEN_RANGE", bounds.token_range)


def _matches(mode: PutMode, place: Stored | StoredCounter | None) -> bool:
    match mode:
        case Create():
            return place is None
        case Match(version):
            return place is not None and place.version == version
        case _:
            return True


def _reading(lock: Stored | None) -> e.Reading:
    if lock is None:
        return e.Absent()
    if lock.record is None:
        return e.Unreadable("not JSON")
    return e.Found(lock.version, lock.record)


def _noting_release(client: Client, asked: Asked) -> Client:
    """Remember that a release of the client's grant landed, if this is one (L6)."""
    grant, request = client.state.grant, asked.request
    if asked.role is not Role.RELEASE or grant is None or not isinstance(request, e.WriteRecord):
        return client
    if request.record.token != grant.record.token:
        return client
    return replace(client, released=True)
