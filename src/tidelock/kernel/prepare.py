"""From a user's rows to rows that can be written: the table's columns, keyed, one row per key.

Prepared rows have `_hoodie_record_key` and `_hoodie_partition_path` in front of the user's columns.
Those of a delete have nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import InvalidInput, Unsupported
from tidelock.kernel.custom import folded_by
from tidelock.kernel.layers import check_ordering, row_layer
from tidelock.kernel.merge import Layer, Merger, MergeRule, folded
from tidelock.table.keys import KeyRule, partition_paths, record_keys
from tidelock.table.properties import MergeMode
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

_BETWEEN: Final = "\x00"
"""Cannot be in a partition path, so it keeps path and key apart when both are one text."""


@dataclass(frozen=True, slots=True)
class PrepareRule:
    """How rows are prepared. `schema` has the user's columns, after evolution.

    With `only_keys` the rows are those of a delete: they need the columns of the key, and of the
    partition path unless they are to be deleted from every partition (`anywhere`).
    """

    schema: pa.Schema
    keys: KeyRule
    merge: MergeRule
    dedupe: bool = True
    only_keys: bool = False
    anywhere: bool = False
    where: str = "the rows"


def prepared(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return the rows, conformed, keyed, and without duplicates if the rule says so.

    Raises: `InvalidInput` naming the column and the row for a missing, null or unfit value.
    """
    found = keyed(rows, rule)
    return deduplicated(found, rule) if rule.dedupe else found


def keyed(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return the rows with the table's columns and types, and with key and partition path.

    Raises: `InvalidInput`.
    """
    rows = _with_scales(rows, rule)
    keys = record_keys(rows, rule.keys)
    if rule.anywhere:
        paths = pa.nulls(rows.num_rows, pa.string())
    else:
        paths = partition_paths(rows, rule.keys)
    columns = {RECORD_KEY: keys, PARTITION_PATH: paths}
    if rule.only_keys:
        return pa.table(columns)
    conforming = conformed(rows, rule.schema, where=rule.where)
    _refuse_nulls(conforming, rule)
    for name in conforming.column_names:
        columns[name] = conforming.column(name)
    fields = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH)]
    return pa.Table.from_arrays(
        list(columns.values()), schema=pa.schema([*fields, *conforming.schema])
    )


def deduplicated(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return one row for each key and partition, by the merge rule; the others keep their order.

    Rows are as `keyed` returns them. A delete that wins (`_hoodie_is_deleted`) stays, as a row.
    """
    keys = identities(rows)
    if pc.count_distinct(keys).as_py() == len(keys):
        return rows
    if rule.only_keys:
        nothing = pa.repeat(pa.scalar(value=False), len(keys))
        winners = folded([Layer(keys, rows, nothing, nothing)], rows.schema).row
        return rows.take(winners.sort())
    if rule.merge.mode is MergeMode.CUSTOM:
        return _merged(rows, rule)
    check_ordering(rule.merge, rows.schema)
    layer = row_layer(rows, rows.schema, rule.merge, rule.where)
    # No entry counts as deleted here, so the winner's row is known whether or not it is a delete.
    nothing = pa.repeat(pa.scalar(value=False), len(keys))
    whole = Layer(keys, rows, nothing, layer.natural, layer.ordering)
    return rows.take(folded([whole], rows.schema).row.sort())


def identities(rows: pa.Table) -> pa.Array:
    """Return what tells rows apart: the key, with its partition where there are several."""
    keys = _whole(rows.column(RECORD_KEY))
    paths = rows.column(PARTITION_PATH)
    if pc.count_distinct(paths, mode="all").as_py() <= 1:
        return keys
    return pc.binary_join_element_wise(pc.fill_null(_whole(paths), ""), keys, _BETWEEN)


def spread(rows: pa.Table, partitions: list[str]) -> pa.Table:
    """Return keys without a partition once for each partition: where they are is looked up."""
    parts = []
    for partition in partitions:
        place = pa.repeat(pa.scalar(partition), rows.num_rows)
        index = rows.column_names.index(PARTITION_PATH)
        parts.append(rows.set_column(index, pa.field(PARTITION_PATH, pa.string()), place))
    return pa.concat_tables([rows.slice(0, 0), *parts])


def _merged(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Let the user's merger make one row of the versions of a key, in the order they came."""
    merger = rule.merge.merger
    if merger is None:
        raise Unsupported(
            f"{rule.where}: the batch has keys twice, and the table merges by a class of its own",
            hint="give the merge as a Merger, or one row per key",
        )
    paths = _whole(rows.column(PARTITION_PATH))
    tables = [
        _merged_partition(merger, rows.filter(pc.equal(paths, path)))
        for path in paths.unique().to_pylist()
    ]
    return pa.concat_tables(tables, promote_options="permissive")


def _merged_partition(merger: Merger, rows: pa.Table) -> pa.Table:
    keys = _whole(rows.column(RECORD_KEY))
    layers, left = [], rows
    while left.num_rows:
        # The first version of every key makes one layer, the second the next, and so on.
        now = _whole(left.column(RECORD_KEY))
        places = pa.array(range(len(now)), pa.int64())
        first = pa.table({"key": now, "at": places}).group_by("key").aggregate([("at", "min")])
        at = first.column("at_min").combine_chunks()
        chosen = left.take(at)
        nothing = pa.repeat(pa.scalar(value=False), chosen.num_rows)
        layers.append(Layer(now.take(at), chosen, nothing, nothing))
        left = left.filter(pc.invert(pc.is_in(places, value_set=at)))
    done = folded_by(merger, layers, rows.schema)
    order = pc.index_in(keys.unique(), value_set=done.keys)
    return done.rows.take(done.row.take(order).drop_null())


def _with_scales(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return the rows with the table's scale of decimals that are keys: it shows in their text."""
    for name in (*rule.keys.keys, *rule.keys.partitions):
        at, mine = rule.schema.get_field_index(name), rows.schema.get_field_index(name)
        if at < 0 or mine < 0:
            continue
        wanted, found = rule.schema.field(at).type, rows.schema.field(mine).type
        if pt.is_decimal(wanted) and pt.is_decimal(found) and wanted.scale != found.scale:
            try:
                column = rows.column(mine).cast(wanted)
            except pa.ArrowInvalid as error:
                raise InvalidInput(
                    f"{rule.where}: column {name} does not fit {wanted}: {error}"
                ) from error
            rows = rows.set_column(mine, name, column)
    return rows


def _refuse_nulls(rows: pa.Table, rule: PrepareRule) -> None:
    for field in rule.schema:
        if field.nullable:
            continue
        missing = rows.column(field.name).null_count
        if missing:
            raise InvalidInput(
                f"{rule.where}: column {field.name} is null in {missing} rows, and the table's"
                " schema says that it never is",
                hint="fill it, or leave such rows out",
            )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    return found
