"""One component at work: events in, durable decisions out, one batch at a time.

The loop takes whatever has arrived, lets the desk decide, makes the decisions durable with one
write, and only then answers. While a write is under way the next batch gathers, so a thousand
callers cost hardly more writes than one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError, Unavailable
from tidelock.base.ids import IdSource
from tidelock.base.limits import (
    EVENTS_KEPT_MAX,
    JOURNAL_BATCH_ENTRIES_MAX,
    JOURNAL_CHECKPOINT_EVERY,
    MARGIN_MS_MIN,
    MARGIN_SHARE,
    REQUESTS_PENDING_MAX,
    TTL_MS_MIN,
)
from tidelock.base.metrics import Metrics
from tidelock.lockservice import asking as a
from tidelock.lockservice.answers import Deposed, Overloaded
from tidelock.lockservice.desk import Desk
from tidelock.lockservice.entries import Entry, chained, entry_fields
from tidelock.lockservice.gate import Gate
from tidelock.lockservice.journal import Journal, Past

logger = logging.getLogger(__name__)

BEAT_MS = TTL_MS_MIN // 3
"""How often an instance makes sure that it has not been replaced: one look for all its locks."""
_OPEN_TRIES = 20
_PROBE_EVERY_MS = 1_000
_PROBE_TIMEOUT_S = 5.0

Told = Callable[[str], None]
Asked = a.Ask | a.Attach | a.Renew | a.Unlock | a.Force | a.Look


@dataclass(slots=True)
class Cell:
    """The locks of one component. Start it, ask it, stop it; all in one event loop."""

    journal: Journal
    clock: Clock
    ids: IdSource
    gate: Gate | None = None
    metrics: Metrics = field(default_factory=Metrics)
    audit: Callable[[list[Entry]], None] | None = None
    instance: str = ""
    name: str = ""
    """Of the lock store, for the log."""
    outage: str = ""
    """Why the backend, or the store of the journal, does not answer; empty while it does."""
    desk: Desk = field(init=False)
    fallen: TidelockError | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    events: deque[Entry] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT_MAX))
    _proof_ms: int = 0
    _inbox: deque[a.Event] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _grown: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: dict[int, asyncio.Future[a.Verdict]] = field(default_factory=dict)
    _asking: set[int] = field(default_factory=set)
    _told: dict[int, Told] = field(default_factory=dict)
    _handles: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _batches: int = 0
    _deciding: bool = False
    _probe: asyncio.Task[None] | None = None
    _probed_ms: int = 0

    async def start(self) -> None:
        """Read the journal, take it over, and begin to decide.

        Raises: `DataCorrupt`, and what the store raises.
        """
        self.instance = self.instance or self.ids.uuid()
        if self.gate is not None:
            self.gate.listen(self._gate_lost)
        for _ in range(_OPEN_TRIES):
            past = await asyncio.to_thread(self.journal.read)
            self.desk = self._desk_of(past)
            opened = self.desk.open(self.instance, past.last.epoch + 1, self.clock.now())
            if await asyncio.to_thread(self.journal.seal, opened):
                self._proof_ms = self.clock.now().monotonic_ms
                self.events.extend([*past.history, *past.entries])
                if self.audit is not None:
                    # What an instance decided just before it died is missing there so far.
                    self.audit([*past.history, *past.entries])
                self._publish([opened])
                self._spawn(self._run())
                self._spawn(self._beat())
                return
        raise Unavailable(
            f"{self.journal.store.uri}: others take over this journal again and again",
            hint="stop the other instances of the lock service on this place",
        )

    async def stop(self) -> None:
        """Decide what has arrived, write a checkpoint, and end. Grants stay, and expire."""
        if self.fallen is None:
            self._send_away()
            self._end_streams()
            await self._settle()
            self._fall(Unavailable("the lock service is shutting down", hint="ask again later"))
            if not self._deciding:
                await _in_thread(self.journal.checkpoint, self._fold(), self.journal.last)
        self.journal.closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.gate is not None:
            await self.gate.close()

    def handle(self) -> int:
        """Return a name for one caller."""
        return next(self._handles)

    async def ask(self, event: Asked) -> a.Verdict:
        """Return the desk's verdict, once it is durable. A cancelled caller leaves the queue."""
        if self.fallen is not None:
            raise self.fallen
        if len(self._inbox) >= REQUESTS_PENDING_MAX:
            raise Overloaded(f"{REQUESTS_PENDING_MAX} requests are pending", retry_after_ms=1_000)
        future: asyncio.Future[a.Verdict] = asyncio.get_running_loop().create_future()
        self._answers[event.handle] = future
        if isinstance(event, a.Ask):
            self._asking.add(event.handle)
        self.submit(event)
        try:
            return await future
        except asyncio.CancelledError:
            self.submit(a.Leave(event.handle))
            raise

    def listen(self, handle: int, told: Told) -> None:
        """Call `told` with the cause when the lock that `handle` keeps is over."""
        self._told[handle] = told

    def leave(self, handle: int) -> None:
        """Note that the stream behind `handle` has gone."""
        self._told.pop(handle, None)
        self.submit(a.Leave(handle))

    def submit(self, event: a.Event) -> None:
        """Put an event into the next batch."""
        self._inbox.append(event)
        self._wake.set()

    def is_sure(self, ttl_ms: int) -> bool:
        """Tell whether no other instance can have let a lock of this TTL expire yet.

        Another instance gives every grant one TTL from its start, and its start is later than the
        last look that found none (L3, for the service as a whole).
        """
        margin_ms = max(MARGIN_MS_MIN, ttl_ms // MARGIN_SHARE)
        return self.clock.now().monotonic_ms < self._proof_ms + ttl_ms - margin_ms

    async def trouble(self) -> str:
        """Ask what this component rests on, and return why it cannot serve; empty when it can."""
        if self.fallen is not None:
            return self.fallen.message
        if self.gate is not None:
            now_ms = self.clock.now().monotonic_ms
            if self._probe is None or (
                self._probe.done() and now_ms - self._probed_ms >= _PROBE_EVERY_MS
            ):
                self._probed_ms = now_ms
                self._probe = self._spawn(self._ask_backend(self.gate))
            done, _ = await asyncio.wait({self._probe}, timeout=_PROBE_TIMEOUT_S)
            if not done:
                return f"the backend has not answered for {_PROBE_TIMEOUT_S:g} s"
        return self.outage

    async def _ask_backend(self, gate: Gate) -> None:
        try:
            await gate.probe()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
            self._heard(str(error) or type(error).__name__)
        else:
            self._heard()

    def _heard(self, outage: str = "") -> None:
        """Note whether what the component rests on answers; the log tells each change once."""
        if outage and not self.outage:
            logger.warning("the lock store %r does not answer: %s", self.name, outage)
        elif self.outage and not outage:
            logger.warning("the lock store %r answers again", self.name)
        self.outage = outage

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """Yield every entry after number `after`, past ones first, without a gap (V5).

        Raises: `LookupError` when entries after `after` are not kept any more.
        """
        while True:
            grown = self._grown
            if after < self.oldest - 1 or after > self.desk.number:
                raise LookupError(after)
            # A long history is walked once, from the end: followers are near it.
            fresh: list[Entry] = []
            for entry in reversed(self.events):
                if entry.number <= after:
                    break
                fresh.append(entry)
            for entry in reversed(fresh):
                yield entry
                after = entry.number
            if fresh:
                continue
            if self.fallen is not None:
                raise self.fallen
            await grown.wait()

    @property
    def oldest(self) -> int:
        """The number of the oldest entry that a follower can still have."""
        return self.events[0].number if self.events else self.desk.number + 1

    @property
    def durable(self) -> int:
        """The number of the last entry that is durable."""
        return self.events[-1].number if self.events else 0

    async def _run(self) -> None:
        try:
            while True:
                await self._arrival()
                await self._batch()
        except Deposed as error:
            logger.warning("%s", error)
            self._fall(error)
        except Exception as error:
            # Half of a batch may have been decided: nothing this desk says can be trusted.
            logger.exception("the lock service cannot go on")
            self._fall(Unavailable(f"the lock service failed: {error}", hint="restart it"))

    async def _arrival(self) -> None:
        """Wait for an event, or for the next moment at which a grant expires."""
        if self._inbox:
            return
        self._wake.clear()
        deadline_ms = self.desk.next_deadline_ms()
        pause_s = None
        if deadline_ms is not None:
            pause_s = max(0, deadline_ms - self.clock.now().monotonic_ms) / 1000
        try:
            await asyncio.wait_for(self._wake.wait(), pause_s)
        except TimeoutError:
            self._inbox.append(a.Tick())

    async def _batch(self) -> None:
        outputs: list[a.Output] = []
        entries: list[Entry] = []
        # A deadline that has passed is decided before what arrived after it.
        now = self.clock.now()
        deadline_ms = self.desk.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now.monotonic_ms:
            self._inbox.appendleft(a.Tick())
        while self._inbox and len(entries) < JOURNAL_BATCH_ENTRIES_MAX:
            for output in self.desk.hear(self._inbox.popleft(), now):
                if isinstance(output, a.Record):
                    entries.append(output.entry)
                else:
                    outputs.append(output)
        if entries:
            self._deciding = True
            sent_ms = self.clock.now().monotonic_ms
            await asyncio.to_thread(self.journal.append, entries)
            self._proof_ms = sent_ms
            self.metrics.count("lockservice.journal.batches")
            self.metrics.time("lockservice.journal.write", self.clock.now().monotonic_ms - sent_ms)
            self._publish(entries)
        elif outputs:
            # V1: an answer that writes nothing, such as a renewal, is good only from an instance
            # that nobody has replaced; one look vouches for the whole batch.
            sent_ms = self.clock.now().monotonic_ms
            await asyncio.to_thread(self.journal.prove)
            self._proof_ms = sent_ms
        self._deciding = False
        for output in outputs:
            self._perform(output)
        if entries:
            self._batches += 1
            if self._batches % JOURNAL_CHECKPOINT_EVERY == 0:
                # Here the desk is exactly what the journal says; later it runs ahead of it.
                at, fields = self.journal.last, self._fold()
                self._spawn(_in_thread(self.journal.checkpoint, fields, at))

    def _perform(self, output: a.Output) -> None:
        match output:
            case a.Reply(handle, verdict):
                self._reply(handle, verdict)
            case a.Tell(handle, cause):
                told = self._told.pop(handle, None)
                if told is not None:
                    told(cause)
            case a.Take(key, ttl_ms, immediate) if self.gate is not None:
                self._spawn(self._take(key, ttl_ms, immediate=immediate))
            case a.GiveBack(key, by_force) if self.gate is not None:
                self.gate.give_back(key, by_force=by_force)
            case _:
                raise AssertionError(output)

    def _reply(self, handle: int, verdict: a.Verdict) -> None:
        future = self._answers.pop(handle, None)
        asked = handle in self._asking
        self._asking.discard(handle)
        if isinstance(verdict, a.Yes):
            self.desk.started(verdict.granted, self.clock.now())
        if future is not None and not future.done():
            future.set_result(verdict)
        elif isinstance(verdict, a.Yes) and asked:
            self.submit(a.Unheard(verdict.granted.key, verdict.granted.lock_id))

    async def _take(self, key: str, ttl_ms: int, *, immediate: bool) -> None:
        assert self.gate is not None
        try:
            # The backend's lease is renewed every so often, and must outlive the TTL of a client
            # that was told just before a crash.
            token = await self.gate.take(key, ttl_ms * 5 // 4, immediate=immediate)
        except TidelockError as error:
            self._heard(str(error))
            if not immediate:
                await asyncio.sleep(BEAT_MS / 1000)
            self.submit(a.NotTaken(key, str(error)))
            return
        except Exception as error:
            # A bug in a provider must not leave those in the queue without an answer.
            logger.exception("the provider failed")
            self.submit(a.NotTaken(key, f"internal error: {type(error).__name__}"))
            return
        self._heard()
        self.submit(a.NotTaken(key) if token is None else a.Taken(key, token))

    def _gate_lost(self, key: str, cause: str) -> None:
        self.submit(a.Lose(key, "", cause))

    async def _beat(self) -> None:
        """Make sure, again and again, that no other instance has taken over."""
        while self.fallen is None:
            await asyncio.sleep(BEAT_MS / 1000)
            sent_ms = self.clock.now().monotonic_ms
            if sent_ms - self._proof_ms < BEAT_MS:
                continue
            self.metrics.count("lockservice.beats")
            try:
                sealed = await asyncio.to_thread(self.journal.is_sealed)
            except TidelockError as error:
                if self.gate is None:
                    self._heard(str(error))
                self._doubt(error)
                continue
            if sealed:
                self._fall(self.journal.deposed())
                return
            self._proof_ms = max(self._proof_ms, sent_ms)
            if self.gate is None:
                self._heard()

    def _doubt(self, error: TidelockError) -> None:
        """L7: tell those whose lock another instance might have let expire by now."""
        for held in list(self.desk.grants()):
            granted, handle = held.granted, held.handle
            if handle is None or self.is_sure(granted.ttl_ms):
                continue
            told = self._told.pop(handle, None)
            if told is not None:
                cause = f"the service cannot reach its store: {error}"
                told(cause)
                self.submit(a.Lose(granted.key, granted.lock_id, cause))

    def _fall(self, error: TidelockError) -> None:
        """Answer everybody, and decide nothing more."""
        self.fallen = self.fallen or error
        self.ended.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)
        self._answers.clear()
        for told in list(self._told.values()):
            told(error.message)
        self._told.clear()
        self._grown.set()

    def _publish(self, entries: list[Entry]) -> None:
        self.events.extend(entries)
        for entry in entries:
            self.metrics.count(f"lockservice.{type(entry.decision).__name__.lower()}")
        if self.audit is not None:
            self.audit(entries)
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def _desk_of(self, past: Past) -> Desk:
        desk = Desk(self.ids, gated=self.gate is not None)
        desk.number, desk.hash = past.number, past.hash
        for granted, since_epoch_ms in past.grants:
            desk.restore_held(granted, since_epoch_ms)
        for entry in past.entries:
            desk.restore(entry)
        return desk

    def _fold(self) -> dict[str, object]:
        grants = [
            entry_fields(chained(number, held.since_epoch_ms, held.granted, ""))
            for number, held in enumerate(self.desk.grants())
        ]
        return {"number": self.desk.number, "hash": self.desk.hash, "grants": grants}

    def _send_away(self) -> None:
        """Answer those who wait, so that nothing that is given back now goes to one of them."""
        ending = Unavailable("the lock service is shutting down", hint="ask again later")
        for handle, future in self._answers.items():
            if self.desk.is_waiting(handle) and not future.done():
                future.set_exception(ending)
                self.submit(a.Leave(handle))

    def _end_streams(self) -> None:
        """Give back what only a stream of this instance kept; what lingers can be taken on."""
        for held in list(self.desk.grants()):
            if held.handle is not None and not held.granted.linger_ms:
                told = self._told.pop(held.handle, None)
                if told is not None:
                    told("the lock service is shutting down")
                self.submit(a.Leave(held.handle))

    async def _settle(self) -> None:
        """Let the loop finish what has arrived."""
        for _ in range(200):
            if (not self._inbox and not self._deciding) or self.fallen is not None:
                return
            await asyncio.sleep(0.01)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _in_thread(work: Callable[..., None], *args: object) -> None:
    try:
        await asyncio.to_thread(work, *args)
    except TidelockError as error:
        logger.warning("a checkpoint was not written: %s", error)
