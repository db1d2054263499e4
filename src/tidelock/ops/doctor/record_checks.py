"""What a lock record and its token counter tell, without touching anything."""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.base.errors import Kind, RecordFromFuture
from tidelock.base.limits import VALIDITY_MS_PLAUSIBLE
from tidelock.lock.inspect import Condition, CounterInspection, Inspection
from tidelock.lock.record import Record
from tidelock.ops.cli.output import duration, moment
from tidelock.ops.doctor.findings import Cure, Finding, fine, note, problem

_DAMAGED = Kind.DATA_CORRUPT.exit_code
_YEAR_MS = 365 * 24 * 3_600_000


def check_record(seen: Inspection) -> Iterator[Finding]:
    """Judge the lock record."""
    if not seen.exists:
        yield fine("record", "there is none: the lock has never been taken")
        return
    if isinstance(seen.problem, RecordFromFuture):
        yield problem("record", seen.problem.message, seen.problem.hint, exit_code=_DAMAGED)
        return
    if seen.problem is not None:
        yield problem(
            "record",
            f"{seen.problem.message}; written {duration(seen.written_ago_ms)} ago",
            "--fix saves it beside itself and puts a released record in its place; a holder that"
            " still runs learns of that at its next renewal",
            exit_code=_DAMAGED,
            cure=Cure.MEND_RECORD,
        )
        return
    assert seen.record is not None
    odd = _odd_time(seen.record, seen.seen_at.wall_epoch_ms)
    yield odd or _standing(seen, seen.record)


def check_counter(seen: Inspection | None, counted: CounterInspection) -> Iterator[Finding]:
    """Judge the token counter against the record."""
    record = seen.record if seen is not None else None
    top = max(record.token, record.token_ceiling) if record is not None else 0
    if counted.problem is not None:
        yield problem(
            "tokens",
            f"{counted.problem.message}; a taker that needs new tokens is refused",
            "--fix saves it beside itself and writes one above every token granted so far",
            exit_code=_DAMAGED,
            cure=Cure.MEND_COUNTER,
        )
    elif counted.counter is None and top > 0:
        yield note(
            "tokens",
            f"the counter is missing though tokens up to {top} were reserved; if a Java writer now"
            " rewrites the record, tokens start again at 1",
            "--fix writes one above them",
            cure=Cure.MEND_COUNTER,
        )
    elif counted.counter is None:
        yield fine("tokens", "no counter yet: no token was ever granted")
    elif counted.counter.ceiling < top:
        yield problem(
            "tokens",
            f"the counter says {counted.counter.ceiling}, below {top} in the record; if a Java"
            " writer now rewrites the record, tokens are granted twice",
            "--fix raises it",
            exit_code=_DAMAGED,
            cure=Cure.MEND_COUNTER,
        )
    else:
        granted = f", last granted {record.token}" if record is not None and record.token else ""
        yield fine("tokens", f"reserved up to {counted.counter.ceiling}{granted}")


def _standing(seen: Inspection, record: Record) -> Finding:
    writer = "" if record.is_ours else " (a Hudi Java writer)"
    token = f", token {record.token}" if record.is_ours else ""
    owner = f"{record.owner}{writer}{token}"
    match seen.condition:
        case Condition.FREE:
            return fine("record", f"released {duration(seen.written_ago_ms)} ago by {owner}")
        case Condition.HELD:
            left = duration(seen.expires_in_ms or 0)
            return fine("record", f"held by {owner}; its lease runs for another {left}")
        case Condition.LAPSED:
            left = duration(seen.takeover_in_ms or 0)
            return note(
                "record",
                f"the lease of {owner} has run out; it may be taken over in {left}",
                "wait; nothing is to be done",
            )
        case _:
            over = duration(seen.expires_in_ms or 0)
            return note(
                "record",
                f"{owner} never released it and its lease ran out {over} ago",
                "nothing is to be done: the next taker takes it over",
            )


def _odd_time(record: Record, now_epoch_ms: int) -> Finding | None:
    """Return what is wrong with `validUntil`, if a clock or a unit must be."""
    until = record.valid_until_epoch_ms
    unit = _unit(until, now_epoch_ms)
    if not record.expired and until - now_epoch_ms > VALIDITY_MS_PLAUSIBLE:
        blocked = f"it blocks everyone for another {duration(until - now_epoch_ms)}"
        cause = f"it looks like {unit}" if unit else f"the clock of {record.owner} was wrong"
        return problem(
            "record",
            f"validUntil is {until} ({moment(until)}): {cause}, and {blocked}",
            "make sure that the holder is gone, then `tidelock lock force-release`",
            exit_code=_DAMAGED,
        )
    if not record.expired and unit:
        return note(
            "record",
            f"validUntil is {until}, which looks like {unit}; as milliseconds it lies in the past,"
            " so takers treat the record as dead",
            "find out which program wrote it, and stop it",
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
