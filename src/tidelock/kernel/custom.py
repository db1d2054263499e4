"""Merging by the user's own rule: the steps of `merge`, with the rule asked for pairs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import InvalidInput
from tidelock.kernel.merge import Layer, Merger, Overlay, folded, places_in, remaining
from tidelock.table.schema.meta import RECORD_KEY


def folded_by(merger: Merger, layers: Sequence[Layer], schema: pa.Schema) -> Overlay:
    """Return the one entry per key that remains when the layers, oldest first, are merged.

    A delete ends what came before it: rows after it are not merged with rows from before.
    """
    state = folded([], schema)
    for layer in layers:
        newer = folded([_unordered(layer)], schema)
        state = _added(merger, state, newer, schema)
    return state


def overlaid_by(merger: Merger, base: Iterable[pa.Table], changes: Overlay) -> Iterator[pa.Table]:
    """Yield base rows without changes, merged rows, and at the end the rows that are new."""
    merged: list[pa.Array] = []
    for batch in base:
        at = places_in(batch, changes)
        if at.null_count == len(at):
            yield batch
            continue
        yield batch.filter(at.is_null())
        pairs = _pairs(changes, at)
        if pc.any(pairs).as_py():
            older, places = batch.filter(pairs), at.filter(pairs)
            yield _asked(merger, older, changes.rows.take(changes.row.take(places)))
            merged.append(places)
    yield remaining(changes, merged)


def _pairs(changes: Overlay, at: pa.Array) -> pa.Array:
    """Mark the rows that have a newer version to be merged with: one that no delete came before."""
    row = changes.row.take(at).is_valid()
    return pc.and_(row, pc.fill_null(pc.invert(changes.final.take(at)), fill_value=False))


def _added(merger: Merger, state: Overlay, newer: Overlay, schema: pa.Schema) -> Overlay:
    """Return the state after one more layer, whose own keys are single already."""
    at = pc.index_in(newer.keys, value_set=state.keys)
    had_row = pc.fill_null(state.row.take(at).is_valid(), fill_value=False)
    both = pc.and_(had_row, newer.row.is_valid())
    older = state.rows.take(state.row.take(at.filter(both)))
    merged = _asked(merger, older, newer.rows.take(newer.row.filter(both)))
    asked = newer.keys.filter(both)
    left = merged.column(RECORD_KEY).combine_chunks()
    gone = asked.filter(pc.invert(pc.is_in(asked, value_set=left)))
    kept = pc.invert(pc.is_in(state.keys, value_set=newer.keys))
    alone = pc.invert(both)
    # A row stays mergeable with base rows unless a delete of its key came before it.
    ended = pc.fill_null(state.final.take(at), fill_value=False)
    final_alone = pc.or_(ended.filter(alone), newer.row.filter(alone).is_null())
    final_merged = ended.take(pc.index_in(left, value_set=newer.keys))
    rows = [state.rows, newer.rows, merged]
    offsets = (state.rows.num_rows, state.rows.num_rows + newer.rows.num_rows)
    places = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(left))), 1)
    return Overlay(
        pa.concat_arrays([state.keys.filter(kept), newer.keys.filter(alone), left, gone]),
        pa.concat_arrays(
            [
                state.row.filter(kept),
                pc.add(newer.row.filter(alone), offsets[0]),
                pc.add(places, offsets[1]),
                pa.nulls(len(gone), pa.int64()),
            ]
        ),
        pa.concat_tables([schema.empty_table(), *rows], promote_options="permissive"),
        pa.concat_arrays(
            [
                state.final.filter(kept),
                final_alone,
                final_merged,
                pa.repeat(pa.scalar(value=True), len(gone)),
            ]
        ),
    )


def _unordered(layer: Layer) -> Layer:
    return Layer(layer.keys, layer.rows, layer.deleted, layer.natural)


def _asked(merger: Merger, older: pa.Table, newer: pa.Table) -> pa.Table:
    """Return what the merger makes of the pairs, checked against what it promised."""
    if not older.num_rows:
        return newer.slice(0, 0)
    result = merger.merge(older, newer.select(older.column_names))
    if not result.schema.equals(older.schema):
        raise InvalidInput(
            f"the merger {type(merger).__name__} gave back the columns {result.schema.names}"
            f" with types {result.schema.types}",
            hint="return the columns of the older rows, with their types",
        )
    keys = result.column(RECORD_KEY)
    known = pc.all(pc.is_in(keys, value_set=older.column(RECORD_KEY).combine_chunks())).as_py()
    if (result.num_rows and not known) or pc.count_distinct(keys).as_py() != result.num_rows:
        raise InvalidInput(
            f"the merger {type(merger).__name__} gave back a key it was not given, or one twice",
            hint="return at most one row for each key of the older rows",
        )
    return result
