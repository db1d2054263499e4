"""What a user filters rows by: an Arrow expression, or (column, operator, value) conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import InvalidInput
from tidelock.kernel.filtering import RowFilter
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.partition import partition_values
from tidelock.table.properties import KeyGenerator, TableProperties

Condition = tuple[str, str, Any]
Filter: TypeAlias = pc.Expression | Condition | Sequence[Condition]
"""Conditions in a sequence must all hold."""

_OPERATORS: Final[dict[str, Callable[[pc.Expression, Any], pc.Expression]]] = {
    "=": lambda field, value: field == value,
    "==": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}
_SETS: Final = ("in", "not in")
_NULLS: Final = ("is null", "is not null")


def row_filter(given: Filter, schema: pa.Schema) -> RowFilter:
    """Return the filter that a user gave. Raises: `InvalidInput`."""
    if isinstance(given, pc.Expression):
        return RowFilter.of(given, schema)
    several = isinstance(given, Collection) and not isinstance(given, str)
    conditions: list[Any] = [given] if _is_condition(given) else list(given) if several else []
    if not conditions or not all(_is_condition(each) for each in conditions):
        raise InvalidInput(
            f"{given!r} is no filter",
            hint='give an Arrow expression, or conditions such as ("amount", ">", 10)',
        )
    whole: pc.Expression | None = None
    for name, operator, value in conditions:
        part = _expression(name, operator, value, schema)
        whole = part if whole is None else whole & part
    return RowFilter.of(whole, schema)


def without_impossible(
    slices: Sequence[FileSlice], passing: RowFilter, properties: TableProperties
) -> tuple[FileSlice, ...]:
    """Leave out the slices of partitions whose values the filter excludes."""
    paths = sorted({piece.partition for piece in slices})
    if properties.key_generator not in (KeyGenerator.SIMPLE, KeyGenerator.COMPLEX) or not paths:
        return tuple(slices)
    known = [_known(path, passing, properties) for path in paths]
    if all(each is None for each in known):
        return tuple(slices)
    may = {path for path, yes in zip(paths, passing.possible(known), strict=True) if yes}
    return tuple(piece for piece in slices if piece.partition in may)


def _known(path: str, passing: RowFilter, properties: TableProperties) -> pc.Expression | None:
    values = partition_values(
        properties.partition_fields,
        path,
        hive_style=properties.hive_style,
        url_encode=properties.url_encode,
    )
    found: pc.Expression | None = None
    for name, text in (values or {}).items():
        # The folder of rows without a value holds both nulls and empty texts: it says nothing.
        if text is None or name not in passing.columns:
            continue
        kind = passing.schema.field(name).type
        if not _comes_back(kind):
            continue
        try:
            value = pa.scalar(text).cast(kind)
        except pa.ArrowInvalid:
            continue
        same = pc.field(name) == value
        found = same if found is None else found & same
    return found


def _comes_back(kind: pa.DataType) -> bool:
    """Tell whether a folder's name gives back the value that it was made of."""
    kinds = pa.types
    return bool(kinds.is_string(kind) or kinds.is_integer(kind) or kinds.is_date32(kind))


def _is_condition(given: object) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 3
        and all(isinstance(part, str) for part in given[:2])
    )


def _expression(name: str, operator: str, value: Any, schema: pa.Schema) -> pc.Expression:
    if name not in schema.names:
        raise InvalidInput(
            f"the filter names {name!r}, which is no column",
            hint=f"the columns are {', '.join(schema.names)}",
        )
    field, word = pc.field(name), operator.strip().lower()
    if word in _NULLS:
        return field.is_null() if word == "is null" else field.is_valid()
    try:
        if word in _SETS:
            if isinstance(value, str | bytes) or not isinstance(value, Collection):
                raise InvalidInput(f"{value!r} is no list of values", hint=f"give [{value!r}]")
            inside = field.isin(pa.array(list(value), schema.field(name).type))
            return inside if word == "in" else ~inside & field.is_valid()
        if word not in _OPERATORS:
            known = ", ".join([*_OPERATORS, *_SETS, *_NULLS])
            raise InvalidInput(f"{operator!r} is no operator of a filter", hint=f"use {known}")
        return _OPERATORS[word](field, _scalar(value, schema.field(name).type))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput(f"{value!r} does not fit the column {name}: {error}") from error


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return the value as the column's type, or as its own where it would lose something."""
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.scalar(value)
