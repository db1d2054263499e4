"""Conditional writes whose outcome is settled: landed, not landed, or honestly unknown.

The body must be unlike any other ever written to its key (it carries a nonce), so that finding it
proves that this very write landed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.outcome import Landed, NotLanded, Outcome, Unknown
from tidelock.base.retry import Backoff
from tidelock.store.contract import Busy, Create, Match, ObjectStore, Refused, Unclear

_BACKOFF = Backoff(first_ms=50, most_ms=5_000)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on when the store is busy or answers nothing clear."""

    tries: int = 6
    backoff: Backoff = _BACKOFF
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)

    def wait(self, attempt: int, asked_ms: int | None) -> None:
        """Pause after failure number `attempt`, at least as long as the store asked for."""
        self.clock.sleep_ms(max(self.backoff.delay_ms(attempt, self.ids.jitter()), asked_ms or 0))


def put_checked(
    store: ObjectStore, key: str, body: bytes, mode: Create | Match, *, patience: Patience
) -> Outcome:
    """Write `body` under the condition of `mode` and find out what came of it.

    Guarantees: `Landed` means that the object held exactly `body` at some moment of the call.
    `NotLanded` means that it never did and never will through this call, for `Create` of an object
    that nobody replaces or deletes. An unclear `Match` on an object that somebody else replaced
    since is `Unknown`: what was in between cannot be seen.
    Does not guarantee: that a `Landed` object has not been replaced since.
    Raises: what `ObjectStore.put` raises, which proves that nothing was written.
    """
    unclear: list[str] = []
    busy = ""
    for attempt in range(patience.tries):
        asked_ms: int | None = None
        try:
            reply = store.put(key, body, mode)
        except TidelockError as error:
            if not unclear:
                raise
            # This try wrote nothing, but an earlier one may still land.
            return Unknown(f"{unclear[-1]}; then: {error}")
        match reply:
            case Landed() as landed:
                return landed
            case Busy(asked_ms, cause):
                busy = cause
                patience.wait(attempt, asked_ms)
                continue
            case Refused():
                busy = "refused while the condition holds"
            case Unclear(cause, volatile=True):
                # What is read back is the cache's; whether the device has it, nobody can tell.
                return Unknown(cause)
            case Unclear(cause, asked_ms):
                busy = cause
                unclear.append(cause)
        verdict = _read_back(store, key, body, mode, unclear)
        if verdict is not None:
            return verdict
        # The condition still holds and our bytes are not there, so the same write may be sent
        # again: whichever of the two lands, it is this body, once.
        patience.wait(attempt, asked_ms)
    return Unknown(unclear[-1]) if unclear else NotLanded(f"the store stayed busy: {busy}")


def _read_back(
    store: ObjectStore, key: str, body: bytes, mode: Create | Match, unclear: list[str]
) -> Outcome | None:
    """Return what the object proves; None if the condition still holds and nothing is proven."""
    try:
        found = store.get(key)
    except TidelockError as error:
        return Unknown(f"{unclear[-1] if unclear else 'refused'}; reading back: {error}")
    if found is not None and found.body == body:
        return Landed(found.version)
    match mode:
        case Create():
            return None if found is None else NotLanded("another write was first")
        case Match(version) if found is not None and found.version == version:
            return None
        case Match() if unclear:
            return Unknown(f"{unclear[-1]}; the object was replaced since")
        case Match():
            return NotLanded("the object was replaced or deleted")
