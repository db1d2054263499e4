"""Schemas: meta columns, conversion between Avro and Arrow, schema evolution, and conforming rows.

Values can be read as a wider type where Hudi allows it: int as long, float or double, integers as
strings, strings and bytes as each other, decimals with more digits on both sides of the point, and
timestamps in finer units. The same holds for each part of structs, lists and maps.

Whether a write may change the table's type accordingly is more restricted, and controlled by an
`EvolutionRule`: by default columns are added and numbers widened. A number never becomes a string,
because filters and joins on that column would change their meaning. Record key and partition
columns always keep their type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.core.errors import DataCorrupt, InvalidInput

COMMIT_TIME: Final = "_hoodie_commit_time"
COMMIT_SEQNO: Final = "_hoodie_commit_seqno"
RECORD_KEY: Final = "_hoodie_record_key"
PARTITION_PATH: Final = "_hoodie_partition_path"
FILE_NAME: Final = "_hoodie_file_name"

META_COLUMNS: Final = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""In their order at the start of every base file and log record."""

OPERATION: Final = "_hoodie_operation"
"""Added by Flink's changelog mode: `I`, `-U`, `U` or `D`."""

IS_DELETED: Final = "_hoodie_is_deleted"
"""A boolean user column; a record in which it is true is a delete."""


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the meta columns first, whether or not it already has them."""
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return pa.schema([*meta, *without_meta(schema)])


def without_meta(schema: pa.Schema) -> pa.Schema:
    """Return the user columns of `schema`."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, whatever number of chunks it has."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        # Some Arrow versions return a chunked array for certain types.
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array


def row_numbers(size: int, kind: pa.DataType | None = None) -> pa.Array:
    """Return 0, 1, 2 … without a Python object for each; int64 unless `kind` is given."""
    one = pa.scalar(1, kind or pa.int64())
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, size)), one)


def dictionary_encoded(strings: pa.Array) -> pa.DictionaryArray:
    """Dictionary-encode strings. Fast if all are empty, like the paths of a non-partitioned one."""
    data = strings.buffers()[2]
    if strings.null_count or not len(strings) or (data is not None and data.size):
        return strings.dictionary_encode()
    zeros = pa.repeat(pa.scalar(0, pa.int32()), len(strings))
    return pa.DictionaryArray.from_arrays(zeros, pa.array([""], pa.string()))


def dictionary_decoded(rows: pa.Table) -> pa.Table:
    """Return the rows with plain values in place of dictionaries, which differ between batches."""
    if not any(pt.is_dictionary(kind) for kind in rows.schema.types):
        return rows
    columns = [
        column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    fields = [
        field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


AvroType = Any
"""A parsed Avro type: a name, a list for a union, or a mapping."""

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}

DECIMAL_DIGITS_MAX = 38
"""The maximum precision in Spark, Avro and Arrow's decimal128."""


def parse_schema(text: str, *, where: str) -> Mapping[str, Any]:
    """Parse an Avro record schema, a JSON document found at `where`. Raises: `DataCorrupt`."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise DataCorrupt(f"{where}: the Avro schema is not JSON: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise DataCorrupt(f"{where}: the Avro schema is not a record")
    return schema


def render_schema(schema: AvroType) -> str:
    """Return the schema as Java prints it: without spaces, and non-ASCII characters unescaped."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def arrow_schema(schema: Mapping[str, Any], *, where: str) -> pa.Schema:
    """Return the Arrow schema of an Avro record.

    Raises: `DataCorrupt` for an invalid Avro schema, or a union of several non-null types.
    """
    try:
        return pa.schema(_AvroReader(where).fields(schema, ""))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataCorrupt(
            f"{where}: invalid Avro schema: {type(error).__name__}: {error}",
            hint="restore it from a copy: the table's properties and each commit have the schema",
        ) from error


class _AvroReader:
    """Converts Avro types to Arrow; remembers named types for later references."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, pa.DataType] = {}

    def fields(self, record: Mapping[str, Any], path: str) -> list[pa.Field]:
        before = f"{path}." if path else ""
        return [
            self.field(each["name"], each["type"], before + each["name"])
            for each in record.get("fields", ())
        ]

    def field(self, name: str, avro: AvroType, path: str) -> pa.Field:
        inner, nullable = split_nullable(avro)
        return pa.field(name, self.type(inner, path), nullable=nullable)

    def type(self, avro: AvroType, path: str) -> pa.DataType:
        if isinstance(avro, str):
            found = _PRIMITIVES.get(avro) or self._named.get(avro)
            if found is None:
                raise DataCorrupt(f"{self._where}: {path}: unknown Avro type {avro!r}")
            return found
        if not isinstance(avro, Mapping):
            raise DataCorrupt(
                f"{self._where}: {path}: unsupported union {render_schema(avro)}",
                hint="only unions of null and one other type are supported",
            )
        found = self._complex(avro, path)
        if "name" in avro:
            self._named[avro["name"]] = found
            self._named[f"{avro.get('namespace', '')}.{avro['name']}"] = found
        return found

    def _complex(self, avro: Mapping[str, Any], path: str) -> pa.DataType:
        kind, logical = avro["type"], avro.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            wide = avro["precision"] > DECIMAL_DIGITS_MAX
            decimal = pa.decimal256 if wide else pa.decimal128
            return decimal(avro["precision"], avro.get("scale", 0))
        if isinstance(kind, str) and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, str(logical)]
        match kind:
            case "record":
                return pa.struct(self.fields(avro, path))
            case "array":
                return pa.list_(self.field("element", avro["items"], f"{path}[]"))
            case "map":
                return pa.map_(pa.string(), self.field("value", avro["values"], f"{path}{{}}"))
            case "fixed":
                return pa.binary(avro["size"])
            case "enum":
                return pa.string()
            case _:
                # {"type": "string", "avro.java.string": "String"}, and unknown logical types.
                return self.type(kind, path)


def split_nullable(avro: AvroType) -> tuple[AvroType, bool]:
    """Return the type in a union with null, and whether null is allowed."""
    if isinstance(avro, list):
        rest = [branch for branch in avro if branch != "null"]
        if len(rest) == 1:
            return rest[0], len(avro) > 1
        return rest or "null", len(rest) < len(avro)
    return avro, False


def avro_schema(schema: pa.Schema, *, table: str) -> dict[str, Any]:
    """Return the Avro record schema of a table with these columns, named as Spark names it.

    Raises: `InvalidInput` for a column whose type Avro or Spark does not support.
    """
    name = sanitize_name(table)
    return _record(schema, f"{name}_record", f"hoodie.{name}")


def sanitize_name(name: str) -> str:
    """Replace each character that is invalid in an Avro name by `__`, as Hudi does."""
    if name and not re.match(r"[A-Za-z_]", name):
        name = f"__{name[1:]}"
    return re.sub(r"[^A-Za-z0-9_]", "__", name)


def _record(fields: Iterable[pa.Field], name: str, namespace: str) -> dict[str, Any]:
    inner = [_field(field, f"{namespace}.{name}") for field in fields]
    return {"type": "record", "name": name, "namespace": namespace, "fields": inner}


def _field(field: pa.Field, namespace: str) -> dict[str, Any]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name):
        raise InvalidInput(
            f"column {field.name!r}: not a valid Avro name",
            hint="use letters, digits and '_', not starting with a digit",
        )
    avro = _avro_type(field.type, field.name, namespace)
    if not field.nullable:
        return {"name": field.name, "type": avro}
    doc = {"doc": ""} if field.name in META_COLUMNS else {}
    return {"name": field.name, "type": ["null", avro], **doc, "default": None}


def _optional(field: pa.Field, name: str, namespace: str) -> AvroType:
    avro = _avro_type(field.type, name, namespace)
    return ["null", avro] if field.nullable else avro


def _avro_type(kind: pa.DataType, name: str, namespace: str) -> AvroType:
    simple = _primitive_type(kind)
    if simple is not None:
        return simple
    if pt.is_dictionary(kind):
        return _avro_type(kind.value_type, name, namespace)
    if pt.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX:
        # The minimum for a two's complement of that many digits.
        size = (10**kind.precision - 1).bit_length() // 8 + 1
        return _fixed(size, name, namespace) | {
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pt.is_fixed_size_binary(kind):
        return _fixed(kind.byte_width, name, namespace)
    if pt.is_struct(kind):
        return _record(kind, name, namespace)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return {"type": "array", "items": _optional(kind.value_field, name, namespace)}
    if pt.is_map(kind) and _primitive_type(kind.key_type) == "string":
        return {"type": "map", "values": _optional(kind.item_field, name, namespace)}
    path = f"{namespace}.{name}".partition("_record.")[2] or name
    raise InvalidInput(
        f"column {path}: {kind} has no Avro type that all readers support",
        hint="cast it to a string, a number, a decimal of at most"
        f" {DECIMAL_DIGITS_MAX} digits, a date, a timestamp, a time in milli- or microseconds, or a"
        " nested type",
    )


def _primitive_type(kind: pa.DataType) -> AvroType | None:
    if pt.is_boolean(kind):
        return "boolean"
    if pt.is_integer(kind) and kind != pa.uint64():
        return "int" if kind.bit_width < 32 or kind == pa.int32() else "long"
    if pt.is_floating(kind):
        return "double" if kind.bit_width == 64 else "float"
    if _is_text(kind):
        return "string"
    if _is_bytes(kind):
        return "bytes"
    if pt.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pt.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if kind == pa.time32("ms"):
        return {"type": "int", "logicalType": "time-millis"}
    if kind == pa.time64("us"):
        return {"type": "long", "logicalType": "time-micros"}
    return None


def _fixed(size: int, name: str, namespace: str) -> dict[str, Any]:
    return {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": size}


def stored_schema(schema: pa.Schema, *, table: str) -> pa.Schema:
    """Return the types of rows of `schema` once stored, as `avro_schema` reads them back.

    Small integers become int32, timestamps become microseconds in UTC (those without a zone are
    taken as UTC), and dictionaries become their values.
    """
    return arrow_schema(avro_schema(schema, table=table), where=table)


EVOLUTION_OPTION: Final = "tidelock.schema.evolution"
"""The option that selects the mode."""

_UNITS = ("s", "ms", "us", "ns")


class Evolution(StrEnum):
    """How a write may change the table's schema."""

    STRICT = "strict"  # not at all
    ADD = "add"  # add columns
    WIDEN = "widen"  # add columns and widen numeric types


@dataclass(frozen=True, slots=True)
class EvolutionRule:
    """How a write may change the table's schema.

    `fixed` columns (record key and partition) keep their type in every mode. `ordering` columns
    change only to a type that represents every value exactly, because old and new values are
    compared. Both are top-level columns, or struct fields in dotted notation.
    """

    mode: Evolution = Evolution.WIDEN
    fixed: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()


def evolve(table: pa.Schema, incoming: pa.Schema, rule: EvolutionRule | None = None) -> pa.Schema:
    """Return the schema of a table after rows of `incoming` were written to it.

    The table's columns keep their order and are widened where rows require it and `rule` allows it.
    New columns follow; they are nullable, because older rows lack them. Without a rule all widening
    is allowed, to unify schemas of rows that are not in a table yet.

    Raises: `InvalidInput` naming the column and both types if it is not allowed.
    """
    return pa.schema(_Evolver(rule).fields(list(table), list(incoming), ""))


def missing_columns(
    table: Sequence[pa.Field] | pa.Schema, incoming: Sequence[pa.Field] | pa.Schema, path: str = ""
) -> Iterator[str]:
    """Yield the columns, and struct fields, of a table that incoming rows lack."""
    by_name = {field.name: field for field in incoming}
    for field in table:
        other = by_name.get(field.name)
        if other is None:
            yield f"{path}{field.name}"
        else:
            yield from _missing_nested(field.type, other.type, f"{path}{field.name}")


def _missing_nested(table: pa.DataType, incoming: pa.DataType, path: str) -> Iterator[str]:
    if pt.is_struct(table) and pt.is_struct(incoming):
        yield from missing_columns(list(table), list(incoming), f"{path}.")
    elif _is_list(table) and _is_list(incoming):
        yield from _missing_nested(table.value_type, incoming.value_type, f"{path}[]")
    elif pt.is_map(table) and pt.is_map(incoming):
        yield from _missing_nested(table.item_type, incoming.item_type, f"{path}{{}}")


@dataclass(frozen=True, slots=True)
class _Evolver:
    """Finds types that hold both the table's and the incoming values, as far as a rule allows."""

    rule: EvolutionRule | None

    def fields(
        self, table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: str
    ) -> list[pa.Field]:
        by_name = {field.name: field for field in incoming}
        found = []
        for field in table:
            other = by_name.pop(field.name, None)
            if other is None:
                found.append(field)
                continue
            kind = self.common(field.type, other.type, f"{path}{field.name}")
            found.append(pa.field(field.name, kind, nullable=field.nullable or other.nullable))
        if by_name and self.rule is not None and self.rule.mode is Evolution.STRICT:
            new = f"column {path}{next(iter(by_name))} does not exist in the table"
            raise _evolution_error(new, self.rule.mode)
        return found + [pa.field(field.name, field.type) for field in by_name.values()]

    def common(self, left: pa.DataType, right: pa.DataType, path: str) -> pa.DataType:
        """Return the table's type `left`, or a wider one that also holds `right`."""
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
            raise _widening_error(right, left, path)
        if self.rule is not None:
            _check_change(self.rule, left, wider, path)
        return wider

    def _check_text(self, left: pa.DataType, right: pa.DataType, path: str) -> None:
        """Reject keys with another decimal scale: 1.5 and 1.50 are different strings."""
        decimals = pt.is_decimal(left) and pt.is_decimal(right)
        if self.rule and decimals and path in self.rule.fixed and left.scale != right.scale:
            raise InvalidInput(
                f"column {path} is {left} in the table and {right} in the rows, which would be"
                " different values in the record key or partition",
                hint=f"cast {path} to {left} before writing",
            )


def _check_change(rule: EvolutionRule, before: pa.DataType, after: pa.DataType, path: str) -> None:
    change = f"column {path} is {before} in the table, but the rows require {after}"
    hint = f"cast {path} to {before} before writing"
    if path in rule.fixed:
        raise InvalidInput(
            f"{change}; record key and partition columns cannot change their type", hint=hint
        )
    if rule.mode is not Evolution.WIDEN:
        raise _evolution_error(change, rule.mode)
    if not _is_numeric_widening(before, after):
        raise InvalidInput(
            f"{change}; a change from {before} to {after} is not supported",
            hint=f"cast {path} to {before}, or use another column name",
        )
    if path in rule.ordering and not _keeps_values(before, after):
        raise InvalidInput(
            f"{change}; it is an ordering column, and {after} cannot represent every {before}"
            " exactly",
            hint=hint,
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
    """Return whether both are numbers, or both timestamps; null widens to anything."""
    numbers = all(pt.is_integer(kind) or pt.is_floating(kind) for kind in (before, after))
    decimals = pt.is_decimal(before) and pt.is_decimal(after)
    times = pt.is_timestamp(before) and pt.is_timestamp(after)
    return bool(numbers or decimals or times or pt.is_null(before))


def _keeps_values(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether the other type represents every value of a numeric type exactly."""
    if pt.is_integer(before) and pt.is_floating(after):
        return bool(before.bit_width < (64 if after.bit_width == 64 else 24))
    return True


def widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of `source` can be read as `target`; also long as float, as in Avro."""
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
    return all(_is_text(kind) or _is_bytes(kind) for kind in (source, target))


def conform(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """Return `table` with exactly the columns of `schema`: widened, null if missing.

    Raises: `InvalidInput` naming `where`, the column and both types if one cannot be widened.
    """
    if table.schema.equals(schema):
        return table
    if not len(schema):
        # A table made of no columns would lose its number of rows.
        return table.select([])
    columns = [_conform_column(table, field, where) for field in schema]
    # A column may be null in rows written before it existed.
    fields = [
        pa.field(field.name, field.type, nullable=field.nullable or column.null_count > 0)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _conform_column(table: pa.Table, field: pa.Field, where: str) -> pa.ChunkedArray:
    index = table.schema.get_field_index(field.name)
    if index < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(index)
    if column.type.equals(field.type):
        return column
    chunks = [_conform_array(chunk, field.type, field.name, where) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)


def _conform_array(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    source = array.type
    if source.equals(target):
        return array
    if pt.is_struct(source) and pt.is_struct(target):
        return _conform_struct(array, target, path, where)
    if _is_list(source) and _is_list(target):
        items = _conform_array(array.flatten(), target.value_type, f"{path}[]", where)
        return pa.ListArray.from_arrays(
            _list_offsets(array), items, type=target, mask=_null_mask(array)
        )
    if pt.is_map(source) and pt.is_map(target):
        return _conform_map(array, target, path, where)
    if not widens(source, target):
        raise _widening_error(source, target, path, where)
    return array.cast(target, safe=not pt.is_floating(target))


def _conform_struct(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    # `flatten` restricts children to this slice and applies the nulls of the struct.
    found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    children = [
        _conform_array(found[field.name], field.type, f"{path}.{field.name}", where)
        if field.name in found
        else pa.nulls(len(array), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_null_mask(array))


def _conform_map(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    # A map is stored as a list of pairs; as a list it can be flattened and rebuilt.
    pairs = pa.struct([array.type.key_field, array.type.item_field])
    listed = array.cast(pa.list_(pa.field("entries", pairs, nullable=False)))
    entries = listed.flatten()
    keys, items = entries.flatten()
    items = _conform_array(items, target.item_type, f"{path}{{}}", where)
    inner = pa.StructArray.from_arrays(
        [keys.cast(target.key_type), items], fields=[target.key_field, target.item_field]
    )
    rebuilt = pa.ListArray.from_arrays(_list_offsets(listed), inner, mask=_null_mask(array))
    buffers = rebuilt.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), buffers, children=[inner])


def _list_offsets(array: pa.Array) -> pa.Array:
    """Return the offsets into `array.flatten()`, which omits the items of null lists."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _signs_fit(source: pa.DataType, target: pa.DataType) -> bool:
    if pt.is_signed_integer(source) == pt.is_signed_integer(target):
        return True
    return bool(pt.is_unsigned_integer(source) and source.bit_width < target.bit_width)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind))


def _evolution_error(change: str, mode: Evolution) -> InvalidInput:
    return InvalidInput(
        f"{change}; {EVOLUTION_OPTION}={mode} does not allow this",
        hint=f"write rows with the table's schema, or set {EVOLUTION_OPTION}=widen (add columns and"
        " widen numbers) or add (add columns only)",
    )


def _widening_error(
    source: pa.DataType, target: pa.DataType, path: str, where: str = ""
) -> InvalidInput:
    column = f"{where}: column {path}" if where else f"column {path}"
    return InvalidInput(
        f"{column}: {source} cannot be widened to {target}",
        hint="cast the column, or use another column name",
    )
