"""How a schema grows: columns are added, types widen, and old rows are read under the result.

Widening is what Hudi allows on write: int to long to float to double, whole numbers to strings,
strings and bytes into each other, decimals to more digits on both sides of the point, and
timestamps to finer units. Inside structs, lists and maps the same holds for each part.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import InvalidInput

_UNITS = ("s", "ms", "us", "ns")


def evolved(table: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """Return the schema of a table after rows of `incoming` were written to it.

    The table's columns keep their order, widened where rows need it; columns that only the rows
    have follow, nullable, because older rows lack them.

    Raises: `InvalidInput` naming the column and both types when neither holds the other.
    """
    return pa.schema(_evolved_fields(list(table), list(incoming), ""))


def _evolved_fields(
    table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: str
) -> list[pa.Field]:
    offered = {field.name: field for field in incoming}
    found = []
    for field in table:
        other = offered.pop(field.name, None)
        if other is None:
            found.append(field)
            continue
        kind = _common(field.type, other.type, f"{path}{field.name}")
        found.append(pa.field(field.name, kind, nullable=field.nullable or other.nullable))
    return found + [pa.field(field.name, field.type) for field in offered.values()]


def _common(left: pa.DataType, right: pa.DataType, path: str) -> pa.DataType:
    """Return the type that holds both, by widening one of them."""
    if pt.is_struct(left) and pt.is_struct(right):
        return pa.struct(_evolved_fields(list(left), list(right), f"{path}."))
    if _is_list(left) and _is_list(right):
        item = _common(left.value_type, right.value_type, f"{path}[]")
        return pa.list_(left.value_field.with_type(item))
    if pt.is_map(left) and pt.is_map(right):
        item = _common(left.item_type, right.item_type, f"{path}{{}}")
        return pa.map_(left.key_type, left.item_field.with_type(item))
    if left.equals(right) or widens(right, left):
        return left
    if widens(left, right):
        return right
    if pt.is_decimal(left) and pt.is_decimal(right):
        whole = max(left.precision - left.scale, right.precision - right.scale)
        scale = max(left.scale, right.scale)
        if whole + scale <= 38:
            return pa.decimal128(whole + scale, scale)
    raise _cannot_widen(right, left, path)


def widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether values of `source` may be read as `target`; long as float too, as in Avro."""
    if source.equals(target):
        return True
    if pt.is_integer(source) and pt.is_integer(target):
        return bool(source.bit_width <= target.bit_width and _signs_fit(source, target))
    if pt.is_integer(source):
        return bool(pt.is_floating(target) or _is_text(target))
    if pt.is_floating(source) and pt.is_floating(target):
        return bool(source.bit_width <= target.bit_width)
    if pt.is_decimal(source) and pt.is_decimal(target):
        whole = target.precision - target.scale >= source.precision - source.scale
        return bool(whole and target.scale >= source.scale)
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        return _UNITS.index(source.unit) <= _UNITS.index(target.unit)
    if pt.is_dictionary(source):
        return widens(source.value_type, target)
    if pt.is_date(source) and pt.is_date(target):
        return True
    return _is_bytes_or_text(source) and _is_bytes_or_text(target)


def conformed(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """Return `table` with exactly the columns of `schema`: widened, missing ones null, others left.

    Raises: `InvalidInput` naming `where`, the column and both types when one cannot be widened.
    """
    if table.schema.equals(schema):
        return table
    if not len(schema):
        # A table made of no columns would forget how many rows it has.
        return table.select([])
    columns = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            columns.append(_conformed_column(table.column(index), field, where))
    # Nullability is what the table says; a column may be null in rows from before it existed.
    fields = [
        pa.field(field.name, field.type, nullable=field.nullable or column.null_count > 0)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _conformed_column(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    chunks = [_conformed_array(chunk, field.type, field.name, where) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)


def _conformed_array(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    source = array.type
    if source.equals(target):
        return array
    if pt.is_struct(source) and pt.is_struct(target):
        return _conformed_struct(array, target, path, where)
    if _is_list(source) and _is_list(target):
        items = _conformed_array(array.flatten(), target.value_type, f"{path}[]", where)
        return pa.ListArray.from_arrays(_offsets(array), items, type=target, mask=_mask(array))
    if pt.is_map(source) and pt.is_map(target):
        return _conformed_map(array, target, path, where)
    if not widens(source, target):
        raise _cannot_widen(source, target, path, where)
    return array.cast(target, safe=not pt.is_floating(target))


def _conformed_struct(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    # `flatten` gives children cut to this slice, with the nulls of the struct in them.
    found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    children = [
        _conformed_array(found[field.name], field.type, f"{path}.{field.name}", where)
        if field.name in found
        else pa.nulls(len(array), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _conformed_map(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    # A map is a list of pairs underneath, and as a list it can be cut and rebuilt.
    pairs = pa.struct([array.type.key_field, array.type.item_field])
    listed = array.cast(pa.list_(pa.field("entries", pairs, nullable=False)))
    entries = listed.flatten()
    keys, items = entries.flatten()
    items = _conformed_array(items, target.item_type, f"{path}{{}}", where)
    inner = pa.StructArray.from_arrays(
        [keys.cast(target.key_type), items], fields=[target.key_field, target.item_field]
    )
    rebuilt = pa.ListArray.from_arrays(_offsets(listed), inner, mask=_mask(array))
    buffers = rebuilt.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), buffers, children=[inner])


def _offsets(array: pa.Array) -> pa.Array:
    """Return the offsets into `array.flatten()`, which leaves out what null lists point at."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _signs_fit(source: pa.DataType, target: pa.DataType) -> bool:
    if pt.is_signed_integer(source) == pt.is_signed_integer(target):
        return True
    return bool(pt.is_unsigned_integer(source) and source.bit_width < target.bit_width)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes_or_text(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(
        pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)
    )


def _cannot_widen(
    source: pa.DataType, target: pa.DataType, path: str, where: str = ""
) -> InvalidInput:
    place = f"{where}: column {path}" if where else f"column {path}"
    return InvalidInput(
        f"{place} has the type {source}, which cannot be widened to {target}",
        hint="cast the column, or write it under another name",
    )
