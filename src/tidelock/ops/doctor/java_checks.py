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


def check_foreign(fold: Fold, seen: Survey, kept: Sequence[Entry]) -> Iterator[Finding]:
    """Judge the commits of writers that keep no ledger: those not known yet, and their times."""
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
    foreign = {entry.fact.instant for entry in kept if isinstance(entry.fact, Foreign)}
    suspects = [i for i in seen.completed if i.requested in foreign or i in unknown]
    yield from _times(suspects, seen)


def _times(suspects: Sequence[Instant], seen: Survey) -> Iterator[Finding]:
    """Judge by the age of their files whether commits were stamped in UTC."""
    for instant in reversed(suspects):
        written = seen.written_epoch_ms.get(instant)
        if written is None or not instant.completion:
            continue
        ahead_ms = off_utc_ms(instant.completion, written)
        if ahead_ms:
            way = "ahead of" if ahead_ms > 0 else "behind"
            yield problem(
                "time zone",
                f"{instant.action} {instant.requested} of a writer that keeps no ledger (Java) was"
                f" completed {duration(abs(ahead_ms))} {way} UTC by its name: its writer is in"
                " another time zone, and rows of it may be hidden by older ones",
                "run such writers with -Duser.timezone=UTC; Spark's Hudi jobs take the time zone"
                " from hoodie.table.timeline.timezone",
                exit_code=1,
            )
            return
