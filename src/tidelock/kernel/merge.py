"""Which version of a row counts: changes folded to one per key, then laid over base rows. Pure.

Both steps work on whole columns. What they decide is Hudi's:
  * commit-time ordering: the later write wins;
  * event-time ordering: the larger ordering value wins, and of equal ones the later write;
  * a delete in natural order (its ordering value is absent, or the integer 0) beats every earlier
    version whatever its ordering value, and loses to every later one;
  * log files are folded first, and what remains of a key is compared with its base row: a row that
    came after such a delete loses to a base row with a larger ordering value, deleted or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import ConfigInvalid
from tidelock.table.properties import MergeMode, TableProperties
from tidelock.table.schema.meta import RECORD_KEY

DELETE_FIELD: Final = "hoodie.payload.delete.field"
DELETE_MARKER: Final = "hoodie.payload.delete.marker"
"""A column of the user's, and the value in it that makes a record a delete."""


class Merger(Protocol):
    """A merge of the user's own, for tables whose mode is CUSTOM."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns it must see, beside those that a reader asks for."""
        ...

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return what remains of rows that have an older and a newer version.

        Row i of both tables has the same key, and no key comes twice. The result has the same
        columns, at most one row per key, in any order; a key that is missing in it is deleted.
        """
        ...


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the table merges. Event time without ordering fields is commit time, as in Hudi."""

    mode: MergeMode = MergeMode.COMMIT_TIME_ORDERING
    ordering: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None
    merger: Merger | None = None

    @classmethod
    def of(cls, properties: TableProperties, *, merger: Merger | None = None) -> MergeRule:
        """Return the rule of a table. Raises: `ConfigInvalid` for half of a delete marker."""
        field = properties.merge_setting(DELETE_FIELD) or None
        marker = properties.merge_setting(DELETE_MARKER) or None
        if (field is None) != (marker is None):
            missing = DELETE_FIELD if field is None else DELETE_MARKER
            raise ConfigInvalid(f"{properties.where}: {missing} is not set, but its other half is")
        return cls(properties.merge_mode, properties.ordering_fields, field, marker, merger)

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The columns that decide between two versions; none when time of commit does."""
        return self.ordering if self.mode is MergeMode.EVENT_TIME_ORDERING else ()


@dataclass(frozen=True, slots=True)
class Layer:
    """What one log block changed: a row per entry, or deletes without rows, in the block's order.

    `ordering` has an array for each ordering field, made comparable by `comparable`. `natural`
    marks deletes in natural order. `rows` is None for a delete block.
    """

    keys: pa.Array
    rows: pa.Table | None
    deleted: pa.Array
    natural: pa.Array
    ordering: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlay:
    """The outcome of all layers: one entry for each key.

    `row` points into `rows`, null for a delete. `final` marks entries that base rows cannot beat.
    """

    keys: pa.Array
    row: pa.Array
    rows: pa.Table
    final: pa.Array
    ordering: tuple[pa.Array, ...] = ()


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return ordering values as something whose order is Java's, nulls aside.

    Floating numbers become integers with the order of `Double.compareTo`: -0.0 before 0.0, and NaN
    behind everything.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not pt.is_floating(array.type):
        return array
    bits = array.cast(pa.float64()).view(pa.int64())
    # The bits of negative numbers grow with their size, so all but their sign are turned around.
    return pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, 2**63 - 1), bits)


def folded(layers: Sequence[Layer], schema: pa.Schema) -> Overlay:
    """Return the one entry per key that remains when the layers, oldest first, are merged.

    Entries are compared by their ordering arrays, and by their place where those are equal or
    there are none.
    """
    keys = _joined([layer.keys for layer in layers], pa.string())
    deleted = _joined([layer.deleted for layer in layers], pa.bool_())
    row, rows = _rows_of(layers, schema)
    ordering = _orderings(layers)
    at, final = winners(layers)
    kept = pc.if_else(deleted.take(at), pa.scalar(None, pa.int64()), row.take(at))
    values = tuple(column.take(at) for column in ordering)
    return Overlay(keys.take(at), kept, rows, final, values)


def winners(layers: Sequence[Layer]) -> tuple[pa.Array, pa.Array]:
    """Return which entry of each key remains, by its place among the entries of all layers.

    The second array marks those that base rows cannot beat.
    """
    codes = _joined([layer.keys for layer in layers], pa.string()).dictionary_encode()
    ordering = _orderings(layers)
    if not ordering:
        at = _last_of_each(codes)
        return at, _repeated(len(at), value=True)
    natural = _joined([layer.natural for layer in layers], pa.bool_())
    blocks = [_repeated(len(layer.keys), value=layer.rows is None) for layer in layers]
    entries = _Entries(codes.indices, natural, _joined(blocks, pa.bool_()))
    return _greatest_of_each(entries, ordering)


def overlaid(base: Iterable[pa.Table], changes: Overlay, rule: MergeRule) -> Iterator[pa.Table]:
    """Yield the base rows that no change replaces or deletes, and then the changed rows.

    Base rows keep their order; rows that changed come last, updates and inserts together.
    """
    beaten: list[pa.Array] = []
    for batch in base:
        at = places_in(batch, changes)
        if at.null_count == len(at):
            yield batch
            continue
        wins = base_wins(batch, changes, at, rule)
        yield batch.filter(pc.or_(at.is_null(), wins))
        beaten.append(at.filter(wins))
    yield remaining(changes, beaten)


def places_in(batch: pa.Table, changes: Overlay) -> pa.Array:
    """Return where each row's key is among the changes, null where it is not."""
    found = pc.index_in(batch.column(RECORD_KEY), value_set=changes.keys)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def remaining(changes: Overlay, without: Sequence[pa.Array]) -> pa.Table:
    """Return the changed rows, except for the entries at the places of `without`."""
    row = changes.row
    gone = _joined(without, pa.int32())
    if len(gone):
        row = row.filter(pc.invert(pc.is_in(_places(len(row), pa.int32()), value_set=gone)))
    row = row.drop_null()
    # Where every row remains in its place, as in a log without repeated keys, nothing is copied.
    whole = len(row) == changes.rows.num_rows and row.equals(_places(len(row)))
    return changes.rows if whole else changes.rows.take(row)


def _orderings(layers: Sequence[Layer]) -> list[pa.Array]:
    width = max((len(layer.ordering) for layer in layers), default=0)
    return [_joined([layer.ordering[i] for layer in layers], pa.null()) for i in range(width)]


def _rows_of(layers: Sequence[Layer], schema: pa.Schema) -> tuple[pa.Array, pa.Table]:
    """Return where each entry's row is among all rows (null without one), and all rows."""
    places, tables, count = [], [schema.empty_table()], 0
    for layer in layers:
        size = len(layer.keys)
        if layer.rows is None:
            places.append(pa.nulls(size, pa.int64()))
        else:
            places.append(pc.add(_places(size), count))
            tables.append(layer.rows)
            count += size
    if len(tables) == 2:
        return _joined(places, pa.int64()), tables[1]
    return _joined(places, pa.int64()), pa.concat_tables(tables, promote_options="permissive")


def _last_of_each(codes: pa.DictionaryArray) -> pa.Array:
    """Return the last place of each key, in order."""
    places = _places(len(codes))
    if len(codes.dictionary) == len(codes):
        return places
    table = pa.table({"code": codes.indices, "at": places})
    last = table.group_by("code").aggregate([("at", "max")]).column("at_max").combine_chunks()
    return last.take(pc.sort_indices(last))


@dataclass(frozen=True, slots=True)
class _Entries:
    """What event-time order must know of the entries beside their ordering values."""

    codes: pa.Array
    natural: pa.Array
    from_block: pa.Array


def _greatest_of_each(entries: _Entries, ordering: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the place of each key's winner in event time, and whether base rows cannot beat it."""
    size = len(entries.codes)
    at = _places(size)
    if pc.any(entries.natural).as_py():
        at = at.filter(_counting(entries, at))
    columns: dict[str, pa.Array] = {}
    for i, column in enumerate(ordering):
        # No value is below every value, so whether there is one is compared first.
        columns[f"has_{i}"] = column.take(at).is_valid()
        columns[f"value_{i}"] = column.take(at)
    table = pa.table({"code": entries.codes.take(at), **columns, "at": at})
    keys = [(name, "ascending") for name in table.column_names]
    table = table.take(pc.sort_indices(table, sort_keys=keys))
    winners = table.column("at").combine_chunks().filter(_ends_of_runs(table.column("code")))
    return winners, entries.natural.take(winners)


def _counting(entries: _Entries, at: pa.Array) -> pa.Array:
    """Mark the entries that count.

    Nothing before the last natural delete of a key counts. After it, deletes of a delete block have
    nothing to delete until a row comes again, so those do not count either: their ordering value
    beats no row.
    """
    wiped_at = _per_key(entries.codes, at, entries.natural, "max")
    after = pc.fill_null(pc.greater(at, wiped_at), fill_value=False)
    delete = pc.and_(entries.from_block, pc.invert(entries.natural))
    revived_at = _per_key(entries.codes, at, pc.and_(after, pc.invert(delete)), "min")
    revived = pc.fill_null(pc.greater_equal(at, revived_at), fill_value=False)
    idle = pc.and_(pc.and_(after, delete), pc.invert(revived))
    counts = pc.fill_null(pc.greater_equal(at, wiped_at), fill_value=True)
    return pc.and_(counts, pc.invert(idle))


def _per_key(codes: pa.Array, at: pa.Array, chosen: pa.Array, take: str) -> pa.Array:
    """Return for each entry the least or greatest place of the chosen entries of its key."""
    table = pa.table({"code": codes.filter(chosen), "at": at.filter(chosen)})
    found = table.group_by("code").aggregate([("at", take)])
    where = pc.index_in(codes, value_set=found.column("code").combine_chunks())
    return found.column(f"at_{take}").combine_chunks().take(where)


def _ends_of_runs(values: pa.ChunkedArray) -> pa.Array:
    """Mark the last of each run of equal values."""
    whole = values.combine_chunks()
    if not len(whole):
        return pa.array([], pa.bool_())
    changes = pc.not_equal(whole.slice(0, len(whole) - 1), whole.slice(1))
    return pa.concat_arrays([changes, pa.array([True])])


def base_wins(batch: pa.Table, changes: Overlay, at: pa.Array, rule: MergeRule) -> pa.Array:
    """Mark the rows whose change is older in event time. Equal times let the change win."""
    if not rule.ordered_by:
        return _repeated(len(at), value=False)
    mine = [comparable(batch.column(name)) for name in rule.ordered_by]
    greater = _greater(mine, [column.take(at) for column in changes.ordering])
    contested = pc.fill_null(pc.invert(changes.final.take(at)), fill_value=False)
    return pc.and_(contested, greater)


def without_overruled(changes: Overlay, stored: Overlay) -> Overlay:
    """Return the changes, except for those that a stored delete of a later event time outranks.

    A row can be compared with the row it replaces; a delete left none, so it is asked here.
    """
    if not changes.ordering or not stored.ordering:
        return changes
    at = pc.index_in(changes.keys, value_set=stored.keys)
    deleted = pc.and_(at.is_valid(), stored.row.take(at).is_null())
    if not pc.any(deleted).as_py():
        return changes
    greater = _greater([column.take(at) for column in stored.ordering], changes.ordering)
    kept = pc.or_(pc.invert(pc.and_(deleted, greater)), changes.final)
    ordering = tuple(column.filter(kept) for column in changes.ordering)
    return Overlay(
        changes.keys.filter(kept),
        changes.row.filter(kept),
        changes.rows,
        changes.final.filter(kept),
        ordering,
    )


def _greater(mine: Sequence[pa.Array], others: Sequence[pa.Array]) -> pa.Array:
    """Mark where mine come after the others; no value comes before every value."""
    greater, equal = None, None
    for left, right in zip(mine, others, strict=True):
        over = pc.or_kleene(pc.greater(left, right), pc.and_(left.is_valid(), right.is_null()))
        over = pc.fill_null(over, fill_value=False)
        same = pc.or_(
            pc.fill_null(pc.equal(left, right), fill_value=False),
            pc.and_(left.is_null(), right.is_null()),
        )
        greater = over if greater is None else pc.or_(greater, pc.and_(equal, over))
        equal = same if equal is None else pc.and_(equal, same)
    return greater


def _places(size: int, kind: pa.DataType | None = None) -> pa.Array:
    """Return 0, 1, 2 … without a Python object for each."""
    ones = pa.repeat(pa.scalar(1, kind or pa.int64()), size)
    return pc.subtract(pc.cumulative_sum(ones), pa.scalar(1, kind or pa.int64()))


def _repeated(size: int, *, value: bool) -> pa.Array:
    return pa.repeat(pa.scalar(value), size)


def _joined(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)
