"""A lock state machine with a clock, for tests written as conversations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.unit.doubles import ManualClock
from tidelock.core.system import SeededIds
from tidelock.lock.server import messages as msg
from tidelock.lock.server.entries import GrantEnded, JournalEntry, KeepAliveMode, LockGranted
from tidelock.lock.server.state import LockState


@dataclass(slots=True)
class StateDriver:
    """Sends events to a state machine and records its outputs."""

    has_backend: bool = False
    clock: ManualClock = field(default_factory=ManualClock)
    state: LockState = field(init=False)
    entries: list[JournalEntry] = field(default_factory=list)
    replies: dict[int, msg.Reply] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    backend_requests: list[msg.AcquireBackendLock | msg.ReleaseBackendLock] = field(
        default_factory=list
    )
    handles: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.state = LockState(SeededIds(1), has_backend=self.has_backend)

    def send(self, event: msg.Event) -> None:
        for output in self.state.apply(event, self.clock.now()):
            match output:
                case msg.AppendEntry(entry):
                    self.entries.append(entry)
                case msg.SendReply(handle, reply):
                    self.replies[handle] = reply
                    if isinstance(reply, msg.GrantReply):
                        self.state.started(reply.granted, self.clock.now())
                case msg.EndStream(handle, cause):
                    self.ended[handle] = cause
                case msg.AcquireBackendLock() | msg.ReleaseBackendLock():
                    self.backend_requests.append(output)

    def request(self, key: str = "r", who: str = "p", **more: Any) -> int:
        handle: int = next(self.handles)
        more = {"ttl_ms": 10_000, "mode": KeepAliveMode.TIMED, **more}
        self.send(msg.AcquireRequest(handle, key, who, **more))
        return handle

    def granted(self, key: str = "r", who: str = "p", **more: Any) -> LockGranted:
        reply = self.replies[self.request(key, who, **more)]
        assert isinstance(reply, msg.GrantReply), reply
        return reply.granted

    def waits(self, key: str = "r", who: str = "p", **more: Any) -> int:
        handle = self.request(key, who, immediate=False, **more)
        assert handle not in self.replies
        return handle

    def unlock(self, granted: LockGranted, who: str = "p") -> msg.Reply:
        handle = next(self.handles)
        self.send(msg.UnlockRequest(handle, granted.key, who, lock_id=granted.lock_id))
        return self.replies[handle]

    def renew(self, granted: LockGranted, who: str = "p", ttl_ms: int = 0) -> msg.Reply:
        handle = next(self.handles)
        self.send(msg.RenewRequest(handle, granted.key, who, granted.lock_id, ttl_ms))
        return self.replies[handle]

    def inspect(self, key: str = "r") -> msg.ResourceStatus:
        handle = next(self.handles)
        self.send(msg.InspectRequest(handle, key))
        seen = self.replies[handle]
        assert isinstance(seen, msg.ResourceStatus)
        return seen

    def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.send(msg.ClockTick())

    @property
    def ends(self) -> list[str]:
        return [e.decision.how.value for e in self.entries if isinstance(e.decision, GrantEnded)]

    def restarted(self) -> StateDriver:
        """Return the conversation with another instance that has read this one's entries."""
        other = StateDriver(has_backend=self.has_backend, clock=self.clock)
        for entry in self.entries:
            other.state.restore(entry)
        other.entries = [*self.entries, other.state.open("next", 2, self.clock.now())]
        other.handles = self.handles
        return other
