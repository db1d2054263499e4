"""How a schema grows: columns are added, types widen, and old rows are read under the result.

Values are read as a wider type where Hudi allows it: int as long, float and double, whole numbers
as strings, strings and bytes as each other, decimals with more digits on both sides of the point,
and timestamps in finer units. Inside structs, lists and maps the same holds for each part.

Whether a write may change the table's own type for that is narrower, and up to an `EvolutionRule`:
by default columns are added and numbers widen. A number never becomes a string, because every
reader's filters and joins on that column would then mean something else, and columns that rows are
found by (record key, partition) keep their type whatever the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import InvalidInput
from tidelock.table.schema.avro import DECIMAL_DIGITS_MAX

EVOLUTION_OPTION: Final = "tidelock.schema.evolution"
"""The option that chooses the mode."""

_UNITS = ("s", "ms", "us", "ns")


class Evolution(StrEnum):
    """What rows that do not fit a table's schema may change of it."""

    STRICT = "strict"  # nothing
    ADD = "add"  # columns are added
    WIDEN = "widen"  # and numeric types are widened


@dataclass(frozen=True, slots=True)
class EvolutionRule:
    """What a write may change of a table's schema.

    `fixed` columns keep their type under every mode: those of the record key and the partition.
    `ordering` columns change only to a type that keeps every value exactly, because old and new
    values are compared. Both are top-level columns, or fields of structs with dots in their names.
    """

    mode: Evolution = Evolution.WIDEN
    fixed: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()


def evolved(table: pa.Schema, incoming: pa.Schema, rule: EvolutionRule | None = None) -> pa.Schema:
    """Return the schema of a table after rows of `incoming` were written to it.

    The table's columns keep their order, widened where rows need it and `rule` allows it; columns
    that only the rows have follow, nullable, because older rows lack them. Without a rule every
    wider type will do: that joins the schemas of rows that are in no table yet.

    Raises: `InvalidInput` naming the column and both types when it is not allowed.
    """
    return pa.schema(_Growth(rule).fields(list(table), list(incoming), ""))


def missing_columns(
    table: Sequence[pa.Field] | pa.Schema, incoming: Sequence[pa.Field] | pa.Schema, path: str = ""
) -> Iterator[str]:
    """Yield the columns of a table, and fields of its structs, that incoming rows do not have."""
    offered = {field.name: field for field in incoming}
    for field in table:
        other = offered.get(field.name)
        if other is None:
            yield f"{path}{field.name}"
        else:
            yield from _missing_inside(field.type, other.type, f"{path}{field.name}")


def _missing_inside(table: pa.DataType, incoming: pa.DataType, path: str) -> Iterator[str]:
    if pt.is_struct(table) and pt.is_struct(incoming):
        yield from missing_columns(list(table), list(incoming), f"{path}.")
    elif _is_list(table) and _is_list(incoming):
        yield from _missing_inside(table.value_type, incoming.value_type, f"{path}[]")
    elif pt.is_map(table) and pt.is_map(incoming):
        yield from _missing_inside(table.item_type, incoming.item_type, f"{path}{{}}")


@dataclass(frozen=True, slots=True)
class _Growth:
    """The types that hold both what a table has and what rows bring, as far as a rule allows."""

    rule: EvolutionRule | None

    def fields(
        self, table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: str
    ) -> list[pa.Field]:
        offered = {field.name: field for field in incoming}
        found = []
        for field in table:
            other = offered.pop(field.name, None)
            if other is None:
                found.append(field)
                continue
            kind = self.common(field.type, other.type, f"{path}{field.name}")
            found.append(pa.field(field.name, kind, nullable=field.nullable or other.nullable))
        if offered and self.rule is not None and self.rule.mode is Evolution.STRICT:
            new = f"column {path}{next(iter(offered))} is not in the table"
            raise _not_allowed(new, self.rule.mode)
        return found + [pa.field(field.name, field.type) for field in offered.values()]

    def common(self, left: pa.DataType, right: pa.DataType, path: str) -> pa.DataType:
        """Return the table's type `left`, or a wider one that holds `right` as well."""
        if pt.is_struct(left) and pt.is_struct(right):
            return pa.struct(self.fields(list(left), list(right), f"{path}."))
        if _is_list(left) and _is_list(right):
            item = self.common(left.value_type, right.value_type, f"{path}[]")
            return pa.list_(left.value_field.with_type(item))
        if pt.is_map(left) and pt.is_map(right):
            item = self.common(left.item_type, right.item_type, f"{path}{{}}")
            return pa.map_(left.key_type, left.item_field.with_type(item))
        if left.equals(right) or widens(right, left):
            self._check_text(left, right, path)
            return left
        wider = _wider(left, right)
        if wider is None:
            raise _cannot_widen(right, left, path)
        if self.rule is not None:
            _check_change(self.rule, left, wider, path)
        return wider

    def _check_text(self, left: pa.DataType, right: pa.DataType, path: str) -> None:
        """Refuse decimals of another scale as keys: 1.5 and 1.50 are different texts."""
        decimals = pt.is_decimal(left) and pt.is_decimal(right)
        if self.rule and decimals and path in self.rule.fixed and left.scale != right.scale:
            raise InvalidInput(
                f"column {path} is {left} in the table, and {right} in the rows: as part of the"
                " record key or the partition they would be different keys",
                hint=f"cast {path} to {left} before writing",
            )


def _check_change(rule: EvolutionRule, before: pa.DataType, after: pa.DataType, path: str) -> None:
    change = f"column {path} is {before} in the table, and the rows need {after}"
    if path in rule.fixed:
        raise InvalidInput(
            f"{change}; it is part of the record key or the partition, whose type never changes",
            hint=f"cast {path} to {before} before writing",
        )
    if rule.mode is not Evolution.WIDEN:
        raise _not_allowed(change, rule.mode)
    if not _is_numeric_widening(before, after):
        raise InvalidInput(
            f"{change}; a write never changes a column from {before} to {after}",
            hint=f"cast {path} to {before}, or write it under another name",
        )
    if path in rule.ordering and not _keeps_values(before, after):
        raise InvalidInput(
            f"{change}; it orders the versions of a row, and {after} does not hold every"
            f" {before} exactly",
            hint=f"cast {path} to {before} before writing",
        )


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds both; None if there is none."""
    if widens(left, right):
        return right
    if pt.is_decimal(left) and pt.is_decimal(right):
        whole = max(left.precision - left.scale, right.precision - right.scale)
        scale = max(left.scale, right.scale)
        if whole + scale <= DECIMAL_DIGITS_MAX:
            return pa.decimal128(whole + scale, scale)
    return None


def _is_numeric_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Tell whether both are numbers, or both timestamps; a column of nulls has no type yet."""
    numbers = all(pt.is_integer(kind) or pt.is_floating(kind) for kind in (before, after))
    decimals = pt.is_decimal(before) and pt.is_decimal(after)
    times = pt.is_timestamp(before) and pt.is_timestamp(after)
    return bool(numbers or decimals or times or pt.is_null(before))


def _keeps_values(before: pa.DataType, after: pa.DataType) -> bool:
    """Tell whether every value of a numeric type is exact in the other."""
    if pt.is_integer(before) and pt.is_floating(after):
        return bool(before.bit_width < (64 if after.bit_width == 64 else 24))
    return True


def widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether values of `source` may be read as `target`; long as float too, as in Avro."""
    if source.equals(target) or pt.is_null(source):
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


def _not_allowed(change: str, mode: Evolution) -> InvalidInput:
    return InvalidInput(
        f"{change}, and {EVOLUTION_OPTION}={mode} does not allow it",
        hint=f"write rows of the table's schema, or set {EVOLUTION_OPTION}=widen (add columns and"
        " widen numbers) or add (only add columns)",
    )


def _cannot_widen(
    source: pa.DataType, target: pa.DataType, path: str, where: str = ""
) -> InvalidInput:
    place = f"{where}: column {path}" if where else f"column {path}"
    return InvalidInput(
        f"{place} has the type {source}, which cannot be widened to {target}",
        hint="cast the column, or write it under another name",
    )
