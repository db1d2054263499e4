"""The lock service's decisions: who holds what, who waits, and what follows from an event. Pure.

The desk is told what happened and answers what to do. Its state runs ahead of the journal by the
batch under way; nobody outside sees an answer before the entries it rests on are durable.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from tidelock.base.clock import Now
from tidelock.base.ids import IdSource
from tidelock.base.limits import (
    BACKEND_OUTAGE_MS_MAX,
    GRANTS_PER_PRINCIPAL_MAX,
    WAITERS_MAX,
    WAITERS_PER_RESOURCE_MAX,
)
from tidelock.lockservice import asking as a
from tidelock.lockservice.entries import (
    NO_HASH,
    Decision,
    End,
    Ended,
    Entry,
    Granted,
    Mode,
    Opened,
    Retimed,
    chained,
)
from tidelock.lockservice.queues import Queues

REFUSAL_FRESH_MS = 1_000
"""How long an answer of the backend that another has a lock is repeated. It is asked twice as often
for those who wait."""

SPENT_KEPT = 4_096
"""Idempotency keys of ended grants that are remembered, the latest ones."""


@dataclass(slots=True)
class Held:
    """A grant that is not over. `expires_ms` None: somebody keeps it alive."""

    granted: Granted
    since_epoch_ms: int
    expires_ms: int | None = None
    handle: int | None = None
    adopted: bool = False


class Desk:
    """All locks of one component. With `gated` a backend must agree to each grant."""

    def __init__(self, ids: IdSource, *, gated: bool = False) -> None:
        """Start with nothing granted."""
        self._ids = ids
        self._gated = gated
        self._healthy = True
        self.number = 0
        self.hash = NO_HASH
        self.held: dict[str, Held] = {}
        self._queues = Queues()
        self._streams: dict[int, str] = {}
        self._deadlines: list[tuple[int, str, str]] = []
        self._spent: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._shares: dict[str, int] = {}
        self._silent: dict[str, tuple[int, str]] = {}
        self._out: list[a.Output] = []

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._queues)

    def is_waiting(self, handle: int) -> bool:
        """Tell whether the caller behind `handle` waits for a lock."""
        return self._queues.is_waiting(handle)

    def hear(self, event: a.Event, now: Now) -> list[a.Output]:
        """Return what follows from `event` at `now`."""
        self._out = []
        match event:
            case a.Ask():
                self._ask(event, now)
            case a.Attach():
                self._attach(event)
            case a.Renew():
                self._renew(event, now)
            case a.Unlock():
                self._unlock(event, now)
            case a.Force():
                self._force(event, now)
            case a.Leave(handle):
                self._leave(handle, now)
            case a.Taken() | a.NotTaken() | a.Lose() | a.Unheard():
                self._hear_backend(event, now)
            case a.Look():
                self._look(event, now)
            case a.Health(healthy):
                self._health(now, healthy=healthy)
            case a.Tick():
                self._tick(now)
            case _:
                assert_never(event)
        return self._out

    def _hear_backend(self, event: a.Taken | a.NotTaken | a.Lose | a.Unheard, now: Now) -> None:
        match event:
            case a.Unheard(key, lock_id):
                self._unheard(key, lock_id, now)
            case a.Taken(key, token):
                self._taken(key, token, now)
            case a.NotTaken(key, cause):
                self._not_taken(key, cause, now)
            case a.Lose(key, lock_id, cause):
                self._lose(key, lock_id, cause, now)

    def started(self, granted: Granted, now: Now) -> None:
        """Count the TTL of a grant from the moment its holder is told, never from before."""
        held = self._of(granted.key, granted.lock_id)
        is_left = granted.mode is Mode.TIMED or (granted.mode is Mode.KEPT and not self._healthy)
        if held is not None and is_left:
            self._expire_at(held, now.monotonic_ms + granted.ttl_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next grant expires, by the monotonic clock."""
        while self._deadlines:
            at_ms, key, lock_id = self._deadlines[0]
            held = self._of(key, lock_id)
            if held is not None and held.expires_ms == at_ms:
                return at_ms
            heapq.heappop(self._deadlines)
        return None

    def restore(self, entry: Entry) -> None:
        """Take in an entry of the past, the oldest first."""
        self.number, self.hash = entry.number, entry.hash
        match entry.decision:
            case Granted() as granted:
                self._hold(Held(granted, entry.at_epoch_ms, adopted=True))
            case Retimed(key, lock_id, ttl_ms):
                held = self._of(key, lock_id)
                if held is not None:
                    held.granted = replace(held.granted, ttl_ms=ttl_ms)
            case Ended(key, lock_id):
                if self._of(key, lock_id) is not None:
                    self._drop(key)
            case Opened():
                pass
            case _:
                assert_never(entry.decision)

    def restore_held(self, granted: Granted, since_epoch_ms: int) -> None:
        """Take in a grant from a checkpoint."""
        self._hold(Held(granted, since_epoch_ms, adopted=True))

    def open(self, instance: str, epoch: int, now: Now) -> Entry:
        """Take over: V4, every grant lives on for one full TTL, and nothing is granted twice.

        No clock of the instance before is trusted: a TTL counted from here ends later than one
        counted from any moment at which its holder was told.
        """
        for held in self.held.values():
            self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)
        self._out = []
        return self._record(Opened(instance, epoch), now)

    def grants(self) -> Iterable[Held]:
        """Return every grant that is not over."""
        return self.held.values()

    def _ask(self, ask: a.Ask, now: Now) -> None:
        held, queues = self.held.get(ask.key), self._queues
        if ask.request_id and self._is_repeated(ask, held):
            return
        if self._shares.get(ask.principal, 0) >= GRANTS_PER_PRINCIPAL_MAX:
            self._reply(ask.handle, a.Full(f"{GRANTS_PER_PRINCIPAL_MAX} locks are held"))
        elif held is None and ask.key not in queues and not self._gated:
            self._grant(ask, 0, now)
        elif ask.immediate and (no := self._no(ask.key, held, now)) is not None:
            # Not even when the lock is about to be granted to somebody: FIFO has no side door.
            self._reply(ask.handle, no)
        elif queues.length(ask.key) >= WAITERS_PER_RESOURCE_MAX:
            self._reply(ask.handle, a.Full(f"{WAITERS_PER_RESOURCE_MAX} wait for the resource"))
        elif len(queues) >= WAITERS_MAX:
            self._reply(ask.handle, a.Full(f"{WAITERS_MAX} requests wait"))
        else:
            queues.join(ask)
            if held is None:
                self._take(ask.key)

    def _no(self, key: str, held: Held | None, now: Now) -> a.Verdict | None:
        """Return why a lock cannot be had at once; None if that is not known.

        While the backend is asked for those who wait, nobody knows whether it answers: whoever will
        not wait hears what it says to them.
        """
        if held is not None:
            return a.Locked(held.granted)
        if key not in self._queues:
            return None
        if key in self._silent:
            return a.Failed(self._silent[key][1])
        refused_ms = self._queues.refused_ms(key)
        fresh = refused_ms is not None and now.monotonic_ms - refused_ms <= REFUSAL_FRESH_MS
        return a.Locked(None) if fresh or not self._gated else None

    def _is_repeated(self, ask: a.Ask, held: Held | None) -> bool:
        """L12: the same request again is the same grant, or the same place in the queue."""
        if held is not None and _same_request(held.granted, ask):
            if held.granted.mode is Mode.STREAM:
                self._bind(held, ask.handle)
            elif held.granted.mode is Mode.KEPT and self._healthy and not self._is_stranded(held):
                held.adopted, held.expires_ms = False, None
            self._reply(ask.handle, a.Yes(held.granted, held.since_epoch_ms))
            return True
        if (ask.principal, ask.key, ask.request_id) in self._spent:
            self._reply(ask.handle, a.Spent())
            return True
        for handle in self._queues.same_request(ask.key, ask.principal, ask.request_id):
            self._queues.replace(handle, ask)
            self._reply(handle, a.Spent())
            return True
        return False

    def _is_stranded(self, held: Held) -> bool:
        """Tell whether the backend's lock belongs to an instance that is gone: it will expire."""
        return self._gated and held.adopted

    def _attach(self, ask: a.Attach) -> None:
        held = self._of(ask.key, ask.lock_id)
        if held is None or not self._is_alive(held, ask.principal):
            self._reply(ask.handle, a.Missing())
            return
        if held.granted.mode is not Mode.STREAM:
            self._reply(ask.handle, a.Foreign())
            return
        self._bind(held, ask.handle)
        self._reply(ask.handle, a.Yes(held.granted, held.since_epoch_ms))

    def _renew(self, ask: a.Renew, now: Now) -> None:
        held = self._of(ask.key, ask.lock_id)
        if held is None or not self._is_alive(held, ask.principal):
            self._reply(ask.handle, a.Missing())
            return
        granted = held.granted
        # A backend was told how long the lock must outlive this process, so no longer than that.
        ttl_ms = min(ask.ttl_ms, granted.ttl_ms) if self._gated else ask.ttl_ms
        if ttl_ms not in (0, granted.ttl_ms):
            held.granted = replace(granted, ttl_ms=ttl_ms)
            self._record(Retimed(ask.key, ask.lock_id, ttl_ms), now)
        held.adopted = False
        if granted.mode is Mode.KEPT and self._healthy:
            held.expires_ms = None
        elif held.expires_ms is not None:
            self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)
        self._reply(ask.handle, a.Yes(held.granted, held.since_epoch_ms))

    def _is_alive(self, held: Held, principal: str) -> bool:
        return held.granted.principal == principal and not self._is_stranded(held)

    def _unlock(self, ask: a.Unlock, now: Now) -> None:
        if ask.request_id:
            self._call_off(ask)
        held = self.held.get(ask.key)
        if held is None:
            self._reply(ask.handle, a.Missing())
            return
        granted = held.granted
        if not _is_named(granted, ask) or granted.principal != ask.principal:
            self._reply(ask.handle, a.Foreign())
            return
        self._end(held, End.RELEASED, now, by=ask.principal)
        self._reply(ask.handle, a.Done(granted))
        self._next(ask.key, now)

    def _call_off(self, ask: a.Unlock) -> None:
        """L5: what this request asked for must not be granted any more, however late it arrives."""
        self._spend(ask.principal, ask.key, ask.request_id)
        for handle in self._queues.same_request(ask.key, ask.principal, ask.request_id):
            self._queues.leave(handle)
            self._reply(handle, a.Spent())

    def _force(self, ask: a.Force, now: Now) -> None:
        held = self.held.get(ask.key)
        if held is None:
            if self._gated:
                # The backend may know a holder that is not one of ours.
                self._out.append(a.GiveBack(ask.key, by_force=True))
                self._reply(ask.handle, a.Done())
            else:
                self._reply(ask.handle, a.Missing())
            return
        self._end(held, End.FORCED, now, by=ask.principal, cause=f"forced by {ask.principal}")
        self._reply(ask.handle, a.Done(held.granted))
        self._next(ask.key, now)

    def _leave(self, handle: int, now: Now) -> None:
        if self._queues.is_waiting(handle):
            self._queues.leave(handle)
            return
        key = self._streams.pop(handle, None)
        held = self.held.get(key) if key is not None else None
        if key is None or held is None or held.handle != handle:
            return
        held.handle = None
        if held.granted.linger_ms:
            self._expire_at(held, now.monotonic_ms + held.granted.linger_ms)
            return
        self._end(held, End.DISCONNECTED, now, by=held.granted.principal)
        self._next(key, now)

    def _taken(self, key: str, token: int, now: Now) -> None:
        ask = self._queues.first(key)
        self._queues.end_taking(key)
        self._silent.pop(key, None)
        if ask is None or key in self.held:
            # Whoever wanted it has left meanwhile.
            self._out.append(a.GiveBack(key))
            return
        self._queues.leave(ask.handle)
        self._grant(ask, token, now)
        for other in self._queues.waiters(key):
            if other.immediate:
                self._queues.leave(other.handle)
                self._reply(other.handle, a.Locked(self.held[key].granted))

    def _not_taken(self, key: str, cause: str, now: Now) -> None:
        self._queues.end_taking(key, refused_ms=None if cause else now.monotonic_ms)
        # Who waits keeps its place through a short outage of the backend; others hear it now.
        too_long = bool(cause) and self._is_silent_too_long(key, cause, now)
        for ask in self._queues.waiters(key):
            if ask.immediate or too_long:
                self._queues.leave(ask.handle)
                self._reply(ask.handle, a.Failed(cause) if cause else a.Locked(None))
        if not cause or key not in self._queues:
            self._silent.pop(key, None)
        if key not in self.held:
            self._take(key)

    def _is_silent_too_long(self, key: str, cause: str, now: Now) -> bool:
        since_ms, _ = self._silent.get(key, (now.monotonic_ms, ""))
        self._silent[key] = since_ms, cause
        return now.monotonic_ms - since_ms >= BACKEND_OUTAGE_MS_MAX

    def _unheard(self, key: str, lock_id: str, now: Now) -> None:
        """Leave a grant to expire whose holder may never have heard of it; it may ask again."""
        held = self._of(key, lock_id)
        if held is None or held.granted.mode is Mode.STREAM:
            return
        if held.granted.request_id:
            self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)
            return
        # Nobody knows its id, so nobody else can give it back.
        self._end(held, End.DISCONNECTED, now, by=held.granted.principal)
        self._next(key, now)

    def _lose(self, key: str, lock_id: str, cause: str, now: Now) -> None:
        held = self.held.get(key)
        if held is not None and lock_id in ("", held.granted.lock_id):
            self._end(held, End.LOST, now, cause=cause)
            self._next(key, now)

    def _look(self, ask: a.Look, now: Now) -> None:
        held = self.held.get(ask.key)
        left_ms = None
        if held is not None and held.expires_ms is not None:
            left_ms = max(0, held.expires_ms - now.monotonic_ms)
        seen = a.Seen(
            held.granted if held else None,
            held.since_epoch_ms if held else 0,
            left_ms,
            self._queues.length(ask.key),
            self.number,
        )
        self._reply(ask.handle, seen)

    def _health(self, now: Now, *, healthy: bool) -> None:
        if healthy == self._healthy:
            return
        self._healthy = healthy
        for held in self.held.values():
            if held.granted.mode is not Mode.KEPT or held.adopted:
                continue
            if healthy:
                held.expires_ms = None
            else:
                self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)

    def _tick(self, now: Now) -> None:
        while (at_ms := self.next_deadline_ms()) is not None and at_ms <= now.monotonic_ms:
            _, key, _ = heapq.heappop(self._deadlines)
            held = self.held[key]
            disconnected = held.granted.mode is Mode.STREAM and not held.adopted
            how = End.DISCONNECTED if disconnected else End.EXPIRED
            self._end(held, how, now, cause="its time to live is over")
            self._next(key, now)

    def _next(self, key: str, now: Now) -> None:
        """Give a free resource to whoever waits longest."""
        ask = self._queues.first(key)
        if ask is None or key in self.held:
            return
        if self._gated:
            self._take(key)
            return
        self._queues.leave(ask.handle)
        self._grant(ask, 0, now)

    def _take(self, key: str) -> None:
        begun = self._queues.begin_taking(key)
        if begun is not None:
            first, anew = begun
            # The first answer comes at once, for those who will not wait.
            self._out.append(a.Take(key, first.ttl_ms, first.immediate or anew))

    def _grant(self, ask: a.Ask, token: int, now: Now) -> None:
        granted = Granted(
            key=ask.key,
            lock_id=self._ids.uuid(),
            token=token or self.number + 1,
            principal=ask.principal,
            owner=ask.owner,
            ttl_ms=ask.ttl_ms,
            mode=ask.mode,
            linger_ms=ask.linger_ms,
            request_id=ask.request_id,
        )
        held = Held(granted, now.wall_epoch_ms)
        self._hold(held)
        if ask.mode is Mode.STREAM:
            self._bind(held, ask.handle)
        self._record(granted, now)
        self._reply(ask.handle, a.Yes(granted, held.since_epoch_ms))

    def _end(self, held: Held, how: End, now: Now, *, by: str = "", cause: str = "") -> None:
        granted = held.granted
        self._drop(granted.key)
        self._record(Ended(granted.key, granted.lock_id, granted.token, how, by, cause), now)
        if self._gated:
            self._out.append(a.GiveBack(granted.key, by_force=how is End.FORCED))
        if held.handle is not None:
            self._streams.pop(held.handle, None)
            self._out.append(a.Tell(held.handle, cause or how.value))

    def _hold(self, held: Held) -> None:
        principal = held.granted.principal
        self._shares[principal] = self._shares.get(principal, 0) + 1
        self.held[held.granted.key] = held

    def _drop(self, key: str) -> None:
        granted = self.held.pop(key).granted
        self._shares[granted.principal] -= 1
        if not self._shares[granted.principal]:
            del self._shares[granted.principal]
        if granted.request_id:
            self._spend(granted.principal, key, granted.request_id)

    def _spend(self, principal: str, key: str, request_id: str) -> None:
        self._spent[principal, key, request_id] = None
        if len(self._spent) > SPENT_KEPT:
            self._spent.popitem(last=False)

    def _bind(self, held: Held, handle: int) -> None:
        """Let the stream behind `handle` keep the grant alive; an older one hears that."""
        if held.handle is not None and held.handle != handle:
            self._streams.pop(held.handle, None)
            self._out.append(a.Tell(held.handle, "another stream of the same client took it on"))
        held.handle = handle
        held.expires_ms = None
        held.adopted = False
        self._streams[handle] = held.granted.key

    def _expire_at(self, held: Held, at_ms: int) -> None:
        held.expires_ms = at_ms
        heapq.heappush(self._deadlines, (at_ms, held.granted.key, held.granted.lock_id))

    def _of(self, key: str, lock_id: str) -> Held | None:
        held = self.held.get(key)
        return held if held is not None and held.granted.lock_id == lock_id else None

    def _record(self, decision: Decision, now: Now) -> Entry:
        entry = chained(self.number + 1, now.wall_epoch_ms, decision, self.hash)
        self.number, self.hash = entry.number, entry.hash
        self._out.append(a.Record(entry))
        return entry

    def _reply(self, handle: int, verdict: a.Verdict) -> None:
        self._out.append(a.Reply(handle, verdict))


def _same_request(granted: Granted, ask: a.Ask) -> bool:
    return (granted.principal, granted.request_id) == (ask.principal, ask.request_id)


def _is_named(granted: Granted, ask: a.Unlock) -> bool:
    if ask.request_id:
        return granted.request_id == ask.request_id
    return granted.lock_id == ask.lock_id if ask.lock_id else granted.owner == ask.owner != ""
