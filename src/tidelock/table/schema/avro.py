"""Arrow schemas and the Avro schemas that Hudi stores, both ways.

Names follow Spark's converter, because Hudi's writers compare and cite them: the record of a table
is `<table>_record` in the namespace `hoodie.<table>`, a nested record is named after its field in
the namespace of its parent's full name, and a decimal is a fixed named `fixed` below its field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt, InvalidInput
from tidelock.table.schema.meta import META_COLUMNS

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
"""Spark, Avro and Arrow's decimal128 agree on this bound."""


def parse_schema(text: str, *, where: str) -> Mapping[str, Any]:
    """Return the Avro record schema of `text`, a JSON document found at `where`.

    Raises: `DataCorrupt`.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise DataCorrupt(f"{where}: the Avro schema is not JSON: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise DataCorrupt(f"{where}: the Avro schema is not a record")
    return schema


def render_schema(schema: AvroType) -> str:
    """Return the schema as Java prints it: no spaces, letters of any script as they are."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def arrow_schema(schema: Mapping[str, Any], *, where: str) -> pa.Schema:
    """Return the Arrow schema of an Avro record.

    Raises: `DataCorrupt` for what is no Avro schema, or a union of several non-null types.
    """
    try:
        return pa.schema(_Reader(where).fields(schema, ""))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataCorrupt(
            f"{where}: the Avro schema cannot be read: {type(error).__name__}: {error}",
            hint="restore it from a copy: it is in the table's properties and in each commit",
        ) from error


class _Reader:
    """Avro to Arrow; remembers named types, which later mentions give by name only."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, pa.DataType] = {}

    def fields(self, record: Mapping[str, Any], path: str) -> list[pa.Field]:
        found = []
        for field in record.get("fields", ()):
            name = field["name"]
            inner, nullable = split_nullable(field["type"])
            kind = self.type(inner, f"{path}.{name}" if path else name)
            found.append(pa.field(name, kind, nullable=nullable))
        return found

    def field(self, name: str, avro: AvroType, path: str) -> pa.Field:
        inner, nullable = split_nullable(avro)
        return pa.field(name, self.type(inner, path), nullable=nullable)

    def type(self, avro: AvroType, path: str) -> pa.DataType:
        if isinstance(avro, str):
            found = _PRIMITIVES.get(avro) or self._named.get(avro)
            if found is None:
                raise DataCorrupt(f"{self._where}: {path} has the unknown Avro type {avro!r}")
            return found
        if not isinstance(avro, Mapping):
            raise DataCorrupt(
                f"{self._where}: {path} is the union {render_schema(avro)}",
                hint="only unions of null and one type can be columns",
            )
        found = self._complex(avro, path)
        if "name" in avro:
            self._named[avro["name"]] = found
            self._named[f"{avro.get('namespace', '')}.{avro['name']}"] = found
        return found

    def _complex(self, avro: Mapping[str, Any], path: str) -> pa.DataType:
        kind, logical = avro["type"], avro.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(avro["precision"], avro.get("scale", 0))
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
                # {"type": "string", "avro.java.string": "String"}, and logical types unknown to us.
                return self.type(kind, path)


def split_nullable(avro: AvroType) -> tuple[AvroType, bool]:
    """Return the type inside a union with null, and whether null was in it."""
    if isinstance(avro, list):
        rest = [branch for branch in avro if branch != "null"]
        if len(rest) == 1:
            return rest[0], len(avro) > 1
        return rest or "null", len(rest) < len(avro)
    return avro, False


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision > DECIMAL_DIGITS_MAX:
        return pa.decimal256(precision, scale)
    return pa.decimal128(precision, scale)


def avro_schema(schema: pa.Schema, *, table: str) -> dict[str, Any]:
    """Return the Avro record of a table with these columns, named as Spark names it.

    Raises: `InvalidInput` for a column whose type Avro or Spark cannot hold.
    """
    name = sanitized(table)
    record, namespace = f"{name}_record", f"hoodie.{name}"
    return _record(list(schema), record, namespace)


def sanitized(name: str) -> str:
    """Return `name` with `__` for each letter that an Avro name cannot have, as Hudi does it."""
    if name and not re.match(r"[A-Za-z_]", name):
        name = f"__{name[1:]}"
    return re.sub(r"[^A-Za-z0-9_]", "__", name)


def _record(fields: list[pa.Field], name: str, namespace: str) -> dict[str, Any]:
    inside = f"{namespace}.{name}"
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_field(field, inside) for field in fields],
    }


def _field(field: pa.Field, namespace: str) -> dict[str, Any]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name):
        raise InvalidInput(
            f"column {field.name!r} cannot be stored: it is not an Avro name",
            hint="use letters, digits and '_', not starting with a digit",
        )
    avro = _avro_type(field.type, field.name, namespace)
    found: dict[str, Any] = {"name": field.name}
    if not field.nullable:
        return found | {"type": avro}
    found["type"] = ["null", avro]
    if field.name in META_COLUMNS:
        found["doc"] = ""
    return found | {"default": None}


def _optional(field: pa.Field, name: str, namespace: str) -> AvroType:
    avro = _avro_type(field.type, name, namespace)
    return ["null", avro] if field.nullable else avro


def _avro_type(kind: pa.DataType, name: str, namespace: str) -> AvroType:
    simple = _simple(kind)
    if simple is not None:
        return simple
    if pt.is_dictionary(kind):
        return _avro_type(kind.value_type, name, namespace)
    if pt.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX:
        return _fixed(_decimal_bytes(kind.precision), name, namespace) | {
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pt.is_fixed_size_binary(kind):
        return _fixed(kind.byte_width, name, namespace)
    if pt.is_struct(kind):
        return _record(list(kind), name, namespace)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return {"type": "array", "items": _optional(kind.value_field, name, namespace)}
    if pt.is_map(kind) and _simple(kind.key_type) == "string":
        return {"type": "map", "values": _optional(kind.item_field, name, namespace)}
    path = f"{namespace}.{name}".partition("_record.")[2] or name
    raise InvalidInput(
        f"column {path}: {kind} has no Avro type that every reader knows",
        hint="cast it to a string, a number, a decimal of at most"
        f" {DECIMAL_DIGITS_MAX} digits, a date, a timestamp, a time in milli- or microseconds, or a"
        " nested type",
    )


def _simple(kind: pa.DataType) -> AvroType | None:
    if pt.is_boolean(kind):
        return "boolean"
    if pt.is_integer(kind) and kind != pa.uint64():
        small = kind.bit_width < 32 or kind == pa.int32()
        return "int" if small else "long"
    if pt.is_floating(kind):
        return "double" if kind.bit_width == 64 else "float"
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return "string"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind):
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


def _decimal_bytes(precision: int) -> int:
    """Return the fewest bytes whose two's complement holds every number of `precision` digits."""
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1


def storable(schema: pa.Schema, *, table: str) -> pa.Schema:
    """Return the types that rows of `schema` have once stored: what `avro_schema` reads back as.

    Small integers become int32, timestamps become microseconds in UTC (one without a zone counts
    as UTC), dictionaries become their values.
    """
    return arrow_schema(avro_schema(schema, table=table), where=table)
