"""The state machine of one lock store: grants, queues, and the outputs of each event. Pure.

The state runs ahead of the journal by the batch that is being written. Replies are sent only after
the entries that they depend on are durable.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, assert_never

from tidelock.core.clock import Now
from tidelock.core.ids import IdSource
from tidelock.core.limits import (
    BACKEND_OUTAGE_MS_MAX,
    GRANTS_PER_PRINCIPAL_MAX,
    WAITERS_MAX,
    WAITERS_PER_RESOURCE_MAX,
)
from tidelock.lock.server import messages as msg
from tidelock.lock.server.entries import (
    NO_HASH,
    Decision,
    EndReason,
    GrantEnded,
    JournalEntry,
    JournalOpened,
    KeepAliveMode,
    LockGranted,
    TtlChanged,
    chained,
)
from tidelock.lock.server.messages import AcquireRequest


@dataclass(slots=True)
class WaitQueue:
    """The waiting requests of one resource.

    `acquiring` is set while a request to the backend is pending, `tried` after the first one.
    `refused_ms` is when the backend last reported another holder.
    """

    waiters: OrderedDict[int, AcquireRequest] = field(default_factory=OrderedDict)
    acquiring: bool = False
    tried: bool = False
    refused_ms: int | None = None


class WaitQueues:
    """The queues of all resources. Empty queues are removed."""

    def __init__(self) -> None:
        self._queues: dict[str, WaitQueue] = {}
        self._keys: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        """Return whether requests wait for `key`, or a backend request for it is pending."""
        return key in self._queues

    def is_waiting(self, handle: int) -> bool:
        return handle in self._keys

    def length(self, key: str) -> int:
        queue = self._queues.get(key)
        return len(queue.waiters) if queue else 0

    def waiters(self, key: str) -> list[AcquireRequest]:
        """Return the requests that wait for `key`, the oldest first."""
        queue = self._queues.get(key)
        return list(queue.waiters.values()) if queue else []

    def first(self, key: str) -> AcquireRequest | None:
        """Return the oldest request that waits for `key`."""
        queue = self._queues.get(key)
        return next(iter(queue.waiters.values()), None) if queue else None

    def join(self, request: AcquireRequest) -> None:
        self._queues.setdefault(request.key, WaitQueue()).waiters[request.handle] = request
        self._keys[request.handle] = request.key

    def leave(self, handle: int) -> None:
        key = self._keys.pop(handle)
        del self._queues[key].waiters[handle]
        self._remove_if_empty(key)

    def same_request(self, key: str, principal: str, request_id: str) -> list[int]:
        """Return the handles that wait with this request id."""
        return [
            request.handle
            for request in self.waiters(key)
            if (request.principal, request.request_id) == (principal, request_id)
        ]

    def replace(self, handle: int, request: AcquireRequest) -> None:
        """Replace the request of `handle` by `request`, at the same position."""
        queue = self._queues[request.key]
        queue.waiters = OrderedDict(
            (request.handle, request) if there == handle else (there, waiter)
            for there, waiter in queue.waiters.items()
        )
        self._keys[request.handle] = self._keys.pop(handle)

    def begin_acquiring(self, key: str) -> tuple[AcquireRequest, bool] | None:
        """Return the request to acquire the backend's lock for, and whether it is the first try.

        None if a backend request is pending already.
        """
        queue = self._queues.get(key)
        first = self.first(key)
        if queue is None or queue.acquiring or first is None:
            return None
        first_try, queue.acquiring, queue.tried = not queue.tried, True, True
        return first, first_try

    def end_acquiring(self, key: str, *, refused_ms: int | None = None) -> None:
        """Record the end of a backend request, and when it reported another holder."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.acquiring, queue.refused_ms = False, refused_ms
            self._remove_if_empty(key)

    def refused_ms(self, key: str) -> int | None:
        queue = self._queues.get(key)
        return queue.refused_ms if queue else None

    def _remove_if_empty(self, key: str) -> None:
        queue = self._queues[key]
        if not queue.waiters and not queue.acquiring:
            del self._queues[key]


REFUSAL_FRESH_MS = 1_000
"""How long a refusal of the backend is reused for requests that do not wait."""

USED_REQUEST_IDS_MAX = 4_096
"""Request ids of ended grants that are remembered; older ones are forgotten."""


@dataclass(slots=True)
class HeldLock:
    """A current grant. `expires_ms` is None while the service or a stream keeps it alive."""

    granted: LockGranted
    since_epoch_ms: int
    expires_ms: int | None = None
    handle: int | None = None
    restored: bool = False


class LockState:
    """All locks of one lock store. With `has_backend`, each grant needs the backend's lock."""

    def __init__(self, ids: IdSource, *, has_backend: bool = False) -> None:
        self._ids = ids
        self._has_backend = has_backend
        self._healthy = True
        self.number = 0
        self.hash = NO_HASH
        self.held: dict[str, HeldLock] = {}
        self._queues = WaitQueues()
        self._streams: dict[int, str] = {}
        self._deadlines: list[tuple[int, str, str]] = []
        self._used_request_ids: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._grants_by_principal: dict[str, int] = {}
        self._outages: dict[str, tuple[int, str]] = {}
        self._out: list[msg.Output] = []

    @property
    def waiting(self) -> int:
        return len(self._queues)

    def is_waiting(self, handle: int) -> bool:
        return self._queues.is_waiting(handle)

    def apply(self, event: msg.Event, now: Now) -> list[msg.Output]:
        self._out = []
        self._HANDLERS[type(event)](self, event, now)
        return self._out

    def started(self, granted: LockGranted, now: Now) -> None:
        """Start the TTL of a grant when its holder is notified, never earlier."""
        held = self._find(granted.key, granted.lock_id)
        expires = granted.mode is KeepAliveMode.TIMED or (
            granted.mode is KeepAliveMode.AUTO_RENEWED and not self._healthy
        )
        if held is not None and expires:
            self._expire_at(held, now.monotonic_ms + granted.ttl_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next grant expires, in monotonic time."""
        while self._deadlines:
            at_ms, key, lock_id = self._deadlines[0]
            held = self._find(key, lock_id)
            if held is not None and held.expires_ms == at_ms:
                return at_ms
            heapq.heappop(self._deadlines)
        return None

    def restore(self, entry: JournalEntry) -> None:
        """Replay an entry of the journal; call it in order."""
        self.number, self.hash = entry.number, entry.hash
        match entry.decision:
            case LockGranted() as granted:
                self.restore_held(granted, entry.at_epoch_ms)
            case TtlChanged(key, lock_id, ttl_ms):
                held = self._find(key, lock_id)
                if held is not None:
                    held.granted = replace(held.granted, ttl_ms=ttl_ms)
            case GrantEnded(key, lock_id):
                if self._find(key, lock_id) is not None:
                    self._drop(key)
            case JournalOpened():
                pass
            case _:
                assert_never(entry.decision)

    def restore_held(self, granted: LockGranted, since_epoch_ms: int) -> None:
        """Restore a grant from a checkpoint."""
        self._hold(HeldLock(granted, since_epoch_ms, restored=True))

    def open(self, instance: str, epoch: int, now: Now) -> JournalEntry:
        """Take over the journal. V4: every grant remains valid for one full TTL.

        The clock of the previous instance is not trusted: a TTL counted from here ends later than
        one counted from when its holder was notified.
        """
        for held in self.held.values():
            self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)
        self._out = []
        return self._record(JournalOpened(instance, epoch), now)

    def grants(self) -> Iterable[HeldLock]:
        return self.held.values()

    def _acquire(self, request: msg.AcquireRequest, now: Now) -> None:
        held, queues = self.held.get(request.key), self._queues
        if request.request_id and self._is_repeated(request, held):
            return
        if self._grants_by_principal.get(request.principal, 0) >= GRANTS_PER_PRINCIPAL_MAX:
            limit = f"{request.principal} holds {GRANTS_PER_PRINCIPAL_MAX} locks"
            self._reply(request.handle, msg.LimitReached(limit))
        elif held is None and request.key not in queues and not self._has_backend:
            self._grant(request, 0, now)
        elif request.immediate and (refusal := self._refusal(request.key, held, now)) is not None:
            # FIFO: also refused while the lock is about to be granted to a waiting request.
            self._reply(request.handle, refusal)
        elif queues.length(request.key) >= WAITERS_PER_RESOURCE_MAX:
            limit = f"{WAITERS_PER_RESOURCE_MAX} requests wait for the resource"
            self._reply(request.handle, msg.LimitReached(limit))
        elif len(queues) >= WAITERS_MAX:
            self._reply(request.handle, msg.LimitReached(f"{WAITERS_MAX} requests wait for locks"))
        else:
            queues.join(request)
            if held is None:
                self._acquire_backend(request.key)

    def _refusal(self, key: str, held: HeldLock | None, now: Now) -> msg.Reply | None:
        """Return why a lock cannot be granted at once; None if that is not known.

        It is not known while a backend request is pending: its reply then also answers the
        requests that do not wait.
        """
        if held is not None:
            return msg.AlreadyLocked(held.granted)
        if key not in self._queues:
            return None
        if key in self._outages:
            return msg.BackendFailed(self._outages[key][1])
        refused_ms = self._queues.refused_ms(key)
        fresh = refused_ms is not None and now.monotonic_ms - refused_ms <= REFUSAL_FRESH_MS
        return msg.AlreadyLocked(None) if fresh or not self._has_backend else None

    def _is_repeated(self, request: msg.AcquireRequest, held: HeldLock | None) -> bool:
        """L12: a repeated request gets the same grant, or keeps its position in the queue."""
        if held is not None and _same_request(held.granted, request):
            if held.granted.mode is KeepAliveMode.STREAM:
                self._bind(held, request.handle)
            elif (
                held.granted.mode is KeepAliveMode.AUTO_RENEWED
                and self._healthy
                and not self._is_orphaned(held)
            ):
                held.restored, held.expires_ms = False, None
            self._reply(request.handle, msg.GrantReply(held.granted, held.since_epoch_ms))
            return True
        if (request.principal, request.key, request.request_id) in self._used_request_ids:
            self._reply(request.handle, msg.RequestReused())
            return True
        for handle in self._queues.same_request(request.key, request.principal, request.request_id):
            self._queues.replace(handle, request)
            self._reply(handle, msg.RequestReused())
            return True
        return False

    def _is_orphaned(self, held: HeldLock) -> bool:
        """Return whether the backend's lock belongs to a previous instance, so that it expires."""
        return self._has_backend and held.restored

    def _attach(self, request: msg.AttachStream, _now: Now) -> None:
        held = self._find(request.key, request.lock_id)
        if held is None or not self._is_alive(held, request.principal):
            self._reply(request.handle, msg.NotLocked())
            return
        if held.granted.mode is not KeepAliveMode.STREAM:
            self._reply(request.handle, msg.LockedByOther())
            return
        self._bind(held, request.handle)
        self._reply(request.handle, msg.GrantReply(held.granted, held.since_epoch_ms))

    def _renew(self, request: msg.RenewRequest, now: Now) -> None:
        held = self._find(request.key, request.lock_id)
        if held is None or not self._is_alive(held, request.principal):
            self._reply(request.handle, msg.NotLocked())
            return
        granted = held.granted
        # The backend's lease was sized for the granted TTL, so it cannot be extended.
        ttl_ms = min(request.ttl_ms, granted.ttl_ms) if self._has_backend else request.ttl_ms
        if ttl_ms not in (0, granted.ttl_ms):
            held.granted = replace(granted, ttl_ms=ttl_ms)
            self._record(TtlChanged(request.key, request.lock_id, ttl_ms), now)
        held.restored = False
        if granted.mode is KeepAliveMode.AUTO_RENEWED and self._healthy:
            held.expires_ms = None
        elif held.expires_ms is not None:
            self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)
        self._reply(request.handle, msg.GrantReply(held.granted, held.since_epoch_ms))

    def _is_alive(self, held: HeldLock, principal: str) -> bool:
        return held.granted.principal == principal and not self._is_orphaned(held)

    def _unlock(self, request: msg.UnlockRequest, now: Now) -> None:
        if request.request_id:
            self._cancel_request(request)
        held = self.held.get(request.key)
        if held is None:
            self._reply(request.handle, msg.NotLocked())
            return
        granted = held.granted
        if not _names_grant(granted, request) or granted.principal != request.principal:
            self._reply(request.handle, msg.LockedByOther())
            return
        self._end(held, EndReason.RELEASED, now, by=request.principal, reply_to=request.handle)

    def _cancel_request(self, request: msg.UnlockRequest) -> None:
        """L5: a cancelled request is never granted, however late it arrives."""
        self._retire_request_id(request.principal, request.key, request.request_id)
        for handle in self._queues.same_request(request.key, request.principal, request.request_id):
            self._queues.leave(handle)
            self._reply(handle, msg.RequestReused())

    def _force(self, request: msg.ForceUnlock, now: Now) -> None:
        held = self.held.get(request.key)
        if held is None:
            if self._has_backend:
                # The holder may be another program that uses the backend.
                self._out.append(msg.ReleaseBackendLock(request.key, by_force=True))
                self._reply(request.handle, msg.RequestDone())
            else:
                self._reply(request.handle, msg.NotLocked())
            return
        self._end(
            held,
            EndReason.FORCED,
            now,
            by=request.principal,
            cause=f"forced by {request.principal}",
            reply_to=request.handle,
        )

    def _leave(self, event: msg.CallerLeft, now: Now) -> None:
        handle = event.handle
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
        self._end(held, EndReason.DISCONNECTED, now, by=held.granted.principal)

    def _backend_acquired(self, event: msg.BackendLockAcquired, now: Now) -> None:
        key = event.key
        request = self._queues.first(key)
        self._queues.end_acquiring(key)
        self._outages.pop(key, None)
        if request is None or key in self.held:
            # The waiting request has left meanwhile.
            self._out.append(msg.ReleaseBackendLock(key))
            return
        self._queues.leave(request.handle)
        self._grant(request, event.token, now)
        for other in self._queues.waiters(key):
            if other.immediate:
                self._queues.leave(other.handle)
                self._reply(other.handle, msg.AlreadyLocked(self.held[key].granted))

    def _backend_refused(self, event: msg.BackendLockRefused, now: Now) -> None:
        key, cause = event.key, event.cause
        self._queues.end_acquiring(key, refused_ms=None if cause else now.monotonic_ms)
        # Waiting requests stay queued during a short outage; others fail at once.
        too_long = bool(cause) and self._is_outage_too_long(key, cause, now)
        for request in self._queues.waiters(key):
            if request.immediate or too_long:
                self._queues.leave(request.handle)
                reply = msg.BackendFailed(cause) if cause else msg.AlreadyLocked(None)
                self._reply(request.handle, reply)
        if not cause or key not in self._queues:
            self._outages.pop(key, None)
        if key not in self.held:
            self._acquire_backend(key)

    def _is_outage_too_long(self, key: str, cause: str, now: Now) -> bool:
        since_ms, _ = self._outages.get(key, (now.monotonic_ms, ""))
        self._outages[key] = since_ms, cause
        return now.monotonic_ms - since_ms >= BACKEND_OUTAGE_MS_MAX

    def _undelivered(self, event: msg.GrantUndelivered, now: Now) -> None:
        """Expire a grant that its holder may not know of; the holder may repeat its request."""
        held = self._find(event.key, event.lock_id)
        if held is None or held.granted.mode is KeepAliveMode.STREAM:
            return
        if held.granted.request_id:
            self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)
            return
        # No client knows the lock id, so none can release it.
        self._end(held, EndReason.DISCONNECTED, now, by=held.granted.principal)

    def _lose(self, event: msg.LoseLock, now: Now) -> None:
        held = self.held.get(event.key)
        if held is not None and event.lock_id in ("", held.granted.lock_id):
            self._end(held, EndReason.LOST, now, cause=event.cause)

    def _inspect(self, request: msg.InspectRequest, now: Now) -> None:
        held = self.held.get(request.key)
        remaining_ms = None
        if held is not None and held.expires_ms is not None:
            remaining_ms = max(0, held.expires_ms - now.monotonic_ms)
        status = msg.ResourceStatus(
            held.granted if held else None,
            held.since_epoch_ms if held else 0,
            remaining_ms,
            self._queues.length(request.key),
            self.number,
        )
        self._reply(request.handle, status)

    def _health(self, event: msg.HealthChanged, now: Now) -> None:
        if event.healthy == self._healthy:
            return
        self._healthy = event.healthy
        for held in self.held.values():
            if held.granted.mode is not KeepAliveMode.AUTO_RENEWED or held.restored:
                continue
            if event.healthy:
                held.expires_ms = None
            else:
                self._expire_at(held, now.monotonic_ms + held.granted.ttl_ms)

    def _tick(self, _event: msg.ClockTick, now: Now) -> None:
        while (at_ms := self.next_deadline_ms()) is not None and at_ms <= now.monotonic_ms:
            _, key, _ = heapq.heappop(self._deadlines)
            held = self.held[key]
            disconnected = held.granted.mode is KeepAliveMode.STREAM and not held.restored
            how = EndReason.DISCONNECTED if disconnected else EndReason.EXPIRED
            self._end(held, how, now, cause="its TTL expired")

    def _grant_next(self, key: str, now: Now) -> None:
        """Grant a free resource to the oldest waiting request."""
        request = self._queues.first(key)
        if request is None or key in self.held:
            return
        if self._has_backend:
            self._acquire_backend(key)
            return
        self._queues.leave(request.handle)
        self._grant(request, 0, now)

    def _acquire_backend(self, key: str) -> None:
        candidate = self._queues.begin_acquiring(key)
        if candidate is not None:
            first, first_try = candidate
            # The first try does not wait, for the requests that do not wait.
            immediate = first.immediate or first_try
            self._out.append(msg.AcquireBackendLock(key, first.ttl_ms, immediate))

    def _grant(self, request: msg.AcquireRequest, token: int, now: Now) -> None:
        granted = LockGranted(
            key=request.key,
            lock_id=self._ids.uuid(),
            token=token or self.number + 1,
            principal=request.principal,
            owner=request.owner,
            ttl_ms=request.ttl_ms,
            mode=request.mode,
            linger_ms=request.linger_ms,
            request_id=request.request_id,
        )
        held = HeldLock(granted, now.wall_epoch_ms)
        self._hold(held)
        if request.mode is KeepAliveMode.STREAM:
            self._bind(held, request.handle)
        self._record(granted, now)
        self._reply(request.handle, msg.GrantReply(granted, held.since_epoch_ms))

    def _end(
        self,
        held: HeldLock,
        how: EndReason,
        now: Now,
        *,
        by: str = "",
        cause: str = "",
        reply_to: int | None = None,
    ) -> None:
        """End a grant, and grant the resource to the oldest waiting request."""
        granted = held.granted
        self._drop(granted.key)
        self._record(GrantEnded(granted.key, granted.lock_id, granted.token, how, by, cause), now)
        if self._has_backend:
            self._out.append(msg.ReleaseBackendLock(granted.key, by_force=how is EndReason.FORCED))
        if held.handle is not None:
            self._streams.pop(held.handle, None)
            self._out.append(msg.EndStream(held.handle, cause or how.value))
        if reply_to is not None:
            self._reply(reply_to, msg.RequestDone(granted))
        self._grant_next(granted.key, now)

    def _hold(self, held: HeldLock) -> None:
        principal = held.granted.principal
        self._grants_by_principal[principal] = self._grants_by_principal.get(principal, 0) + 1
        self.held[held.granted.key] = held

    def _drop(self, key: str) -> None:
        granted = self.held.pop(key).granted
        self._grants_by_principal[granted.principal] -= 1
        if not self._grants_by_principal[granted.principal]:
            del self._grants_by_principal[granted.principal]
        if granted.request_id:
            self._retire_request_id(granted.principal, key, granted.request_id)

    def _retire_request_id(self, principal: str, key: str, request_id: str) -> None:
        self._used_request_ids[principal, key, request_id] = None
        if len(self._used_request_ids) > USED_REQUEST_IDS_MAX:
            self._used_request_ids.popitem(last=False)

    def _bind(self, held: HeldLock, handle: int) -> None:
        """Keep the grant alive by the stream `handle`; a previous stream is notified."""
        if held.handle is not None and held.handle != handle:
            self._streams.pop(held.handle, None)
            cause = "another stream of the same client reattached to it"
            self._out.append(msg.EndStream(held.handle, cause))
        held.handle = handle
        held.expires_ms = None
        held.restored = False
        self._streams[handle] = held.granted.key

    def _expire_at(self, held: HeldLock, at_ms: int) -> None:
        held.expires_ms = at_ms
        heapq.heappush(self._deadlines, (at_ms, held.granted.key, held.granted.lock_id))

    def _find(self, key: str, lock_id: str) -> HeldLock | None:
        held = self.held.get(key)
        return held if held is not None and held.granted.lock_id == lock_id else None

    def _record(self, decision: Decision, now: Now) -> JournalEntry:
        entry = chained(self.number + 1, now.wall_epoch_ms, decision, self.hash)
        self.number, self.hash = entry.number, entry.hash
        self._out.append(msg.AppendEntry(entry))
        return entry

    def _reply(self, handle: int, reply: msg.Reply) -> None:
        self._out.append(msg.SendReply(handle, reply))

    _HANDLERS: ClassVar[dict[type[msg.Event], Callable[[LockState, Any, Now], None]]] = {
        msg.AcquireRequest: _acquire,
        msg.AttachStream: _attach,
        msg.RenewRequest: _renew,
        msg.UnlockRequest: _unlock,
        msg.ForceUnlock: _force,
        msg.CallerLeft: _leave,
        msg.BackendLockAcquired: _backend_acquired,
        msg.BackendLockRefused: _backend_refused,
        msg.LoseLock: _lose,
        msg.GrantUndelivered: _undelivered,
        msg.InspectRequest: _inspect,
        msg.HealthChanged: _health,
        msg.ClockTick: _tick,
    }


def _same_request(granted: LockGranted, request: msg.AcquireRequest) -> bool:
    return (granted.principal, granted.request_id) == (request.principal, request.request_id)


def _names_grant(granted: LockGranted, request: msg.UnlockRequest) -> bool:
    if request.request_id:
        return granted.request_id == request.request_id
    if request.lock_id:
        return granted.lock_id == request.lock_id
    return granted.owner == request.owner != ""
