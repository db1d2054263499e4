"""Merging: changes are folded to one entry per key, and then applied to stored rows. Pure.

Both steps work on whole columns. The rules are Hudi's:
  * commit-time ordering: the later write wins;
  * event-time ordering: the larger ordering value wins; if equal, the later write;
  * a delete in natural order (its ordering value is absent, or the integer 0) wins over every
    earlier version whatever its ordering value, and loses to every later one;
  * log files are folded first, and the result is compared with the base row: a row that follows
    such a delete loses to a base row with a larger ordering value, deleted or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.core.errors import ConfigInvalid, DataCorrupt, InvalidInput, Unsupported
from tidelock.hudi.properties import MergeMode, TableProperties
from tidelock.hudi.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    IS_DELETED,
    OPERATION,
    RECORD_KEY,
    as_array,
    conform,
    row_numbers,
)

DELETE_FIELD: Final = "hoodie.payload.delete.field"
DELETE_MARKER: Final = "hoodie.payload.delete.marker"
"""A user column, and the value in it that marks a record as a delete."""


class Merger(Protocol):
    """A user-defined merge, for tables whose merge mode is CUSTOM."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns it requires, in addition to those that a reader selects."""
        ...

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Merge rows that have an older and a newer version.

        Row i of both tables has the same key, and keys are unique. The result has the same columns
        and at most one row per key, in any order; keys that are missing in it are deleted.
        """
        ...


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How a table merges. As in Hudi, event time without ordering fields is commit time."""

    mode: MergeMode = MergeMode.COMMIT_TIME_ORDERING
    ordering: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None
    merger: Merger | None = None

    @classmethod
    def of(cls, properties: TableProperties, *, merger: Merger | None = None) -> MergeRule:
        """Return the rule of a table. Raises: `ConfigInvalid` for an incomplete delete marker."""
        field = properties.merge_setting(DELETE_FIELD) or None
        marker = properties.merge_setting(DELETE_MARKER) or None
        if (field is None) != (marker is None):
            missing = DELETE_FIELD if field is None else DELETE_MARKER
            raise ConfigInvalid(
                f"{properties.where}: {missing} is not set",
                hint=f"set both {DELETE_FIELD} and {DELETE_MARKER}, or neither",
            )
        return cls(properties.merge_mode, properties.ordering_fields, field, marker, merger)

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The columns that decide between two versions; none with commit-time ordering."""
        return self.ordering if self.mode is MergeMode.EVENT_TIME_ORDERING else ()


@dataclass(frozen=True, slots=True)
class Layer:
    """The changes of one log block: rows, or deletes without rows, in the block's order.

    `ordering` has an array for each ordering field, converted by `comparable_values`. `natural`
    marks deletes in natural order. `rows` is None for a delete block.
    """

    keys: pa.Array
    rows: pa.Table | None
    deleted: pa.Array
    natural: pa.Array
    ordering: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlay:
    """The folded result of all layers: one entry per key.

    `row` is an index into `rows`, null for a delete. `final` marks entries that always win over
    base rows.
    """

    keys: pa.Array
    row: pa.Array
    rows: pa.Table
    final: pa.Array
    ordering: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Matches:
    """Positions of changes: those whose key is in stored rows, and those that lost to the row."""

    found: list[pa.Array] = field(default_factory=list)
    rejected: list[pa.Array] = field(default_factory=list)


def comparable_values(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert ordering values so that they compare as in Java, apart from nulls.

    Floating-point numbers become integers in the order of `Double.compareTo`: -0.0 before 0.0, and
    NaN last.
    """
    array = as_array(values)
    if not pt.is_floating(array.type):
        return array
    bits = array.cast(pa.float64()).view(pa.int64())
    # The bits of negative numbers are in reverse order, so flip all but the sign.
    return pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, 2**63 - 1), bits)


def fold_layers(layers: Sequence[Layer], schema: pa.Schema) -> Overlay:
    """Fold the layers, oldest first, to one entry per key.

    Entries are compared by their ordering arrays and, if those are equal or absent, by their
    position.
    """
    keys = _concat([layer.keys for layer in layers], pa.string())
    deleted = _concat([layer.deleted for layer in layers], pa.bool_())
    row, rows = _layer_rows(layers, schema)
    ordering = _orderings(layers)
    at, final = winners(layers)
    rows_at = pc.if_else(deleted.take(at), pa.scalar(None, pa.int64()), row.take(at))
    values = tuple(column.take(at) for column in ordering)
    return Overlay(keys.take(at), rows_at, rows, final, values)


def winners(layers: Sequence[Layer]) -> tuple[pa.Array, pa.Array]:
    """Return the winning entry of each key, by its position among the entries of all layers.

    The second array marks those that always win over base rows.
    """
    codes = _concat([layer.keys for layer in layers], pa.string()).dictionary_encode()
    ordering = _orderings(layers)
    if not ordering:
        at = _last_of_each(codes)
        return at, _repeat_flag(len(at), value=True)
    natural = _concat([layer.natural for layer in layers], pa.bool_())
    blocks = [_repeat_flag(len(layer.keys), value=layer.rows is None) for layer in layers]
    return _greatest_of_each(codes.indices, natural, _concat(blocks, pa.bool_()), ordering)


def overlay_rows(
    base: Iterable[pa.Table], changes: Overlay, rule: MergeRule, matches: Matches | None = None
) -> Iterator[pa.Table]:
    """Yield the base rows that no change replaces or deletes, and then the changed rows.

    Base rows keep their order; updates and inserts come last, together. `matches` is filled.
    """
    rejected = [] if matches is None else matches.rejected
    for batch in base:
        at = change_positions(batch, changes)
        if at.null_count == len(at):
            yield batch
            continue
        untouched = at.is_null()
        if rule.ordered_by:
            wins = base_wins(batch, changes, at, rule)
            rejected.append(at.filter(wins))
            untouched = pc.or_(untouched, wins)
        if matches is not None:
            matches.found.append(at.drop_null())
        yield batch.filter(untouched)
    yield remaining_rows(changes, rejected)


def change_positions(batch: pa.Table, changes: Overlay) -> pa.Array:
    """Return the position of each row's key among the changes, null if it is not there."""
    return as_array(pc.index_in(batch.column(RECORD_KEY), value_set=changes.keys))


def remaining_rows(changes: Overlay, without: Sequence[pa.Array]) -> pa.Table:
    """Return the changed rows, except for the entries at the positions in `without`."""
    row = changes.row
    excluded = _concat(without, pa.int32())
    if len(excluded):
        row = row.filter(pc.invert(pc.is_in(row_numbers(len(row), pa.int32()), value_set=excluded)))
    row = row.drop_null()
    # If all rows remain in order, as in a log without repeated keys, nothing is copied.
    unchanged = len(row) == changes.rows.num_rows and row.equals(row_numbers(len(row)))
    return changes.rows if unchanged else changes.rows.take(row)


def _orderings(layers: Sequence[Layer]) -> list[pa.Array]:
    width = max((len(layer.ordering) for layer in layers), default=0)
    return [_concat([layer.ordering[i] for layer in layers], pa.null()) for i in range(width)]


def _layer_rows(layers: Sequence[Layer], schema: pa.Schema) -> tuple[pa.Array, pa.Table]:
    """Return the index of each entry's row among all rows (null without one), and all rows."""
    positions, tables, count = [], [schema.empty_table()], 0
    for layer in layers:
        size = len(layer.keys)
        if layer.rows is None:
            positions.append(pa.nulls(size, pa.int64()))
        else:
            positions.append(pc.add(row_numbers(size), count))
            tables.append(layer.rows)
            count += size
    if len(tables) == 2:
        return _concat(positions, pa.int64()), tables[1]
    return _concat(positions, pa.int64()), pa.concat_tables(tables, promote_options="permissive")


def _last_of_each(codes: pa.DictionaryArray) -> pa.Array:
    """Return the last position of each key, in order."""
    positions = row_numbers(len(codes))
    if len(codes.dictionary) == len(codes):
        return positions
    table = pa.table({"code": codes.indices, "at": positions})
    last = table.group_by("code").aggregate([("at", "max")]).column("at_max").combine_chunks()
    return last.take(pc.sort_indices(last))


def _greatest_of_each(
    codes: pa.Array, natural: pa.Array, from_block: pa.Array, ordering: Sequence[pa.Array]
) -> tuple[pa.Array, pa.Array]:
    """Return the position of each key's winner in event time, and whether it is final."""
    at = row_numbers(len(codes))
    if pc.any(natural).as_py():
        at = at.filter(_effective_entries(codes, natural, from_block, at))
    columns: dict[str, pa.Array] = {}
    for i, column in enumerate(ordering):
        # Null is less than every value, so compare validity first.
        columns[f"has_{i}"] = column.take(at).is_valid()
        columns[f"value_{i}"] = column.take(at)
    table = pa.table({"code": codes.take(at), **columns, "at": at})
    keys = [(name, "ascending") for name in table.column_names]
    table = table.take(pc.sort_indices(table, sort_keys=keys))
    winning = table.column("at").combine_chunks().filter(_ends_of_runs(table.column("code")))
    return winning, natural.take(winning)


def _effective_entries(
    codes: pa.Array, natural: pa.Array, from_block: pa.Array, at: pa.Array
) -> pa.Array:
    """Mark the entries that take part in the comparison.

    Entries before the last natural delete of a key do not. After it, deletes of a delete block have
    nothing to delete until a row follows, so those do not either: their ordering value must not win
    over a row.
    """
    deleted_at = _per_key(codes, at, natural, "max")
    after = pc.fill_null(pc.greater(at, deleted_at), fill_value=False)
    delete = pc.and_(from_block, pc.invert(natural))
    revived_at = _per_key(codes, at, pc.and_(after, pc.invert(delete)), "min")
    revived = pc.fill_null(pc.greater_equal(at, revived_at), fill_value=False)
    ineffective = pc.and_(pc.and_(after, delete), pc.invert(revived))
    effective = pc.fill_null(pc.greater_equal(at, deleted_at), fill_value=True)
    return pc.and_(effective, pc.invert(ineffective))


def _per_key(codes: pa.Array, at: pa.Array, chosen: pa.Array, take: str) -> pa.Array:
    """Return for each entry the smallest or largest position of the chosen entries of its key."""
    table = pa.table({"code": codes.filter(chosen), "at": at.filter(chosen)})
    found = table.group_by("code").aggregate([("at", take)])
    where = pc.index_in(codes, value_set=found.column("code").combine_chunks())
    return found.column(f"at_{take}").combine_chunks().take(where)


def _ends_of_runs(values: pa.ChunkedArray) -> pa.Array:
    """Mark the last of each run of equal values."""
    combined = values.combine_chunks()
    if not len(combined):
        return pa.array([], pa.bool_())
    changes = pc.not_equal(combined.slice(0, len(combined) - 1), combined.slice(1))
    return pa.concat_arrays([changes, pa.array([True])])


def base_wins(batch: pa.Table, changes: Overlay, at: pa.Array, rule: MergeRule) -> pa.Array:
    """Mark the rows whose change is older in event time. With equal times the change wins."""
    if not rule.ordered_by:
        return _repeat_flag(len(at), value=False)
    stored = [comparable_values(batch.column(name)) for name in rule.ordered_by]
    greater = _greater(stored, [column.take(at) for column in changes.ordering])
    contested = pc.fill_null(pc.invert(changes.final.take(at)), fill_value=False)
    return pc.and_(contested, greater)


def drop_overruled(changes: Overlay, stored: Overlay) -> Overlay:
    """Drop the changes that lose to a stored delete with a later event time.

    A row is compared with the row it replaces; a delete left none, so it is checked here.
    """
    if not changes.ordering or not stored.ordering:
        return changes
    at = pc.index_in(changes.keys, value_set=stored.keys)
    deleted = pc.and_(at.is_valid(), stored.row.take(at).is_null())
    if not pc.any(deleted).as_py():
        return changes
    greater = _greater([column.take(at) for column in stored.ordering], changes.ordering)
    retained = pc.or_(pc.invert(pc.and_(deleted, greater)), changes.final)
    return replace(
        changes,
        keys=changes.keys.filter(retained),
        row=changes.row.filter(retained),
        final=changes.final.filter(retained),
        ordering=tuple(column.filter(retained) for column in changes.ordering),
    )


def _greater(lefts: Sequence[pa.Array], rights: Sequence[pa.Array]) -> pa.Array:
    """Mark where the left values are greater; null is less than every value."""
    greater, equal = None, None
    for left, right in zip(lefts, rights, strict=True):
        exceeds = pc.or_kleene(pc.greater(left, right), pc.and_(left.is_valid(), right.is_null()))
        exceeds = pc.fill_null(exceeds, fill_value=False)
        same = pc.or_(
            pc.fill_null(pc.equal(left, right), fill_value=False),
            pc.and_(left.is_null(), right.is_null()),
        )
        greater = exceeds if greater is None else pc.or_(greater, pc.and_(equal, exceeds))
        equal = same if equal is None else pc.and_(equal, same)
    return greater


def _repeat_flag(size: int, *, value: bool) -> pa.Array:
    return pa.repeat(pa.scalar(value), size)


def _concat(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def fold_layers_with(merger: Merger, layers: Sequence[Layer], schema: pa.Schema) -> Overlay:
    """Fold the layers, oldest first, with a user-defined merge.

    A delete discards earlier versions: rows after it are not merged with rows before it.
    """
    state = fold_layers([], schema)
    for layer in layers:
        newer = fold_layers([replace(layer, ordering=())], schema)
        state = _add_layer(merger, state, newer, schema)
    return state


def overlay_rows_with(
    merger: Merger, base: Iterable[pa.Table], changes: Overlay
) -> Iterator[pa.Table]:
    """Yield unchanged base rows, merged rows and, last, new rows."""
    merged: list[pa.Array] = []
    for batch in base:
        at = change_positions(batch, changes)
        if at.null_count == len(at):
            yield batch
            continue
        yield batch.filter(at.is_null())
        pairs = _mergeable(changes, at)
        if pc.any(pairs).as_py():
            older, positions = batch.filter(pairs), at.filter(pairs)
            yield _call_merger(merger, older, changes.rows.take(changes.row.take(positions)))
            merged.append(positions)
    yield remaining_rows(changes, merged)


def _mergeable(changes: Overlay, at: pa.Array) -> pa.Array:
    """Mark the rows that have a newer version to merge with: one without a delete before it."""
    row = changes.row.take(at).is_valid()
    return pc.and_(row, pc.fill_null(pc.invert(changes.final.take(at)), fill_value=False))


def _add_layer(merger: Merger, state: Overlay, newer: Overlay, schema: pa.Schema) -> Overlay:
    """Return the state after one more layer, in which keys are unique."""
    at = pc.index_in(newer.keys, value_set=state.keys)
    had_row = pc.fill_null(state.row.take(at).is_valid(), fill_value=False)
    paired = pc.and_(had_row, newer.row.is_valid())
    older = state.rows.take(state.row.take(at.filter(paired)))
    merged = _call_merger(merger, older, newer.rows.take(newer.row.filter(paired)))
    merged_keys = newer.keys.filter(paired)
    remaining = merged.column(RECORD_KEY).combine_chunks()
    deleted = merged_keys.filter(pc.invert(pc.is_in(merged_keys, value_set=remaining)))
    untouched = pc.invert(pc.is_in(state.keys, value_set=newer.keys))
    unpaired = pc.invert(paired)
    # A row can be merged with base rows unless a delete of its key precedes it.
    ended = pc.fill_null(state.final.take(at), fill_value=False)
    final_alone = pc.or_(ended.filter(unpaired), newer.row.filter(unpaired).is_null())
    final_merged = ended.take(pc.index_in(remaining, value_set=newer.keys))
    offsets = (state.rows.num_rows, state.rows.num_rows + newer.rows.num_rows)
    keys = [state.keys.filter(untouched), newer.keys.filter(unpaired), remaining, deleted]
    row = [
        state.row.filter(untouched),
        pc.add(newer.row.filter(unpaired), offsets[0]),
        pc.add(row_numbers(len(remaining)), offsets[1]),
        pa.nulls(len(deleted), pa.int64()),
    ]
    rows = [schema.empty_table(), state.rows, newer.rows, merged]
    all_final = _repeat_flag(len(deleted), value=True)
    final = [state.final.filter(untouched), final_alone, final_merged, all_final]
    return Overlay(
        pa.concat_arrays(keys),
        pa.concat_arrays(row),
        pa.concat_tables(rows, promote_options="permissive"),
        pa.concat_arrays(final),
    )


def _call_merger(merger: Merger, older: pa.Table, newer: pa.Table) -> pa.Table:
    """Merge the pairs, and check that the merger keeps its contract."""
    if not older.num_rows:
        return newer.slice(0, 0)
    result = merger.merge(older, newer.select(older.column_names))
    if not result.schema.equals(older.schema):
        raise InvalidInput(
            f"merger {type(merger).__name__} returned the columns {result.schema.names}"
            f" with types {result.schema.types}",
            hint="return the columns of the older rows, with their types",
        )
    keys = result.column(RECORD_KEY)
    known = pc.all(pc.is_in(keys, value_set=older.column(RECORD_KEY).combine_chunks())).as_py()
    if (result.num_rows and not known) or pc.count_distinct(keys).as_py() != result.num_rows:
        raise InvalidInput(
            f"merger {type(merger).__name__} returned an unknown or duplicate key",
            hint="return at most one row for each key of the older rows",
        )
    return result


@dataclass(slots=True)
class MergeCounts:
    """The counts of changes, valid once all stored rows have been merged.

    `ignored` changes lost to stored rows by their ordering value. A delete of a missing key is in
    none of them.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    inserted_keys: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


def merge_changes(
    stored: Iterable[pa.Table],
    changes: Overlay,
    rule: MergeRule,
    *,
    before: Overlay | None,
    counts: MergeCounts,
) -> Iterator[pa.Table]:
    """Yield stored rows without changes, then the changed ones; `counts` is valid at the end.

    `before` are the folded changes of the slice's log files: their deletes may be newer than a
    change.
    """
    if before is not None:
        incoming = len(changes.keys)
        changes = drop_overruled(changes, before)
        counts.ignored += incoming - len(changes.keys)
    matches = Matches()
    yield from overlay_rows(stored, changes, rule, matches)
    count_changes(counts, changes, matches)


def merge_changes_with(
    merger: Merger,
    stored: Iterable[pa.Table],
    layers: Sequence[Layer],
    *,
    schema: pa.Schema,
    counts: MergeCounts,
) -> Iterator[pa.Table]:
    """Merge with a user-defined rule. A merged row counts as written by this write."""
    counting_merger = _CountingMerger(merger)
    changes = fold_layers_with(merger, layers, schema)
    matches = Matches()

    def observed() -> Iterator[pa.Table]:
        for batch in stored:
            matches.found.append(change_positions(batch, changes).drop_null())
            yield batch

    yield from overlay_rows_with(counting_merger, observed(), changes)
    count_changes(counts, changes, matches)
    counts.updated -= counting_merger.deleted
    counts.deleted += counting_merger.deleted


def count_changes(counts: MergeCounts, changes: Overlay, matches: Matches) -> None:
    """Count the changes by those found in stored rows, and those that lost to them."""
    found = _unique_positions(matches.found)
    existing = changes.row.take(found)
    lost = changes.row.take(_unique_positions(matches.rejected))
    counts.ignored += len(lost)
    counts.updated += (len(existing) - existing.null_count) - (len(lost) - lost.null_count)
    counts.deleted += existing.null_count - lost.null_count
    positions = pc.indices_nonzero(changes.row.is_valid()).cast(pa.int32())
    inserted = positions.filter(pc.invert(pc.is_in(positions, value_set=found)))
    counts.inserted += len(inserted)
    counts.inserted_keys = changes.keys.take(inserted)


def _unique_positions(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the positions without duplicates: an insert may have stored a key twice."""
    return pc.unique(pa.concat_arrays([pa.array([], pa.int32()), *arrays]))


class _CountingMerger:
    """Wraps a merger: sets commit columns of merged rows, and counts deleted ones."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger
        self.deleted = 0

    @property
    def columns(self) -> Sequence[str]:
        return self._merger.columns

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        result = self._merger.merge(older, newer)
        self.deleted += older.num_rows - result.num_rows
        if RECORD_KEY not in result.column_names:
            return result  # the caller raises a better error
        keys = newer.column(RECORD_KEY).combine_chunks()
        at = pc.index_in(result.column(RECORD_KEY), value_set=keys)
        for name in (COMMIT_TIME, COMMIT_SEQNO):
            index = result.column_names.index(name)
            result = result.set_column(index, result.field(name), newer.column(name).take(at))
        return result


def row_layer(table: pa.Table, schema: pa.Schema, rule: MergeRule, where: str) -> Layer:
    """Return rows as a layer: those of a data block, or of a batch to write."""
    keys = _keys(table, where)
    deleted = deleted_rows(table, rule)
    rows = conform(table, schema, where=where)
    ordering = [comparable_values(rows.column(name)) for name in rule.ordered_by]
    natural = deleted
    for column in ordering:
        natural = pc.and_(natural, _is_default(column))
    # A delete in natural order is not compared, so clear its ordering values.
    ordering = [pc.if_else(natural, pa.scalar(None, column.type), column) for column in ordering]
    return Layer(keys, rows, deleted, natural, tuple(ordering))


def _keys(rows: pa.Table, where: str) -> pa.Array:
    if RECORD_KEY not in rows.column_names:
        raise Unsupported(f"{where}: rows without {RECORD_KEY} cannot be merged")
    keys = rows.column(RECORD_KEY).cast(pa.string()).combine_chunks()
    if len(keys) and keys.null_count == len(keys):
        raise Unsupported(
            f"{where}: {RECORD_KEY} is null in all rows, so they cannot be merged",
            hint="log files of tables with hoodie.populate.meta.fields=false are not supported",
        )
    if keys.null_count:
        raise DataCorrupt(f"{where}: {RECORD_KEY} is null in {keys.null_count} rows")
    return keys


def deleted_rows(rows: pa.Table, rule: MergeRule) -> pa.Array:
    """Mark the rows that are deletes, by any of the three supported columns."""
    masks = []
    if IS_DELETED in rows.column_names and pt.is_boolean(rows.schema.field(IS_DELETED).type):
        masks.append(rows.column(IS_DELETED))
    if OPERATION in rows.column_names:
        masks.append(pc.equal(rows.column(OPERATION), "D"))
    if rule.delete_field is not None and rule.delete_field in rows.column_names:
        column = rows.column(rule.delete_field)
        masks.append(pc.equal(column.cast(pa.string()), rule.delete_marker))
    deleted = pa.repeat(pa.scalar(value=False), rows.num_rows)
    for mask in masks:
        combined = mask.combine_chunks()
        deleted = pc.or_(deleted, pc.fill_null(combined, fill_value=False))
    return deleted


def _is_default(column: pa.Array) -> pa.Array:
    """Mark Hudi's default ordering value: null, or the Java integer 0 (not the long)."""
    if column.type == pa.int32():
        return pc.fill_null(pc.equal(column, 0), fill_value=True)
    return column.is_null()


def delete_layer(keys: pa.Array, schema: pa.Schema, rule: MergeRule) -> Layer:
    """Return deletes in natural order: they win over all earlier versions."""
    all_true = pa.repeat(pa.scalar(value=True), len(keys))
    kinds = [schema.field(name).type for name in rule.ordered_by]
    ordering = [comparable_values(pa.nulls(len(keys), kind)) for kind in kinds]
    return Layer(keys, None, all_true, all_true, tuple(ordering))


def check_ordering(rule: MergeRule, schema: pa.Schema) -> None:
    """Raise `InvalidInput` if an ordering field is not a column of the table."""
    for name in rule.ordered_by:
        if name not in schema.names:
            raise InvalidInput(
                f"ordering field {name!r} is not a column of the table",
                hint=f"the columns are {', '.join(schema.names)}",
            )
