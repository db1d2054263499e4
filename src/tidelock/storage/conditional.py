"""Conditional writes with a verified outcome: landed, not landed, or unknown.

The body must differ from every other body ever written to its key (it contains a nonce), so that
reading it back proves that this write landed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.outcome import Landed, NotLanded, Outcome, Unknown
from tidelock.core.retry import Backoff
from tidelock.storage.contract import Busy, Create, Match, ObjectStore, Refused, Unclear

_BACKOFF = Backoff(first_ms=50, max_ms=5_000)


@dataclass(frozen=True, slots=True)
class ReadbackPolicy:
    """How often a write is retried while the store is busy or its answers are unclear."""

    clock: Clock
    ids: IdSource
    tries: int = 6
    backoff: Backoff = _BACKOFF

    def wait(self, attempt: int, retry_after_ms: int | None) -> None:
        """Pause after failure number `attempt`, at least as long as the store requested."""
        self.clock.sleep_ms(
            max(self.backoff.delay_ms(attempt, self.ids.jitter()), retry_after_ms or 0)
        )


def put_and_verify(
    store: ObjectStore, key: str, body: bytes, mode: Create | Match, *, policy: ReadbackPolicy
) -> Outcome:
    """Write `body` under the condition of `mode`, and verify the outcome by reading back.

    Guarantees: `Landed` means that the object had exactly `body` at some time during the call.
    `NotLanded` means that it never had and never will through this call, for `Create` of an object
    that nobody replaces or deletes. An unclear `Match` on an object that another writer replaced
    since is `Unknown`: the versions in between cannot be read.
    Does not guarantee: that a `Landed` object has not been replaced since.
    Raises: the errors of `ObjectStore.put`, which prove that nothing was written.
    """
    unclear: list[str] = []
    busy = ""
    for attempt in range(policy.tries):
        retry_after_ms: int | None = None
        try:
            reply = store.put(key, body, mode)
        except TidelockError as error:
            if not unclear:
                raise
            # This attempt wrote nothing, but an earlier one may still land.
            return Unknown(f"{unclear[-1]}; then: {error}")
        match reply:
            case Landed() as landed:
                return landed
            case Busy(retry_after_ms, cause):
                busy = cause
                policy.wait(attempt, retry_after_ms)
                continue
            case Refused():
                busy = "refused while the condition holds"
            case Unclear(cause, volatile=True):
                # Reading back returns what is in the cache; the device may not have it.
                return Unknown(cause)
            case Unclear(cause, retry_after_ms):
                busy = cause
                unclear.append(cause)
        outcome = _read_back(store, key, body, mode, unclear)
        if outcome is not None:
            return outcome
        # The condition still holds and our bytes are not there, so the same write may be sent
        # again: whichever of the two lands, it writes this body once.
        policy.wait(attempt, retry_after_ms)
    return Unknown(unclear[-1]) if unclear else NotLanded(f"the store stayed busy: {busy}")


def _read_back(
    store: ObjectStore, key: str, body: bytes, mode: Create | Match, unclear: list[str]
) -> Outcome | None:
    """Return the outcome that the object proves; None if the condition still holds."""
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
