"""Checks of a store: conditional writes, clock, permissions and leftover objects.

The checks write temporary objects under unique names and delete them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.core.clock import Clock
from tidelock.core.errors import StoreUnsafe, TidelockError
from tidelock.core.formatting import duration
from tidelock.core.ids import IdSource
from tidelock.core.outcome import Landed
from tidelock.inspect.findings import DoctorFinding, note, ok, problem
from tidelock.lock.audit import AUDIT_SWITCH_KEY, is_enabled
from tidelock.lock.record_store import LOCK_KEY, LOCKS_FOLDER, TOKENS_KEY
from tidelock.storage.contract import Create, ObjectStore
from tidelock.storage.probe import PROOF_KEY, probe_store

SCRATCH = f"{LOCKS_FOLDER}/.tidelock-clock"
_SECOND_MS = 1000
_LEFTOVERS_MAX = 1000


def check_conditions(store: ObjectStore, clock: Clock, ids: IdSource) -> Iterator[DoctorFinding]:
    """Check that the store supports conditional writes."""
    try:
        probe_store(store, clock=clock, ids=ids)
    except StoreUnsafe as error:
        yield problem("store", error.message, error.hint, exit_code=error.kind.exit_code)
    except TidelockError as error:
        yield failed("store", "the store could not be tested", error)
    else:
        yield ok("store", "create-if-absent and match work, both sequentially and concurrently")


def check_clock(
    store: ObjectStore, clock: Clock, ids: IdSource, *, drift_ms: int
) -> Iterator[DoctorFinding]:
    """Compare the clocks of this machine and the store by the time of a temporary object."""
    if store.uri.startswith(("file://", "memory://")):
        yield ok("clock", "the store is on this machine and uses its clock")
        return
    key = f"{SCRATCH}/{ids.uuid()}"
    try:
        before = clock.now()
        reply = store.put(key, ids.uuid().encode(), Create())
        after = clock.now()
        meta = store.head(key) if isinstance(reply, Landed) else None
        store.delete(key)
    except TidelockError as error:
        yield failed("clock", "the clock of the store could not be read", error)
        return
    if meta is None:
        yield note("clock", "the clock of the store could not be read", "try again")
        return
    yield _compare_clocks(
        meta.modified_epoch_ms, before.wall_epoch_ms, after.wall_epoch_ms, drift_ms=drift_ms
    )


def _compare_clocks(
    stored_ms: int, before_ms: int, after_ms: int, *, drift_ms: int
) -> DoctorFinding:
    # Stores truncate times to the second, so the object may be up to a second younger.
    behind_ms = before_ms - (stored_ms + _SECOND_MS)
    ahead_ms = stored_ms - after_ms
    off_ms = max(behind_ms, ahead_ms, 0)
    if off_ms == 0:
        return ok("clock", "this machine and the store agree to the second")
    side = "ahead of" if behind_ms > 0 else "behind"
    message = f"the clock of this machine is at least {duration(off_ms)} {side} the store's"
    if off_ms <= drift_ms:
        return note("clock", f"{message}, within the allowed drift of {drift_ms} ms")
    return problem(
        "clock",
        f"{message}; the allowed drift is {drift_ms} ms",
        "synchronize the clock of this machine (chrony, ntpd), or raise"
        " tidelock.lock.clock.drift.ms for every writer",
    )


def check_leftovers(store: ObjectStore) -> Iterator[DoctorFinding]:
    """Find objects that earlier repairs and dead programs left in the folder of the lock."""
    known = {LOCK_KEY, TOKENS_KEY, AUDIT_SWITCH_KEY, PROOF_KEY}
    copies: list[str] = []
    unused: list[str] = []
    for prefix in (f"{LOCKS_FOLDER}/.tidelock", f"{LOCKS_FOLDER}/table_lock"):
        for number, meta in enumerate(store.list(prefix)):
            if meta.key in known or number >= _LEFTOVERS_MAX:
                continue
            (copies if ".broken-" in meta.key else unused).append(meta.key)
    if copies:
        yield note(
            "leftovers",
            f"copies of corrupt records ({len(copies)}): {_some(copies)}",
            "delete them when they are no longer needed",
        )
    if unused:
        yield note(
            "leftovers",
            f"unused objects ({len(unused)}): {_some(unused)}",
            "interrupted checks leave such objects; they can be deleted",
        )
    if not copies and not unused:
        yield ok("leftovers", "none")


def check_audit(store: ObjectStore) -> Iterator[DoctorFinding]:
    """Report whether the lock is audited."""
    exists = store.head(AUDIT_SWITCH_KEY) is not None
    state = "on" if is_enabled(store) else "off"
    yield ok("audit", state if exists else "off, never enabled")


def failed(about: str, what: str, error: TidelockError) -> DoctorFinding:
    """Return the finding for a check that failed with an error."""
    advice = error.hint or "check the credentials and the store"
    return problem(about, f"{what}: {error.message}", advice, exit_code=error.kind.exit_code)


def _some(keys: list[str]) -> str:
    names = [key.removeprefix(f"{LOCKS_FOLDER}/") for key in keys[:3]]
    return ", ".join(names) + (", …" if len(keys) > 3 else "")
