"""A whole examination of one lock, and the cure of what may safely be cured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.base.ids import IdSource
from tidelock.lock.force import Operator
from tidelock.lock.inspect import CounterInspection, Inspection, inspect_counter, inspect_lock
from tidelock.lock.lease import Lease
from tidelock.ops.doctor import record_checks, store_checks
from tidelock.ops.doctor.findings import Cure, Examination, Finding, note
from tidelock.store.contract import ObjectStore
from tidelock.store.readback import Patience


def examine(store: ObjectStore, lease: Lease, clock: Clock, ids: IdSource) -> Examination:
    """Look at everything about the lock of the resource at the root of `store`."""
    if _is_missing_folder(store.uri):
        says = "there is no such folder; the first taker makes it"
        return Examination((note("resource", says, "check the spelling"),))
    findings: list[Finding] = []
    seen: Inspection | None = None
    counted: CounterInspection | None = None
    try:
        seen = inspect_lock(store, lease, clock)
        findings += record_checks.check_record(seen)
        counted = inspect_counter(store)
        findings += record_checks.check_counter(seen, counted)
    except TidelockError as error:
        findings.append(store_checks.refused("record", "the lock could not be read", error))
        return Examination(tuple(findings), seen, counted)
    findings += _guarded("audit", lambda: store_checks.check_audit(store))
    findings += _guarded("leftovers", lambda: store_checks.check_leftovers(store))
    findings += store_checks.check_conditions(store, clock, ids)
    findings += store_checks.check_clock(store, clock, ids, drift_ms=lease.drift_ms)
    return Examination(tuple(findings), seen, counted)


def cure(examination: Examination, store: ObjectStore, clock: Clock, ids: IdSource) -> list[str]:
    """Mend what the examination found; return what was done, in sentences.

    Raises: `Conflict` when an object changed since it was examined; `OutcomeUnknown`.
    """
    seen, counted = examination.seen, examination.counted
    done: list[str] = []
    operator = Operator(store, Patience(clock=clock, ids=ids))
    of_locks = (Cure.MEND_RECORD, Cure.MEND_COUNTER)
    for wanted in [cure for cure in examination.cures if cure in of_locks][:1]:
        assert seen is not None
        assert counted is not None
        if wanted is Cure.MEND_RECORD:
            saved, record = operator.mend_record(seen, counted)
            done += [f"saved the old bytes as {key}" for key in saved]
            done.append(f"replaced the record by a released one, token {record.token}")
        else:
            saved, counter = operator.mend_counter(seen, counted)
            done += [f"saved the old bytes as {key}" for key in saved]
            done.append(f"set the token counter to {counter.ceiling}")
    return done


def _guarded(about: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except TidelockError as error:
        return [store_checks.refused(about, "it could not be looked at", error)]


def _is_missing_folder(uri: str) -> bool:
    return uri.startswith("file://") and not Path(uri.removeprefix("file://")).exists()
