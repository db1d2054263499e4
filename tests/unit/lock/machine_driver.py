"""Drives one client of the lock machine, step by step, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelock.core.clock import Now
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.machine import step
from tidelock.lock.record import LockRecord, TokenCounter
from tidelock.lock.state import LockClientState, Phase, Standing, standing
from tidelock.storage.contract import Busy, Match, PutReply, Refused, Unclear

EPOCH_MS = 1_700_000_000_000
LEASE = Lease(validity_ms=10_000, renew_ms=1_000)
DEADLINE_MS = 9_500
"""Deadline after the request: the validity minus a twentieth."""

DEAD_AFTER_MS = 11_000
"""Takeover time after the request: validity, drift and grace."""

ME, OTHER = "me", "other"


def record(owner: str = OTHER, *, at_ms: int = 0, **fields: Any) -> LockRecord:
    """Return a live record of `owner`, sent at `at_ms`."""
    ours = LockRecord(
        expired=False,
        valid_until_epoch_ms=EPOCH_MS + at_ms + LEASE.validity_ms,
        owner=owner,
        token=7,
        token_ceiling=1_000,
        nonce=f"{owner}:1",
    )
    return replace(ours, **fields)


def released(owner: str = OTHER, **fields: Any) -> LockRecord:
    """Return a released record of `owner`."""
    return record(owner, expired=True, **fields)


JAVA = LockRecord(expired=True, valid_until_epoch_ms=EPOCH_MS, owner="java")


class Bench:
    """A client named `me`, its clocks, and the effects of the last step."""

    def __init__(self) -> None:
        """Start idle at time 0."""
        self.state = LockClientState(ME, LEASE)
        self.now = Now(0, EPOCH_MS)
        self.effects: tuple[e.Effect, ...] = ()

    # --- events -----------------------------------------------------------------------------------

    def at(self, ms: int) -> Bench:
        """Set both clocks to `ms` after the start."""
        self.now = Now(ms, EPOCH_MS + ms)
        return self

    def apply(self, event: e.Event) -> Bench:
        """Take one step."""
        self.state, self.effects = step(self.state, event)
        return self

    def acquire(self) -> Bench:
        """Acquire the lock."""
        return self.apply(e.Acquire(self.now))

    def renew(self) -> Bench:
        """Renew the lock."""
        return self.apply(e.Renew(self.now))

    def release(self) -> Bench:
        """Release the lock."""
        return self.apply(e.Release(self.now))

    def close(self) -> Bench:
        """Close the client."""
        return self.apply(e.Close(self.now))

    def tick(self) -> Bench:
        """Let time pass."""
        return self.apply(e.Tick(self.now))

    def owner_gone(self) -> Bench:
        """Let the owning thread end."""
        return self.apply(e.OwnerGone(self.now, "the thread ended"))

    def abandon(self) -> Bench:
        """Abandon the operation."""
        return self.apply(e.Abandon(self.now))

    def reads(self, found: LockRecord | e.ReadReply, version: str = "v1") -> Bench:
        """Reply to the read."""
        reply = e.Found(version, found) if isinstance(found, LockRecord) else found
        return self.apply(e.ReadDone(self.now, reply))

    def counts(self, ceiling: int, version: str = "c1") -> Bench:
        """Reply to the read of the token counter."""
        return self.reads(e.FoundCounter(version, TokenCounter(ceiling, "z:1")))

    def replies(self, reply: PutReply) -> Bench:
        """Reply to the write."""
        return self.apply(e.WriteDone(self.now, reply))

    def lands(self, version: str = "v2") -> Bench:
        """Let the write land."""
        return self.replies(Landed(version))

    def refused(self) -> Bench:
        """Refuse the write."""
        return self.replies(Refused())

    def unclear(self) -> Bench:
        """Lose the reply to the write."""
        return self.replies(Unclear("reset"))

    def busy(self) -> Bench:
        """Reply 429 to the write."""
        return self.replies(Busy(700, "slow down"))

    # --- sequences --------------------------------------------------------------------------------

    def holding(self, token: int = 8) -> Bench:
        """Acquire at time 0 after another owner's release; the version is then v2."""
        self.acquire().reads(released(token=token - 1)).lands("v2")
        assert self.result == e.Granted(token)
        return self

    def ghostly(self) -> Bench:
        """End an attempt whose grant may have landed unnoticed."""
        self.acquire().reads(released()).unclear().reads(e.ReadFailed("down"))
        assert isinstance(self.result, e.NotAcquired)
        return self

    # --- state ------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """The phase of the client."""
        return self.state.phase

    @property
    def standing(self) -> Standing:
        """The state that the owner may rely on now."""
        return standing(self.state, self.now)

    @property
    def deadline_ms(self) -> int:
        """When the holding ends."""
        assert self.state.grant is not None
        return self.state.grant.deadline_monotonic_ms

    @property
    def request(self) -> e.Request | None:
        """The request of the last step."""
        requests = [effect for effect in self.effects if isinstance(effect, e.Request)]
        assert len(requests) <= 1
        return requests[0] if requests else None

    @property
    def written(self) -> LockRecord:
        """The record that the last step writes."""
        assert isinstance(self.request, e.WriteRecord)
        return self.request.record

    @property
    def on_version(self) -> str:
        """The version on which the last step's write is conditional."""
        assert isinstance(self.request, e.WriteRecord | e.WriteCounter)
        assert isinstance(self.request.mode, Match)
        return self.request.mode.version

    @property
    def result(self) -> e.Result | None:
        """The result of the operation, if the last step ended it."""
        ended = [effect.result for effect in self.effects if isinstance(effect, e.OperationDone)]
        assert len(ended) <= 1
        return ended[0] if ended else None

    @property
    def reason(self) -> e.NotAcquiredReason:
        """The reason for which the attempt did not acquire."""
        assert isinstance(self.result, e.NotAcquired)
        return self.result.reason

    @property
    def counted(self) -> list[str]:
        """The metrics that the last step counted."""
        return [effect.metric for effect in self.effects if isinstance(effect, e.Count)]

    @property
    def audited(self) -> list[tuple[str, int]]:
        """The audit entries of the last step: state, and ms after the start."""
        notes = [effect for effect in self.effects if isinstance(effect, e.Audit)]
        return [(note.state.value, note.at_epoch_ms - EPOCH_MS) for note in notes]

    @property
    def told_lost(self) -> bool:
        """Whether the last step notified the owner of the loss."""
        return any(isinstance(effect, e.NotifyLost) for effect in self.effects)
