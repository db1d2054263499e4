"""The event loop of one lock store: applies events in batches and makes decisions durable.

Each iteration takes all events that have arrived, applies them to the state machine, writes the
decisions with one journal write, and only then replies. The next batch gathers during the write, so
a thousand callers cost hardly more writes than one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError, Unavailable
from tidelock.core.ids import IdSource
from tidelock.core.limits import (
    EVENTS_KEPT_MAX,
    JOURNAL_BATCH_ENTRIES_MAX,
    JOURNAL_CHECKPOINT_EVERY,
    REQUESTS_PENDING_MAX,
    TTL_MS_MIN,
)
from tidelock.core.telemetry import Metrics
from tidelock.lock.lease import margin_of
from tidelock.lock.server import messages as msg
from tidelock.lock.server.backend_lock import BackendLock
from tidelock.lock.server.entries import JournalEntry, chained, entry_fields, kind_name
from tidelock.lock.server.errors import InstanceFenced, Overloaded
from tidelock.lock.server.journal import JournalHistory, LockJournal
from tidelock.lock.server.state import LockState

logger = logging.getLogger(__name__)

VERIFY_MS = TTL_MS_MIN // 3
"""How often an instance verifies that it was not replaced; one read serves all its locks."""
_OPEN_TRIES = 20
_PROBE_EVERY_MS = 1_000
_PROBE_TIMEOUT_S = 5.0

LostCallback = Callable[[str], None]
ShardRequest = (
    msg.AcquireRequest
    | msg.AttachStream
    | msg.RenewRequest
    | msg.UnlockRequest
    | msg.ForceUnlock
    | msg.InspectRequest
)


@dataclass(slots=True)
class LockShard:
    """The locks of one lock store. All methods run in one event loop."""

    journal: LockJournal
    clock: Clock
    ids: IdSource
    backend: BackendLock | None = None
    metrics: Metrics = field(default_factory=Metrics)
    audit: Callable[[list[JournalEntry]], None] | None = None
    instance: str = ""
    name: str = ""
    """The name of the lock store, for the log."""
    outage: str = ""
    """Why the backend or the journal's store does not answer; empty while it does."""
    state: LockState = field(init=False)
    failure: TidelockError | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    events: deque[JournalEntry] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT_MAX))
    _verified_ms: int = 0
    _inbox: deque[msg.Event] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _appended: asyncio.Event = field(default_factory=asyncio.Event)
    _pending: dict[int, asyncio.Future[msg.Reply]] = field(default_factory=dict)
    _acquiring: set[int] = field(default_factory=set)
    _lost_callbacks: dict[int, LostCallback] = field(default_factory=dict)
    _handles: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _batches: int = 0
    _writing: bool = False
    _probe: asyncio.Task[None] | None = None
    _probed_ms: int = 0

    async def start(self) -> None:
        """Read the journal, take it over, and start to process events. Raises: `DataCorrupt`."""
        self.instance = self.instance or self.ids.uuid()
        if self.backend is not None:
            self.backend.listen(self._on_backend_lost)
        for _ in range(_OPEN_TRIES):
            history = await asyncio.to_thread(self.journal.read)
            self.state = self._restored_state(history)
            opened = self.state.open(self.instance, history.last.epoch + 1, self.clock.now())
            if await asyncio.to_thread(self.journal.seal, opened):
                self._verified_ms = self.clock.now().monotonic_ms
                self.events.extend([*history.earlier_entries, *history.entries])
                if self.audit is not None:
                    # Decisions of an instance that crashed may be missing in the audit file.
                    self.audit([*history.earlier_entries, *history.entries])
                self._publish([opened])
                self._spawn(self._run())
                self._spawn(self._verify_loop())
                return
        raise Unavailable(
            f"{self.journal.store.uri}: other instances keep taking over this journal",
            hint="stop the other instances of the lock service on this store",
        )

    async def stop(self) -> None:
        """Process pending events, write a checkpoint and stop. Grants remain and expire."""
        if self.failure is None:
            self._reject_waiters()
            self._end_streams()
            await self._drain()
            self._fail(Unavailable("the lock service is shutting down", hint="try again later"))
            if not self._writing:
                await _in_thread(
                    self.journal.checkpoint, self._checkpoint_fields(), self.journal.last
                )
        self.journal.closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.backend is not None:
            await self.backend.close()

    def handle(self) -> int:
        return next(self._handles)

    async def request(self, event: ShardRequest) -> msg.Reply:
        """Return the reply to a request once it is durable. A cancelled caller leaves the queue."""
        if self.failure is not None:
            raise self.failure
        if len(self._inbox) >= REQUESTS_PENDING_MAX:
            raise Overloaded(f"{REQUESTS_PENDING_MAX} requests are pending", retry_after_ms=1_000)
        future: asyncio.Future[msg.Reply] = asyncio.get_running_loop().create_future()
        self._pending[event.handle] = future
        if isinstance(event, msg.AcquireRequest):
            self._acquiring.add(event.handle)
        self.submit(event)
        try:
            return await future
        except asyncio.CancelledError:
            self.submit(msg.CallerLeft(event.handle))
            raise

    def listen(self, handle: int, on_lost: LostCallback) -> None:
        """Call `on_lost` with the cause when the lock of the stream `handle` ends."""
        self._lost_callbacks[handle] = on_lost

    def leave(self, handle: int) -> None:
        """Handle the disconnect of the stream `handle`."""
        self._lost_callbacks.pop(handle, None)
        self.submit(msg.CallerLeft(handle))

    def submit(self, event: msg.Event) -> None:
        self._inbox.append(event)
        self._wake.set()

    def holds_lease(self, ttl_ms: int) -> bool:
        """Return whether no other instance can have expired a lock of this TTL yet.

        L3, for the service as a whole: another instance keeps every grant for one TTL from its
        start, and it started after the last verification that found none.
        """
        return self.clock.now().monotonic_ms < self._verified_ms + ttl_ms - margin_of(ttl_ms)

    async def outage_cause(self) -> str:
        """Probe the backend; return why this lock store cannot serve, or an empty string."""
        if self.failure is not None:
            return self.failure.message
        if self.backend is not None:
            now_ms = self.clock.now().monotonic_ms
            if self._probe is None or (
                self._probe.done() and now_ms - self._probed_ms >= _PROBE_EVERY_MS
            ):
                self._probed_ms = now_ms
                self._probe = self._spawn(self._probe_backend(self.backend))
            done, _ = await asyncio.wait({self._probe}, timeout=_PROBE_TIMEOUT_S)
            if not done:
                return f"the backend has not answered for {_PROBE_TIMEOUT_S:g} s"
        return self.outage

    async def _probe_backend(self, backend: BackendLock) -> None:
        try:
            await backend.probe()
        except Exception as error:  # noqa: BLE001 - any error is an outage
            self._set_outage(str(error) or type(error).__name__)
        else:
            self._set_outage()

    def _set_outage(self, outage: str = "") -> None:
        """Record whether the backend or the journal's store answers; log each change once."""
        if outage and not self.outage:
            logger.warning("lock store %r does not answer: %s", self.name, outage)
        elif self.outage and not outage:
            logger.warning("lock store %r answers again", self.name)
        self.outage = outage

    async def follow(self, after: int) -> AsyncIterator[JournalEntry]:
        """Yield every entry after number `after`, past ones first, without gaps (V5).

        Raises: `LookupError` if entries after `after` are no longer retained.
        """
        while True:
            appended = self._appended
            if after < self.oldest - 1 or after > self.state.number:
                raise LookupError(after)
            # Read from the end: followers are close to it.
            fresh: list[JournalEntry] = []
            for entry in reversed(self.events):
                if entry.number <= after:
                    break
                fresh.append(entry)
            for entry in reversed(fresh):
                yield entry
                after = entry.number
            if fresh:
                continue
            if self.failure is not None:
                raise self.failure
            await appended.wait()

    @property
    def oldest(self) -> int:
        """The number of the oldest entry that is retained for followers."""
        return self.events[0].number if self.events else self.state.number + 1

    @property
    def durable(self) -> int:
        return self.events[-1].number if self.events else 0

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_for_events()
                await self._process_batch()
        except InstanceFenced as error:
            logger.warning("%s", error)
            self._fail(error)
        except Exception as error:
            # Half of a batch may have been applied: the state can no longer be trusted.
            logger.exception("the lock service failed")
            self._fail(Unavailable(f"the lock service failed: {error}", hint="restart it"))

    async def _wait_for_events(self) -> None:
        """Wait for an event, or for the next expiry of a grant."""
        if self._inbox:
            return
        self._wake.clear()
        deadline_ms = self.state.next_deadline_ms()
        pause_s = None
        if deadline_ms is not None:
            pause_s = max(0, deadline_ms - self.clock.now().monotonic_ms) / 1000
        try:
            await asyncio.wait_for(self._wake.wait(), pause_s)
        except TimeoutError:
            self._inbox.append(msg.ClockTick())

    async def _process_batch(self) -> None:
        outputs: list[msg.Output] = []
        entries: list[JournalEntry] = []
        # Expiries come before events that arrived after them.
        now = self.clock.now()
        deadline_ms = self.state.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now.monotonic_ms:
            self._inbox.appendleft(msg.ClockTick())
        while self._inbox and len(entries) < JOURNAL_BATCH_ENTRIES_MAX:
            for output in self.state.apply(self._inbox.popleft(), now):
                if isinstance(output, msg.AppendEntry):
                    entries.append(output.entry)
                else:
                    outputs.append(output)
        if entries:
            self._writing = True
            sent_ms = self.clock.now().monotonic_ms
            await asyncio.to_thread(self.journal.append, entries)
            self._verified_ms = sent_ms
            self.metrics.count("lockservice.journal.batches")
            self.metrics.time("lockservice.journal.write", self.clock.now().monotonic_ms - sent_ms)
            self._publish(entries)
        elif outputs:
            # V1: a reply without an entry, such as a renewal, is valid only from the current
            # instance; one read verifies the whole batch.
            sent_ms = self.clock.now().monotonic_ms
            await asyncio.to_thread(self.journal.verify_current)
            self._verified_ms = sent_ms
        self._writing = False
        for output in outputs:
            self._perform(output)
        if entries:
            self._batches += 1
            if self._batches % JOURNAL_CHECKPOINT_EVERY == 0:
                # Only here the state equals the journal; later it runs ahead of it.
                at, fields = self.journal.last, self._checkpoint_fields()
                self._spawn(_in_thread(self.journal.checkpoint, fields, at))

    def _perform(self, output: msg.Output) -> None:
        match output:
            case msg.SendReply(handle, reply):
                self._reply(handle, reply)
            case msg.EndStream(handle, cause):
                callback = self._lost_callbacks.pop(handle, None)
                if callback is not None:
                    callback(cause)
            case msg.AcquireBackendLock(key, ttl_ms, immediate) if self.backend is not None:
                self._spawn(self._acquire_backend(key, ttl_ms, immediate=immediate))
            case msg.ReleaseBackendLock(key, by_force) if self.backend is not None:
                self.backend.release(key, by_force=by_force)
            case _:
                raise AssertionError(output)

    def _reply(self, handle: int, reply: msg.Reply) -> None:
        future = self._pending.pop(handle, None)
        acquiring = handle in self._acquiring
        self._acquiring.discard(handle)
        if isinstance(reply, msg.GrantReply):
            self.state.started(reply.granted, self.clock.now())
        if future is not None and not future.done():
            future.set_result(reply)
        elif isinstance(reply, msg.GrantReply) and acquiring:
            self.submit(msg.GrantUndelivered(reply.granted.key, reply.granted.lock_id))

    async def _acquire_backend(self, key: str, ttl_ms: int, *, immediate: bool) -> None:
        assert self.backend is not None
        try:
            # The backend's lease must outlive the TTL of a client whose grant was sent just
            # before a crash, so it is longer by the time between renewals.
            token = await self.backend.try_acquire(key, ttl_ms * 5 // 4, immediate=immediate)
        except TidelockError as error:
            self._set_outage(str(error))
            if not immediate:
                await asyncio.sleep(VERIFY_MS / 1000)
            self.submit(msg.BackendLockRefused(key, str(error)))
            return
        except Exception as error:
            # A bug in a provider must not leave waiting requests without a reply.
            logger.exception("lock provider failed")
            self.submit(msg.BackendLockRefused(key, f"internal error: {type(error).__name__}"))
            return
        self._set_outage()
        self.submit(
            msg.BackendLockRefused(key) if token is None else msg.BackendLockAcquired(key, token)
        )

    def _on_backend_lost(self, key: str, cause: str) -> None:
        self.submit(msg.LoseLock(key, "", cause))

    async def _verify_loop(self) -> None:
        """Verify periodically that no other instance has taken over."""
        while self.failure is None:
            await asyncio.sleep(VERIFY_MS / 1000)
            sent_ms = self.clock.now().monotonic_ms
            if sent_ms - self._verified_ms < VERIFY_MS:
                continue
            self.metrics.count("lockservice.beats")
            try:
                sealed = await asyncio.to_thread(self.journal.is_sealed)
            except TidelockError as error:
                if self.backend is None:
                    self._set_outage(str(error))
                self._report_uncertain_locks(error)
                continue
            if sealed:
                self._fail(self.journal.fenced())
                return
            self._verified_ms = max(self._verified_ms, sent_ms)
            if self.backend is None:
                self._set_outage()

    def _report_uncertain_locks(self, error: TidelockError) -> None:
        """L7: end the streams whose lock another instance may have expired by now."""
        for held in list(self.state.grants()):
            granted, handle = held.granted, held.handle
            if handle is None or self.holds_lease(granted.ttl_ms):
                continue
            callback = self._lost_callbacks.pop(handle, None)
            if callback is not None:
                cause = f"the lock service cannot reach its store: {error}"
                callback(cause)
                self.submit(msg.LoseLock(granted.key, granted.lock_id, cause))

    def _fail(self, error: TidelockError) -> None:
        """Fail all pending requests and streams, and process nothing more."""
        self.failure = self.failure or error
        self.stopped.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
        self._pending.clear()
        for callback in list(self._lost_callbacks.values()):
            callback(error.message)
        self._lost_callbacks.clear()
        self._appended.set()

    def _publish(self, entries: list[JournalEntry]) -> None:
        self.events.extend(entries)
        for entry in entries:
            self.metrics.count(f"lockservice.{kind_name(entry.decision)}")
        if self.audit is not None:
            self.audit(entries)
        appended, self._appended = self._appended, asyncio.Event()
        appended.set()

    def _restored_state(self, history: JournalHistory) -> LockState:
        state = LockState(self.ids, has_backend=self.backend is not None)
        state.number, state.hash = history.number, history.hash
        for granted, since_epoch_ms in history.grants:
            state.restore_held(granted, since_epoch_ms)
        for entry in history.entries:
            state.restore(entry)
        return state

    def _checkpoint_fields(self) -> dict[str, object]:
        grants = [
            entry_fields(chained(number, held.since_epoch_ms, held.granted, ""))
            for number, held in enumerate(self.state.grants())
        ]
        return {"number": self.state.number, "hash": self.state.hash, "grants": grants}

    def _reject_waiters(self) -> None:
        """Reject waiting requests, so that no lock released from now on is granted to them."""
        shutdown = Unavailable("the lock service is shutting down", hint="try again later")
        for handle, future in self._pending.items():
            if self.state.is_waiting(handle) and not future.done():
                future.set_exception(shutdown)
                self.submit(msg.CallerLeft(handle))

    def _end_streams(self) -> None:
        """Release the locks of streams without linger; others can be reattached to."""
        for held in list(self.state.grants()):
            if held.handle is not None and not held.granted.linger_ms:
                callback = self._lost_callbacks.pop(held.handle, None)
                if callback is not None:
                    callback("the lock service is shutting down")
                self.submit(msg.CallerLeft(held.handle))

    async def _drain(self) -> None:
        """Wait until the loop has processed all pending events."""
        for _ in range(200):
            if (not self._inbox and not self._writing) or self.failure is not None:
                return
            await asyncio.sleep(0.01)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _in_thread(work: Callable[..., None], *args: object) -> None:
    try:
        await asyncio.to_thread(work, *args)
    except TidelockError as error:
        logger.warning("checkpoint not written: %s", error)
