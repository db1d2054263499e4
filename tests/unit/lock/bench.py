"""One client of the lock machine on a workbench: told what happens, asked what it does next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelock.base.clock import Now
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.machine import step
from tidelock.lock.record import Counter, Record
from tidelock.lock.state import Phase, Standing, State, standing
from tidelock.store.contract import Busy, Match, PutReply, Refused, Unclear

EPOCH_MS = 1_700_000_000_000
LEASE = Lease(validity_ms=10_000, renew_ms=1_000)
DEADLINE_MS = 9_500
"""After its sending: the validity less the margin of a twentieth."""

DEAD_AFTER_MS = 11_000
"""After its sending: the validity, the drift and the grace."""

ME, OTHER = "me", "other"


def record(owner: str = OTHER, *, at_ms: int = 0, **fields: Any) -> Record:
    """Return a live record of `owner`, sent at `at_ms`."""
    ours = Record(
        expired=False,
        valid_until_epoch_ms=EPOCH_MS + at_ms + LEASE.validity_ms,
        owner=owner,
        token=7,
        token_ceiling=1_000,
        nonce=f"{owner}:1",
    )
    return replace(ours, **fields)


def released(owner: str = OTHER, **fields: Any) -> Record:
    """Return a released record of `owner`."""
    return record(owner, expired=True, **fields)


JAVA = Record(expired=True, valid_until_epoch_ms=EPOCH_MS, owner="java")


class Bench:
    """A client named `me`, its clocks, and the effects of the last step."""

    def __init__(self) -> None:
        """Start idle at time 0."""
        self.state = State(ME, LEASE)
        self.now = Now(0, EPOCH_MS)
        self.effects: tuple[e.Effect, ...] = ()

    # --- what happens -----------------------------------------------------------------------------

    def at(self, ms: int) -> Bench:
        """Set both clocks to `ms` after the start."""
        self.now = Now(ms, EPOCH_MS + ms)
        return self

    def tell(self, event: e.Event) -> Bench:
        """Take one step."""
        self.state, self.effects = step(self.state, event)
        return self

    def acquire(self) -> Bench:
        """Ask for the lock."""
        return self.tell(e.Acquire(self.now))

    def renew(self) -> Bench:
        """Let the heartbeat be due."""
        return self.tell(e.Renew(self.now))

    def release(self) -> Bench:
        """Give the lock back."""
        return self.tell(e.Release(self.now))

    def close(self) -> Bench:
        """Use the client no more."""
        return self.tell(e.Close(self.now))

    def tick(self) -> Bench:
        """Let time pass unasked."""
        return self.tell(e.Tick(self.now))

    def owner_gone(self) -> Bench:
        """Let the owning thread end."""
        return self.tell(e.OwnerGone(self.now, "the thread ended"))

    def abandon(self) -> Bench:
        """Cut the operation short."""
        return self.tell(e.Abandon(self.now))

    def reads(self, found: Record | e.Reading, version: str = "v1") -> Bench:
        """Answer the read under way."""
        reading = e.Found(version, found) if isinstance(found, Record) else found
        return self.tell(e.ReadDone(self.now, reading))

    def counts(self, ceiling: int, version: str = "c1") -> Bench:
        """Answer the read of the token counter."""
        return self.reads(e.FoundCounter(version, Counter(ceiling, "z:1")))

    def hears(self, reply: PutReply) -> Bench:
        """Answer the write under way."""
        return self.tell(e.WriteDone(self.now, reply))

    def lands(self, version: str = "v2") -> Bench:
        """Let the write under way land."""
        return self.hears(Landed(version))

    def refused(self) -> Bench:
        """Refuse the write under way."""
        return self.hears(Refused())

    def unclear(self) -> Bench:
        """Lose the answer of the write under way."""
        return self.hears(Unclear("reset"))

    def busy(self) -> Bench:
        """Answer 429 to the write under way."""
        return self.hears(Busy(700, "slow down"))

    # --- stories ----------------------------------------------------------------------------------

    def holding(self, token: int = 8) -> Bench:
        """Acquire at time 0 on what another released; the version is then v2."""
        self.acquire().reads(released(token=token - 1)).lands("v2")
        assert self.result == e.Granted(token)
        return self

    def ghostly(self) -> Bench:
        """End an attempt whose grant may have landed unseen."""
        self.acquire().reads(released()).unclear().reads(e.ReadFailed("down"))
        assert isinstance(self.result, e.NotAcquired)
        return self

    # --- what it does -----------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where the client stands."""
        return self.state.phase

    @property
    def standing(self) -> Standing:
        """What the owner may conclude now."""
        return standing(self.state, self.now)

    @property
    def deadline_ms(self) -> int:
        """When the holding ends."""
        assert self.state.grant is not None
        return self.state.grant.deadline_monotonic_ms

    @property
    def request(self) -> e.Request | None:
        """What the last step asked for."""
        asked = [effect for effect in self.effects if isinstance(effect, e.Request)]
        assert len(asked) <= 1
        return asked[0] if asked else None

    @property
    def written(self) -> Record:
        """The record that the last step wants written."""
        assert isinstance(self.request, e.WriteRecord)
        return self.request.record

    @property
    def on_version(self) -> str:
        """The version on which the last step wants to write."""
        assert isinstance(self.request, e.WriteRecord | e.WriteCounter)
        assert isinstance(self.request.mode, Match)
        return self.request.mode.version

    @property
    def result(self) -> e.Result | None:
        """How the operation ended, if the last step ended it."""
        ended = [effect.result for effect in self.effects if isinstance(effect, e.Done)]
        assert len(ended) <= 1
        return ended[0] if ended else None

    @property
    def why(self) -> e.Why:
        """Why the attempt did not acquire."""
        assert isinstance(self.result, e.NotAcquired)
        return self.result.why

    @property
    def counted(self) -> list[str]:
        """The metrics that the last step counted."""
        return [effect.metric for effect in self.effects if isinstance(effect, e.Count)]

    @property
    def audited(self) -> list[tuple[str, int]]:
        """The audit notes of the last step: state, and ms after the start."""
        notes = [effect for effect in self.effects if isinstance(effect, e.Audit)]
        return [(note.state.value, note.at_epoch_ms - EPOCH_MS) for note in notes]

    @property
    def told_lost(self) -> bool:
        """Whether the last step told the owner of the loss."""
        return any(isinstance(effect, e.TellLost) for effect in self.effects)
