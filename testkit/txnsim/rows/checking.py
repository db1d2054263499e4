"""Checks at the end of a schedule with rows: every read must equal the oracle's table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from testkit.txnsim.checkers import answers
from testkit.txnsim.rows.actors import BEFORE_ALL
from testkit.txnsim.rows.oracle import Place, Table, difference
from testkit.txnsim.rows.parameters import Parameters, Work
from testkit.txnsim.rows.truth import ReadRecord, RowStore, RowTruth
from tidelock.core.errors import NotFound, TidelockError
from tidelock.operations.read import TableReader, snapshot_now


def violations(truth: RowTruth, store: RowStore, parameters: Parameters) -> Iterator[str]:
    """Yield all violated guarantees."""
    yield from truth.broken
    yield from answers(truth)
    if missing := set(truth.position) - truth.published:
        yield f"G6: {min(missing)} is committed, but not published"
    yield from _seen(truth)
    try:
        yield from _read(truth, store, parameters)
    except TidelockError as error:
        yield f"T13: the table cannot be read: {type(error).__name__}: {error}"


def _read(truth: RowTruth, store: RowStore, parameters: Parameters) -> Iterator[str]:
    table = TableReader(snapshot_now(store))
    now = truth.at()
    if wrong := difference(table.read().to_pylist(), now):
        yield f"R1: the table does not match the ledger: {wrong}"
    if lost := now.columns - set(table.schema.names):
        yield f"R2: the columns {', '.join(sorted(lost))} are missing"
    cleaned = any(work is Work.CLEAN for turns in parameters.services for work in turns)
    yield from _as_of(truth, table, cleaned=cleaned)
    yield from _changes(truth, table, cleaned=cleaned)


def _as_of(truth: RowTruth, table: TableReader, *, cleaned: bool) -> Iterator[str]:
    for completion, instant in truth.writes():
        try:
            found = table.read(as_of=instant).to_pylist()
        except NotFound:
            if not cleaned:
                raise
            continue
        if wrong := difference(found, truth.at(until=completion)):
            yield f"R3: as of {instant} {wrong}"


def _changes(truth: RowTruth, table: TableReader, *, cleaned: bool) -> Iterator[str]:
    ends = [BEFORE_ALL, *(time for time, _ in truth.writes())]
    last = ends[-1]
    ranges = [*pairwise(ends), *((begin, last) for begin in ends[:-1:3])]
    for since, until in ranges:
        try:
            found = table.changes(since, until).to_pylist()
        except NotFound:
            if not cleaned:
                raise
            continue
        if wrong := _different(truth, ReadRecord("", found, since=since, until=until)):
            yield f"R4: changes after {since} up to {until}: {wrong}"


def _seen(truth: RowTruth) -> Iterator[str]:
    """Check the reads that were made during the schedule."""
    for seen in truth.seen:
        if seen.until:
            if wrong := _different(truth, seen):
                yield f"R5: {seen.who}, changes after {seen.since} up to {seen.until}: {wrong}"
            continue
        wrongs = [
            difference(seen.rows, truth.at(position))
            for position in range(seen.position, seen.end + 1)
        ]
        if all(wrongs):
            between = f"between {seen.position} and {seen.end}"
            yield f"R6: {seen.who} read a state that never existed, {between}: {wrongs[-1]}"


def _different(truth: RowTruth, seen: ReadRecord) -> str:
    """Return where changes differ from what the writes in their range changed, as of its end."""
    state = truth.at(until=seen.until)
    inside = {instant for _, time, instant in truth.done() if seen.since < time <= seen.until}
    if inside & truth.aborted:
        return ""  # rolled back later, but visible when it was read
    return difference(seen.rows, state, changed_by(state, inside))


def changed_by(state: Table, instants: set[str]) -> set[Place]:
    """Return the rows that some writes changed last."""
    return {place for place, instant in state.changed.items() if instant in instants}
