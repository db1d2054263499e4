"""A backend with scripted replies, and a heartbeat that a test triggers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.unit.doubles import ManualClock
from tidelock.core.system import SeededIds
from tidelock.lock.heartbeat import Renewable, Renewals
from tidelock.lock.lease import RenewalSchedule
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers.backend import (
    AcquireReply,
    Attempt,
    BackendAcquired,
    BackendGrant,
    GrantReleased,
    HeldByOther,
    LeaseTerms,
    ReleaseReply,
    RenewedLease,
    RenewReply,
)
from tidelock.lock.providers.config import PollingPolicy
from tidelock.lock.providers.leased import LeasedProvider

TERMS = LeaseTerms(10_000, 1_000)
ScriptedReply = AcquireReply | RenewReply | ReleaseReply | BaseException | Callable[[], object]


class ScriptedBackend:
    """Grants, renews and releases unless scripted otherwise."""

    def __init__(self, *, fair: bool = False) -> None:
        self.uri = "scripted://lock"
        self.terms = TERMS
        self.scripts: dict[str, deque[ScriptedReply]] = {}
        self.calls: list[tuple[str, str]] = []
        self.features = Features(blocking_wait=True, fencing_token=True, fair_queue=fair)
        self.closed = 0

    def script(self, verb: str, *answers: ScriptedReply) -> None:
        """Script the next calls of `verb`."""
        self.scripts.setdefault(verb, deque()).extend(answers)

    def _next(self, verb: str, attempt: Attempt, usual: object) -> object:
        self.calls.append((verb, attempt.id))
        answers = self.scripts.get(verb)
        answer = answers.popleft() if answers else usual
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def try_acquire(self, attempt: Attempt) -> AcquireReply:
        reply = self._next(
            "try_acquire", attempt, BackendAcquired(BackendGrant(attempt, "handle", 7))
        )
        assert isinstance(reply, AcquireReply)
        if isinstance(reply, BackendAcquired):
            return BackendAcquired(BackendGrant(attempt, "handle", reply.grant.token))
        return reply

    def cancel(self, attempt: Attempt) -> bool:
        return bool(self._next("cancel", attempt, usual=True))

    def renew(self, grant: BackendGrant) -> RenewReply:
        reply = self._next("renew", grant.attempt, RenewedLease(grant))
        assert isinstance(reply, RenewReply)
        return reply

    def release(self, grant: BackendGrant) -> ReleaseReply:
        reply = self._next("release", grant.attempt, GrantReleased())
        assert isinstance(reply, ReleaseReply)
        return reply

    def abandon(self, grant: BackendGrant) -> None:
        self._next("abandon", grant.attempt, None)

    def holder(self) -> Holder | None:
        return None

    def force_release(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1

    def verbs(self) -> list[str]:
        """Return the called verbs, in order."""
        return [verb for verb, _ in self.calls]

    def attempts(self, verb: str) -> list[str]:
        """Return the owners of the calls of `verb`."""
        return [attempt for called, attempt in self.calls if called == verb]


class ManualRenewals(Renewals):
    """Registers holdings without renewing them."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.kept: list[Renewable] = []
        self.refuses = False

    def add(self, holding: Renewable, beat: RenewalSchedule) -> None:
        if self.refuses:
            raise RuntimeError("can't start new thread")
        self.kept.append(holding)

    def remove(self, holding: Renewable) -> None:
        if holding in self.kept:
            self.kept.remove(holding)


class Bench:
    """One provider over a scripted backend, on a manual clock."""

    def __init__(self, *, polling: PollingPolicy | None = None, fair: bool = True) -> None:
        self.backend = ScriptedBackend(fair=fair)
        self.clock = ManualClock()
        self.renewals = ManualRenewals()
        self.provider = LeasedProvider(
            self.backend,
            polling=polling or PollingPolicy(between_ms=100, between_max_ms=1_000, retries=3),
            clock=self.clock,
            ids=SeededIds(1),
            renewals=self.renewals,
        )

    def held(self) -> LeasedProvider:
        """Return the provider, holding the lock."""
        assert self.provider.try_lock(0)
        return self.provider


HELD = HeldByOther("somebody")
