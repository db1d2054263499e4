"""Rows that a write brings, laid over what a slice holds, and counted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.kernel.custom import folded_by, overlaid_by
from tidelock.kernel.merge import (
    Layer,
    Merger,
    MergeRule,
    Overlay,
    base_wins,
    folded,
    places_in,
    remaining,
    without_overruled,
)
from tidelock.table.schema.meta import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY


@dataclass(slots=True)
class Tally:
    """What became of the changes, once all stored rows have gone by.

    `ignored` are changes that lost, by their ordering value, to what is stored. A delete of nothing
    is in none of them.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    inserted_keys: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


def laid_over(
    stored: Iterable[pa.Table],
    layers: Sequence[Layer],
    rule: MergeRule,
    *,
    schema: pa.Schema,
    before: Overlay | None,
    tally: Tally,
) -> Iterator[pa.Table]:
    """Yield stored rows without changes, then the changed ones; `tally` is right at the end.

    `before` is what remains of the slice's log files: their deletes may be newer than a change.
    """
    changes = folded(layers, schema)
    if before is not None:
        brought = len(changes.keys)
        changes = without_overruled(changes, before)
        tally.ignored += brought - len(changes.keys)
    found: list[pa.Array] = []
    beaten: list[pa.Array] = []
    for batch in stored:
        at = places_in(batch, changes)
        if at.null_count == len(at):
            yield batch
            continue
        untouched = at.is_null()
        if rule.ordered_by:
            wins = base_wins(batch, changes, at, rule)
            beaten.append(at.filter(wins))
            untouched = pc.or_(untouched, wins)
        found.append(at.drop_null())
        yield batch.filter(untouched)
    yield remaining(changes, beaten)
    counted(tally, changes, found, beaten)


def laid_over_by(
    merger: Merger,
    stored: Iterable[pa.Table],
    layers: Sequence[Layer],
    *,
    schema: pa.Schema,
    tally: Tally,
) -> Iterator[pa.Table]:
    """Do the same by the user's own rule. A row that was merged counts as written by this write."""
    counting = _Counting(merger)
    changes = folded_by(merger, layers, schema)
    found: list[pa.Array] = []

    def seen() -> Iterator[pa.Table]:
        for batch in stored:
            found.append(places_in(batch, changes).drop_null())
            yield batch

    yield from overlaid_by(counting, seen(), changes)
    counted(tally, changes, found, [])
    tally.updated -= counting.gone
    tally.deleted += counting.gone


def counted(
    tally: Tally, changes: Overlay, everywhere: Sequence[pa.Array], beaten: Sequence[pa.Array]
) -> None:
    """Count the changes by where their keys were found, and which of them stored rows beat."""
    found = _places(everywhere)
    old = changes.row.take(found)
    lost = changes.row.take(_places(beaten))
    tally.ignored += len(lost)
    tally.updated += (len(old) - old.null_count) - (len(lost) - lost.null_count)
    tally.deleted += old.null_count - lost.null_count
    places = pc.indices_nonzero(changes.row.is_valid()).cast(pa.int32())
    fresh = places.filter(pc.invert(pc.is_in(places, value_set=found)))
    tally.inserted += len(fresh)
    tally.inserted_keys = changes.keys.take(fresh)


def _places(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the places without repetition: a key may have been stored twice by an insert."""
    return pc.unique(pa.concat_arrays([pa.array([], pa.int32()), *arrays]))


class _Counting:
    """The user's merger, with each row that it returns marked as of the newer version's write."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger
        self.gone = 0

    @property
    def columns(self) -> Sequence[str]:
        return self._merger.columns

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        result = self._merger.merge(older, newer)
        self.gone += older.num_rows - result.num_rows
        if RECORD_KEY not in result.column_names:
            return result  # the caller refuses it, and says so better
        keys = newer.column(RECORD_KEY).combine_chunks()
        at = pc.index_in(result.column(RECORD_KEY), value_set=keys)
        for name in (COMMIT_TIME, COMMIT_SEQNO):
            place = result.column_names.index(name)
            result = result.set_column(place, result.field(name), newer.column(name).take(at))
        return result
