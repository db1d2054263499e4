"""What Java writers with their default settings leave on a table: what is refused here, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidelock.base.errors import Kind
from tidelock.ops.cli.output import counted, duration
from tidelock.ops.doctor.findings import Finding, fine, note, problem
from tidelock.table.properties import TableProperties
from tidelock.table.timeline.instant import Instant
from tidelock.txn.entry import Entry, Foreign
from tidelock.txn.fold import Fold
from tidelock.txn.foreign import off_utc_ms
from tidelock.txn.preconditions import obstacles
from tidelock.txn.recovery import Survey

_REFUSED: Final = Kind.UNSUPPORTED.exit_code
_SHOWN: Final = 3


def check_changeable(properties: TableProperties, fold: Fold) -> Iterator[Finding]:
    """Judge whether the table is one that may be changed here.

    Where nobody of ours has ever written, it is no fault of the table's.
    """
    found = tuple(obstacles(properties))
    for obstacle in found:
        says = f"every write and service is refused here: the table {obstacle.why}"
        if fold.position:
            yield problem(obstacle.about, says, obstacle.hint, exit_code=_REFUSED)
        else:
            yield note(obstacle.about, says, obstacle.hint)
    if not found:
        yield fine("table", "no metadata table, and times in UTC: it may be written here")


def without_entry(fold: Fold, seen: Survey) -> tuple[Instant, ...]:
    """Return the completed writes on the timeline that a ledger in use does not know."""
    done = (i for i in seen.completed if i.action.writes_data and not fold.is_settled(i.requested))
    return tuple(done) if fold.position else ()


def check_foreign(
    fold: Fold, seen: Survey, off: Sequence[tuple[Instant, int]]
) -> Iterator[Finding]:
    """Judge the commits of writers that keep no ledger: those not known yet, and their times.

    `off` are those that `off_utc` returns.
    """
    unknown = without_entry(fold, seen)
    if unknown:
        times = ", ".join(each.requested for each in unknown[:_SHOWN])
        more = ", …" if len(unknown) > _SHOWN else ""
        yield note(
            "ledger",
            f"{counted(len(unknown), 'commit')} of writers that keep no ledger (Java) are not in it"
            f" yet: {times}{more}",
            "the next write or service here takes them into the order; nothing is lost by it",
        )
    yield from _check_times(off)


def off_utc(fold: Fold, seen: Survey, kept: Sequence[Entry]) -> tuple[tuple[Instant, int], ...]:
    """Return commits of writers that keep no ledger which were not stamped in UTC, newest first.

    With each comes by how many milliseconds it is ahead, by the age of its file.
    """
    unknown = without_entry(fold, seen)
    foreign = {entry.fact.instant for entry in kept if isinstance(entry.fact, Foreign)}
    found = []
    for instant in reversed(seen.completed):
        written = seen.written_epoch_ms.get(instant)
        suspect = instant.requested in foreign or instant in unknown
        if suspect and written is not None and instant.completion:
            found.append((instant, off_utc_ms(instant.completion, written)))
    return tuple((instant, ahead_ms) for instant, ahead_ms in found if ahead_ms)


def _check_times(off: Sequence[tuple[Instant, int]]) -> Iterator[Finding]:
    for instant, ahead_ms in off[:1]:
        way = "ahead of" if ahead_ms > 0 else "behind"
        which = f"{instant.action} {instant.requested} of a writer that keeps no ledger (Java)"
        if len(off) > 1:
            which = f"the last of {len(off)} commits, {which},"
        yield problem(
            "time zone",
            f"{which} was completed {duration(abs(ahead_ms))} {way} UTC by its name: its writer is"
            " in another time zone, and rows of it may be hidden by older ones",
            "run such writers with -Duser.timezone=UTC; Spark's Hudi jobs take the time zone"
            " from hoodie.table.timeline.timezone",
            exit_code=1,
        )
