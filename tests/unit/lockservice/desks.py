"""A desk with a clock, for tests that read as conversations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.unit.doubles import ManualClock
from tidelock.base.ids import SeededIds
from tidelock.lockservice import asking as a
from tidelock.lockservice.desk import Desk
from tidelock.lockservice.entries import Ended, Entry, Granted, Mode


@dataclass(slots=True)
class Talk:
    """Says things to a desk and remembers what came back."""

    gated: bool = False
    clock: ManualClock = field(default_factory=ManualClock)
    desk: Desk = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    replies: dict[int, a.Verdict] = field(default_factory=dict)
    told: dict[int, str] = field(default_factory=dict)
    asked: list[a.Take | a.GiveBack] = field(default_factory=list)
    handles: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.desk = Desk(SeededIds(1), gated=self.gated)

    def say(self, event: a.Event) -> None:
        for output in self.desk.hear(event, self.clock.now()):
            match output:
                case a.Record(entry):
                    self.entries.append(entry)
                case a.Reply(handle, verdict):
                    self.replies[handle] = verdict
                    if isinstance(verdict, a.Yes):
                        self.desk.started(verdict.granted, self.clock.now())
                case a.Tell(handle, cause):
                    self.told[handle] = cause
                case a.Take() | a.GiveBack():
                    self.asked.append(output)

    def ask(self, key: str = "r", who: str = "p", **more: Any) -> int:
        handle: int = next(self.handles)
        more = {"ttl_ms": 10_000, "mode": Mode.TIMED, **more}
        self.say(a.Ask(handle, key, who, **more))
        return handle

    def granted(self, key: str = "r", who: str = "p", **more: Any) -> Granted:
        verdict = self.replies[self.ask(key, who, **more)]
        assert isinstance(verdict, a.Yes), verdict
        return verdict.granted

    def waits(self, key: str = "r", who: str = "p", **more: Any) -> int:
        handle = self.ask(key, who, immediate=False, **more)
        assert handle not in self.replies
        return handle

    def unlock(self, granted: Granted, who: str = "p") -> a.Verdict:
        handle = next(self.handles)
        self.say(a.Unlock(handle, granted.key, who, lock_id=granted.lock_id))
        return self.replies[handle]

    def renew(self, granted: Granted, who: str = "p", ttl_ms: int = 0) -> a.Verdict:
        handle = next(self.handles)
        self.say(a.Renew(handle, granted.key, who, granted.lock_id, ttl_ms))
        return self.replies[handle]

    def look(self, key: str = "r") -> a.Seen:
        handle = next(self.handles)
        self.say(a.Look(handle, key))
        seen = self.replies[handle]
        assert isinstance(seen, a.Seen)
        return seen

    def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.say(a.Tick())

    @property
    def ends(self) -> list[str]:
        return [e.decision.how.value for e in self.entries if isinstance(e.decision, Ended)]

    def restarted(self) -> Talk:
        """Return the talk with another instance that has read this one's entries."""
        other = Talk(gated=self.gated, clock=self.clock)
        for entry in self.entries:
            other.desk.restore(entry)
        other.entries = [*self.entries, other.desk.open("next", 2, self.clock.now())]
        other.handles = self.handles
        return other
