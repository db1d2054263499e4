"""What a store shows when it is tried: its conditions, its clock, its permissions, leftovers.

The trials write scratch objects under names of their own and remove them again.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.base.clock import Clock
from tidelock.base.errors import StoreUnsafe, TidelockError
from tidelock.base.ids import IdSource
from tidelock.base.outcome import Landed
from tidelock.lock.audit import AUDIT_SWITCH_KEY, is_enabled
from tidelock.lock.objects import LOCK_KEY, LOCKS_FOLDER, TOKENS_KEY
from tidelock.ops.cli.output import duration
from tidelock.ops.doctor.findings import Finding, fine, note, problem
from tidelock.store.contract import Create, ObjectStore
from tidelock.store.probe import PROOF_KEY, prove

SCRATCH = f"{LOCKS_FOLDER}/.tidelock-clock"
_SECOND_MS = 1000
_LEFTOVERS_MAX = 1000


def check_conditions(store: ObjectStore, clock: Clock, ids: IdSource) -> Iterator[Finding]:
    """Prove that the store honours conditional writes."""
    try:
        prove(store, clock=clock, ids=ids)
    except StoreUnsafe as error:
        yield problem("store", error.message, error.hint, exit_code=error.kind.exit_code)
    except TidelockError as error:
        yield refused("store", "the store could not be tried", error)
    else:
        yield fine("store", "it honours create-if-absent and match, one by one and racing")


def check_clock(
    store: ObjectStore, clock: Clock, ids: IdSource, *, drift_ms: int
) -> Iterator[Finding]:
    """Compare this machine's clock with the store's, by the time on a scratch object."""
    if store.uri.startswith(("file://", "memory://")):
        yield fine("clock", "the store is on this machine and shares its clock")
        return
    key = f"{SCRATCH}/{ids.uuid()}"
    try:
        before = clock.now()
        reply = store.put(key, ids.uuid().encode(), Create())
        after = clock.now()
        meta = store.head(key) if isinstance(reply, Landed) else None
        store.delete(key)
    except TidelockError as error:
        yield refused("clock", "the store's clock could not be read", error)
        return
    if meta is None:
        yield note("clock", "the store's clock could not be read", "try again")
        return
    yield _compared(
        meta.modified_epoch_ms, before.wall_epoch_ms, after.wall_epoch_ms, drift_ms=drift_ms
    )


def _compared(stored_ms: int, before_ms: int, after_ms: int, *, drift_ms: int) -> Finding:
    # Stores cut times to the second, so the object may have been written up to one later.
    behind_ms = before_ms - (stored_ms + _SECOND_MS)
    ahead_ms = stored_ms - after_ms
    off_ms = max(behind_ms, ahead_ms, 0)
    if off_ms == 0:
        return fine("clock", "this machine and the store agree, to the second that stores tell")
    side = "ahead of" if behind_ms > 0 else "behind"
    says = f"this machine's clock is at least {duration(off_ms)} {side} the store's"
    if off_ms <= drift_ms:
        return note("clock", f"{says}, within the drift of {drift_ms} ms allowed for")
    return problem(
        "clock",
        f"{says}; contenders may differ by {drift_ms} ms",
        "synchronise the clock of this machine (chrony, ntpd), or raise"
        " tidelock.lock.clock.drift.ms for every contender",
        exit_code=1,
    )


def check_leftovers(store: ObjectStore) -> Iterator[Finding]:
    """Look for what earlier repairs and dead programs left beside the lock."""
    known = {LOCK_KEY, TOKENS_KEY, AUDIT_SWITCH_KEY, PROOF_KEY}
    copies: list[str] = []
    scratch: list[str] = []
    for prefix in (f"{LOCKS_FOLDER}/.tidelock", f"{LOCKS_FOLDER}/table_lock"):
        for number, meta in enumerate(store.list(prefix)):
            if meta.key in known or number >= _LEFTOVERS_MAX:
                continue
            (copies if ".broken-" in meta.key else scratch).append(meta.key)
    if copies:
        yield note(
            "leftovers",
            f"saved copies of what could not be read ({len(copies)}): {_some(copies)}",
            "delete them once somebody has looked at them",
        )
    if scratch:
        yield note(
            "leftovers",
            f"objects that no lock uses ({len(scratch)}): {_some(scratch)}",
            "trials that were cut short leave such behind; they are harmless and may be deleted",
        )
    if not copies and not scratch:
        yield fine("leftovers", "none")


def check_audit(store: ObjectStore) -> Iterator[Finding]:
    """Say whether holdings are audited."""
    exists = store.head(AUDIT_SWITCH_KEY) is not None
    state = "on" if is_enabled(store) else "off"
    yield fine("audit", state if exists else "off, never switched on")


def refused(about: str, what: str, error: TidelockError) -> Finding:
    """Return the finding for a request that the store did not grant."""
    advice = error.hint or "look at the credentials and at the store"
    return problem(about, f"{what}: {error.message}", advice, exit_code=error.kind.exit_code)


def _some(keys: list[str]) -> str:
    names = [key.removeprefix(f"{LOCKS_FOLDER}/") for key in keys[:3]]
    return ", ".join(names) + (", …" if len(keys) > 3 else "")
