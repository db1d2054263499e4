"""Column lists in Spark's DDL syntax: `id long, amount decimal(10,2), tags array<string>`."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from tidelock.core.errors import InvalidInput

_TYPES: Final[dict[object, pa.DataType]] = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int32(),
    exp.DataType.Type.SMALLINT: pa.int32(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}
"""Hudi's schemas have no integers smaller than an int. Spark's TIMESTAMP has a time zone."""

_SUPPORTED: Final = (
    "boolean, byte, short, int, long, float, double, string, binary, date, timestamp, decimal,"
    " array, map, struct"
)
_EXAMPLE: Final = 'for example "id long, ts timestamp, amount decimal(10,2), tags array<string>"'
_DECIMAL_DIGITS_MAX: Final = 38


def parse_columns(text: str) -> pa.Schema:
    """Return the schema of a column list; `name type` and `name: type` are both valid.

    Raises: `InvalidInput` naming the column that is wrong.
    """
    return pa.schema([_field(node, "") for node in _parsed(text).expressions])


def _parsed(text: str) -> exp.DataType:
    """Return the column list as the type of a struct."""
    if not text.strip():
        raise InvalidInput("columns: expected at least one column, got none", hint=_EXAMPLE)
    near = ""
    try:
        if re.search(r",\s*(>|$)", text) is None:
            tree = sqlglot.parse_one(f"CREATE TABLE t (c STRUCT<{text}>)", dialect="spark")
            columns = tree.this.expressions if isinstance(tree, exp.Create) else []
            if len(columns) == 1 and columns[0].kind is not None:
                found: exp.DataType = columns[0].kind
                return found
    except ParseError as error:
        near = _near(error)
    except SqlglotError:
        pass  # reported below, without a position
    raise InvalidInput(
        f"columns: cannot parse {text!r}{near}", hint=f"{_EXAMPLE}; types: {_SUPPORTED}"
    )


def _near(error: ParseError) -> str:
    """Return the token where parsing failed, and the word after it: an unknown type."""
    if not error.errors:
        return ""
    found = error.errors[0]
    word = re.match(r"\s*\w+", str(found.get("end_context") or ""))
    return f" near {str(found.get('highlight') or '') + (word[0] if word else '')!r}"


def _field(node: exp.Expr, path: str) -> pa.Field:
    column = f"{path}{node.name}"
    if not isinstance(node, exp.ColumnDef) or not re.fullmatch(r"\w+", node.name):
        raise InvalidInput(
            f"columns: expected a column name of letters, digits and _, got {node.sql('spark')!r}",
            hint=_EXAMPLE,
        )
    nullable = True
    for constraint in node.args.get("constraints") or ():
        kind = constraint.kind
        if not isinstance(kind, exp.NotNullColumnConstraint) or kind.args.get("allow_null"):
            raise InvalidInput(
                f"column {column}: expected no constraint but NOT NULL, got"
                f" {constraint.sql('spark') or 'NULL'}",
                hint=_EXAMPLE,
            )
        nullable = False
    return pa.field(node.name, _arrow_type(node.kind, column), nullable)


def _arrow_type(kind: exp.DataType | None, column: str) -> pa.DataType:
    parameters = [] if kind is None else kind.expressions
    match None if kind is None else kind.this:
        case exp.DataType.Type.DECIMAL:
            return _decimal(parameters, column)
        case exp.DataType.Type.ARRAY if len(parameters) == 1:
            return pa.list_(_arrow_type(parameters[0], column))
        case exp.DataType.Type.MAP if len(parameters) == 2:
            key, value = (_arrow_type(parameter, column) for parameter in parameters)
            if key != pa.string():
                raise InvalidInput(f"column {column}: expected string keys of a map, got {key}")
            return pa.map_(key, value)
        case exp.DataType.Type.STRUCT if parameters:
            return pa.struct([_field(each, f"{column}.") for each in parameters])
        case simple if simple in _TYPES and not parameters:
            return _TYPES[simple]
    found = "none" if kind is None else repr(kind.sql("spark").lower())
    raise InvalidInput(
        f"column {column}: expected a supported type, got {found}", hint=f"use one of {_SUPPORTED}"
    )


def _decimal(parameters: list[exp.Expr], column: str) -> pa.DataType:
    digits = [parameter.name for parameter in parameters] or ["10"]
    if len(digits) <= 2 and all(each.isdecimal() for each in digits):
        precision, scale = int(digits[0]), int(digits[1]) if len(digits) == 2 else 0
        if 1 <= precision <= _DECIMAL_DIGITS_MAX and scale <= precision:
            return pa.decimal128(precision, scale)
    raise InvalidInput(
        f"column {column}: expected decimal(precision, scale) with a precision of 1 to"
        f" {_DECIMAL_DIGITS_MAX} and a smaller scale, got decimal({','.join(digits)})"
    )
