"""A backend whose answers a test writes beforehand, and a heartbeat that beats when told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.unit.doubles import ManualClock
from tidelock.base.ids import SeededIds
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.provider import Features, Holder
from tidelock.lock.renewal import Renewable, Renewals
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
)
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace

TERMS = Terms(10_000, 1_000)
Answer = TakeReply | RenewReply | ReleaseReply | BaseException | Callable[[], object]


class ScriptedBackend:
    """Grants, renews and releases unless a script says otherwise."""

    def __init__(self, *, fair: bool = False) -> None:
        self.uri = "scripted://lock"
        self.terms = TERMS
        self.scripts: dict[str, deque[Answer]] = {}
        self.calls: list[tuple[str, str]] = []
        self.fair = fair
        self.closed = 0

    def script(self, verb: str, *answers: Answer) -> None:
        """Let the next calls of `verb` go like this."""
        self.scripts.setdefault(verb, deque()).extend(answers)

    def _next(self, verb: str, attempt: Attempt, usual: object) -> object:
        self.calls.append((verb, attempt.id))
        answers = self.scripts.get(verb)
        answer = answers.popleft() if answers else usual
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def features(self) -> Features:
        return Features(blocking_wait=True, fencing_token=True, fair_queue=self.fair)

    def take(self, attempt: Attempt) -> TakeReply:
        reply = self._next("take", attempt, Taken(Grant(attempt, "handle", 7)))
        assert isinstance(reply, TakeReply)
        if isinstance(reply, Taken):
            return Taken(Grant(attempt, "handle", reply.grant.token))
        return reply

    def leave(self, attempt: Attempt) -> bool:
        return bool(self._next("leave", attempt, usual=True))

    def renew(self, grant: Grant) -> RenewReply:
        reply = self._next("renew", grant.attempt, Kept(grant))
        assert isinstance(reply, RenewReply)
        return reply

    def release(self, grant: Grant) -> ReleaseReply:
        reply = self._next("release", grant.attempt, Freed())
        assert isinstance(reply, ReleaseReply)
        return reply

    def forsake(self, grant: Grant) -> None:
        self._next("forsake", grant.attempt, None)

    def holder(self) -> Holder | None:
        return None

    def break_lock(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1

    def verbs(self) -> list[str]:
        """Return what was called, in order."""
        return [verb for verb, _ in self.calls]

    def attempts(self, verb: str) -> list[str]:
        """Return whose calls of `verb` there were."""
        return [attempt for called, attempt in self.calls if called == verb]


class ManualRenewals(Renewals):
    """Keeps holdings and renews none."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.kept: list[Renewable] = []
        self.refuses = False

    def add(self, holding: Renewable, beat: Heartbeat) -> None:
        if self.refuses:
            raise RuntimeError("can't start new thread")
        self.kept.append(holding)

    def remove(self, holding: Renewable) -> None:
        if holding in self.kept:
            self.kept.remove(holding)


class Bench:
    """One provider over a scripted backend, on a clock that moves when told."""

    def __init__(self, *, pace: Pace | None = None, fair: bool = True) -> None:
        self.backend = ScriptedBackend(fair=fair)
        self.clock = ManualClock()
        self.renewals = ManualRenewals()
        self.provider = LeasedProvider(
            self.backend,
            pace=pace or Pace(between_ms=100, between_max_ms=1_000, retries=3),
            clock=self.clock,
            ids=SeededIds(1),
            renewals=self.renewals,
        )

    def held(self) -> LeasedProvider:
        """Return the provider, holding the lock."""
        assert self.provider.try_lock(0)
        return self.provider


HELD = Held("somebody")
