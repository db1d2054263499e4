"""`tidelock lock doctor`: examine a lock, and repair what can be repaired safely."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tidelock.core.clock import Clock
from tidelock.core.errors import ErrorKind, RecordFromFuture, TidelockError
from tidelock.core.formatting import duration, format_epoch_ms
from tidelock.core.ids import IdSource
from tidelock.core.limits import VALIDITY_MS_PLAUSIBLE
from tidelock.inspect import store_checks
from tidelock.inspect.findings import DoctorFinding, Examination, Repair, note, ok, problem
from tidelock.lock import admin
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import ObjectStore

_CORRUPT = ErrorKind.DATA_CORRUPT.exit_code
_YEAR_MS = 365 * 24 * 3_600_000


def check_record(seen: admin.Inspection) -> Iterator[DoctorFinding]:
    """Check the lock record."""
    if not seen.exists:
        yield ok("record", "none: the lock has never been acquired")
        return
    if isinstance(seen.problem, RecordFromFuture):
        yield problem("record", seen.problem.message, seen.problem.hint, exit_code=_CORRUPT)
        return
    if seen.problem is not None:
        yield problem(
            "record",
            f"{seen.problem.message}; written {duration(seen.written_ago_ms)} ago",
            "--fix saves a copy and replaces it with a released record; a holder that is still"
            " running detects that at its next renewal",
            exit_code=_CORRUPT,
            repair=Repair.RECORD,
        )
        return
    assert seen.record is not None
    implausible = _implausible_time(seen.record, seen.seen_at.wall_epoch_ms)
    yield implausible or _lock_state(seen, seen.record)


def check_counter(
    seen: admin.Inspection | None, counter: admin.CounterInspection
) -> Iterator[DoctorFinding]:
    """Check the token counter against the record."""
    record = seen.record if seen is not None else None
    top = max(record.token, record.token_ceiling) if record is not None else 0
    if counter.problem is not None:
        yield problem(
            "tokens",
            f"{counter.problem.message}; a writer that needs new tokens cannot acquire the lock",
            "--fix saves a copy and sets the counter above every token granted so far",
            exit_code=_CORRUPT,
            repair=Repair.COUNTER,
        )
    elif counter.counter is None and top > 0:
        yield note(
            "tokens",
            f"the counter is missing although tokens up to {top} were reserved; if a Java writer"
            " now rewrites the record, tokens start again at 1",
            "--fix writes a counter above them",
            repair=Repair.COUNTER,
        )
    elif counter.counter is None:
        yield ok("tokens", "no counter: no token has been granted yet")
    elif counter.counter.ceiling < top:
        yield problem(
            "tokens",
            f"the counter is {counter.counter.ceiling}, below {top} in the record; if a Java writer"
            " now rewrites the record, tokens are granted twice",
            "--fix raises it",
            exit_code=_CORRUPT,
            repair=Repair.COUNTER,
        )
    else:
        granted = f", last granted {record.token}" if record is not None and record.token else ""
        yield ok("tokens", f"reserved up to {counter.counter.ceiling}{granted}")


def _lock_state(seen: admin.Inspection, record: LockRecord) -> DoctorFinding:
    writer = "" if record.is_ours else " (a Hudi Java writer)"
    token = f", token {record.token}" if record.is_ours else ""
    owner = f"{record.owner}{writer}{token}"
    match seen.condition:
        case admin.Condition.FREE:
            return ok("record", f"released {duration(seen.written_ago_ms)} ago by {owner}")
        case admin.Condition.HELD:
            left = duration(seen.expires_in_ms or 0)
            return ok("record", f"held by {owner}; its lease expires in {left}")
        case admin.Condition.LAPSED:
            left = duration(seen.takeover_in_ms or 0)
            return note(
                "record",
                f"the lease of {owner} has expired; the lock can be taken over in {left}",
                "no action is needed",
            )
        case _:
            over = duration(seen.expires_in_ms or 0)
            return note(
                "record",
                f"{owner} never released it, and its lease expired {over} ago",
                "no action is needed: the next writer takes it over",
            )


def _implausible_time(record: LockRecord, now_epoch_ms: int) -> DoctorFinding | None:
    """Return a finding if `validUntil` implies a wrong clock or unit."""
    until = record.valid_until_epoch_ms
    unit = _unit(until, now_epoch_ms)
    if not record.expired and until - now_epoch_ms > VALIDITY_MS_PLAUSIBLE:
        blocked = f"it blocks all writers for {duration(until - now_epoch_ms)}"
        cause = f"it looks like {unit}" if unit else f"the clock of {record.owner} was wrong"
        return problem(
            "record",
            f"validUntil is {until} ({format_epoch_ms(until)}): {cause}, and {blocked}",
            "make sure that the holder has ended, then run `tidelock lock force-release`",
            exit_code=_CORRUPT,
        )
    if not record.expired and unit:
        return note(
            "record",
            f"validUntil is {until}, which looks like {unit}; in milliseconds it is in the past, so"
            " other writers consider the holder dead",
            "find the program that wrote it, and stop it",
        )
    return None


def _unit(until: int, now_epoch_ms: int) -> str:
    """Return the unit other than milliseconds in which `until` would be about now; else ""."""
    for name, in_ms in (
        ("seconds", until * 1000),
        ("microseconds", until // 1000),
        ("nanoseconds", until // 1_000_000),
    ):
        if abs(in_ms - now_epoch_ms) < _YEAR_MS:
            return name
    return ""


def examine_lock(store: ObjectStore, lease: Lease, clock: Clock, ids: IdSource) -> Examination:
    """Check the lock of the resource at the root of `store`, and the store itself."""
    if store.uri.startswith("file://") and not Path(store.uri.removeprefix("file://")).exists():
        message = "no such folder; the first writer creates it"
        return Examination((note("resource", message, "check the path"),))
    findings: list[DoctorFinding] = []
    seen: admin.Inspection | None = None
    counter: admin.CounterInspection | None = None
    try:
        seen = admin.inspect_lock(store, lease, clock)
        findings += check_record(seen)
        counter = admin.inspect_counter(store)
        findings += check_counter(seen, counter)
    except TidelockError as error:
        findings.append(store_checks.failed("record", "the lock could not be read", error))
        return Examination(tuple(findings), seen, counter)
    findings += _guarded("audit", lambda: store_checks.check_audit(store))
    findings += _guarded("leftovers", lambda: store_checks.check_leftovers(store))
    findings += store_checks.check_conditions(store, clock, ids)
    findings += store_checks.check_clock(store, clock, ids, drift_ms=lease.drift_ms)
    return Examination(tuple(findings), seen, counter)


def repair_lock(
    examination: Examination, store: ObjectStore, clock: Clock, ids: IdSource
) -> list[str]:
    """Repair the lock; return a description of each repair.

    Raises: `Conflict` if an object changed since it was examined; `OutcomeUnknown`.
    """
    seen, counter = examination.seen, examination.counter
    operator = admin.Operator(store, ReadbackPolicy(clock=clock, ids=ids))
    if seen is None or counter is None:
        return []
    # The repair of the record sets the counter as well.
    if Repair.RECORD in examination.repairs:
        saved, record = operator.repair_record(seen, counter)
        done = f"replaced the record with a released one, token {record.token}"
    elif Repair.COUNTER in examination.repairs:
        saved, written = operator.repair_counter(seen, counter)
        done = f"set the token counter to {written.ceiling}"
    else:
        return []
    return [*(f"saved the old bytes as {key}" for key in saved), done]


def _guarded(about: str, check: Callable[[], Iterator[DoctorFinding]]) -> list[DoctorFinding]:
    try:
        return list(check())
    except TidelockError as error:
        return [store_checks.failed(about, "the check failed", error)]
