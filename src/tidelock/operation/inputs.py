"""What users give to be written, as Arrow tables: frames of any library, batches, dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from tidelock.base.errors import InvalidInput
from tidelock.operation.options import NULL_FOR_MISSING
from tidelock.table.keys import KeyRule
from tidelock.table.schema.evolution import (
    Evolution,
    EvolutionRule,
    evolved,
    missing_columns,
)
from tidelock.table.schema.meta import IS_DELETED, META_COLUMNS
from tidelock.table.snapshot import EVOLVED_SCHEMA_KEY
from tidelock.table.timeline.metadata import SCHEMA_KEY

_ACCEPTED: Final = (
    "give an Arrow table, record batch or reader, a pandas or polars frame, or a list of"
    " dictionaries"
)


def arrow_table(data: object, known: pa.Schema) -> pa.Table:
    """Return `data` as a table without meta columns.

    `known` are the table's columns: values of dictionaries take their types, and columns of
    nothing but nulls too. Raises: `InvalidInput`.
    """
    table = _converted(data, known)
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    if twice:
        raise InvalidInput(f"the column {min(twice)!r} comes twice", hint="rename one of them")
    own = [name for name in META_COLUMNS if name in table.column_names]
    return _typed_nulls(_plain(table.drop_columns(own)), known)


def _converted(data: object, known: pa.Schema) -> pa.Table:
    try:
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            return _from_dictionaries(data, known)
        if isinstance(data, Mapping):
            return pa.table(dict(data))
        if type(data).__module__.partition(".")[0] == "pandas":
            return _from_pandas(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "to_arrow"):
            return data.to_arrow()
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        UnicodeError,
        OverflowError,
    ) as error:
        raise InvalidInput(f"the rows cannot be read: {error}", hint=_ACCEPTED) from error
    raise InvalidInput(f"rows cannot be taken from a {type(data).__name__}", hint=_ACCEPTED)


def _from_pandas(data: Any) -> pa.Table:
    """Return a frame's columns, and its index if it has names: others only number the rows."""
    if not hasattr(data, "columns"):
        raise InvalidInput("rows cannot be taken from a pandas Series", hint=_ACCEPTED)
    names = [name for name in data.index.names if name is not None]
    if len(names) == len(data.index.names):
        twice = [name for name in names if name in data.columns]
        if twice:
            raise InvalidInput(
                f"{twice[0]!r} is a column and the index of the frame",
                hint="rename one of them, or drop the index by reset_index(drop=True)",
            )
        data = data.reset_index()
    strange = next((name for name in data.columns if not isinstance(name, str)), None)
    if strange is not None:
        raise InvalidInput(
            f"the frame has the column {strange!r}, whose name is no string",
            hint="rename it: frame.columns = [...]",
        )
    return pa.Table.from_pandas(data, preserve_index=False)


def _from_dictionaries(rows: Sequence[Any], known: pa.Schema) -> pa.Table:
    strange = next((row for row in rows if not isinstance(row, Mapping)), None)
    if strange is not None:
        raise InvalidInput(f"{strange!r} is not a row", hint=_ACCEPTED)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        columns[name] = _column(values, name, known)
    return pa.table(columns) if columns else known.empty_table()


def _column(values: list[Any], name: str, known: pa.Schema) -> pa.Array:
    """Return values with the table's type if they fit it, else with the type they show."""
    index = known.get_field_index(name)
    typed = None if index < 0 else _typed(values, known.field(index).type)
    if typed is not None:
        return typed
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError, OverflowError) as error:
        raise InvalidInput(f"column {name}: {error}", hint="give values of one type") from error


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Return values as a type; None if they do not fit, and the schema may have to widen."""
    try:
        typed = pa.array(values, kind)
        if not _has_whole_numbers(kind):
            return typed
        # Arrow cuts 0.5 to 0 for a column of whole numbers without a word; a cast does not.
        shown = pa.array(values)
        return shown.cast(kind) if _cuts(shown.type, kind) else typed
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        UnicodeError,
        OverflowError,
    ):
        return None


def _has_whole_numbers(kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return any(_has_whole_numbers(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pt.is_integer(kind))


def _cuts(shown: pa.DataType, kind: pa.DataType) -> bool:
    """Tell whether numbers with a fraction would become whole ones."""
    if pt.is_struct(shown) and pt.is_struct(kind):
        at = {field.name: field.type for field in kind}
        return any(field.name in at and _cuts(field.type, at[field.name]) for field in shown)
    if pt.is_list(shown) and pt.is_list(kind):
        return _cuts(shown.value_type, kind.value_type)
    return bool(pt.is_floating(shown) and pt.is_integer(kind))


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with types that files have: no dictionaries, views or large offsets."""
    fields = [field.with_type(_plain_type(field.type)) for field in table.schema]
    schema = pa.schema([pa.field(f.name, f.type, f.nullable) for f in fields])
    return table if table.schema.equals(schema) else table.cast(schema)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_large_list(kind) or pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pt.is_timestamp(kind) and kind.unit in ("s", "ns"):
        # Hudi's files have milli- and microseconds; finer ones would not come back in Spark.
        return pa.timestamp("us", kind.tz)
    return kind


def _typed_nulls(table: pa.Table, known: pa.Schema) -> pa.Table:
    """Give columns of nothing but nulls the table's type; others have none until they get one."""
    for field in list(table.schema):
        if not pt.is_null(field.type):
            continue
        index, at = known.get_field_index(field.name), table.column_names.index(field.name)
        if index >= 0:
            column = pa.nulls(table.num_rows, known.field(index).type)
            table = table.set_column(at, known.field(index).with_nullable(nullable=True), column)
    return table


def evolved_schema(
    known: pa.Schema, incoming: pa.Schema, rule: EvolutionRule, *, where: str
) -> pa.Schema:
    """Return the table's schema after rows of `incoming` come. Raises: `InvalidInput`."""
    offered = pa.schema(
        # Whether a column may be null is the table's to say; frames call every column nullable.
        [
            pa.field(f.name, f.type, nullable=_may_be_null(known, f.name))
            for f in incoming
            # A column of nothing but nulls has no type that the table could take over.
            if f.name in known.names or not pt.is_null(f.type)
        ]
    )
    try:
        return evolved(known, offered, rule if known.names else None)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.message}", hint=error.hint) from None


def without_missing(
    found: pa.Schema,
    incoming: pa.Schema,
    rule: EvolutionRule,
    *,
    ordered_by: Sequence[str],
    null_for_missing: bool,
    where: str,
) -> pa.Schema:
    """Return the schema under which rows that lack some of its columns can be written.

    Only with `null_for_missing` can they be, as in Hudi: those columns are then null, and columns
    that were never null may be from now on. Raises: `InvalidInput` naming the missing columns.
    """
    if not all(_has(incoming, name) for name in rule.fixed):
        return found  # making keys names the column
    lost = next((name for name in ordered_by if not _has(incoming, name)), None)
    if lost is not None:
        raise InvalidInput(
            f"{where}: the rows have no column {lost}, by which the table decides between versions"
            " of a row",
            hint=f"give every row its {lost}",
        )
    missing = [name for name in missing_columns(found, incoming) if name != IS_DELETED]
    if missing and not null_for_missing:
        raise InvalidInput(
            f"{where}: the rows have no column {', '.join(missing)}",
            hint=f"give all columns of the table, or set {NULL_FOR_MISSING.key}=true to write null"
            " to them, also over values that are there",
        )
    if rule.mode is Evolution.STRICT:
        return found
    relaxed = [field.with_nullable(field.nullable or field.name in missing) for field in found]
    return pa.schema(relaxed)


def _has(schema: pa.Schema, name: str) -> bool:
    return name in schema.names or name.partition(".")[0] in schema.names


def _may_be_null(known: pa.Schema, name: str) -> bool:
    index = known.get_field_index(name)
    return index < 0 or bool(known.field(index).nullable)


def check_metadata(metadata: Mapping[str, object]) -> None:
    """Refuse what cannot go into a commit beside what is there already. Raises: `InvalidInput`."""
    for name, value in metadata.items():
        if name in (SCHEMA_KEY, EVOLVED_SCHEMA_KEY):
            raise InvalidInput(
                f"metadata has {name!r}, which says the table's schema", hint="use another name"
            )
        text: object
        for text in (name, value):
            if not isinstance(text, str) or not _is_text(text):
                raise InvalidInput(
                    f"metadata has {text!r}, which is no text", hint="give strings of valid Unicode"
                )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def key_table(keys: object, rule: KeyRule, known: pa.Schema) -> tuple[pa.Table, bool]:
    """Return the keys to delete as a table, and whether they may be in any partition.

    Keys are rows that have the key's columns, or a plain list of values of a key of one column.
    """
    listed = isinstance(keys, Sequence) and not isinstance(keys, str | bytes)
    if isinstance(keys, str | bytes | int):
        raise InvalidInput(f"{keys!r} is no list of keys", hint=f"give [{keys!r}]")
    if listed and not any(isinstance(key, Mapping) for key in keys):  # type: ignore[attr-defined]
        if len(rule.keys) != 1:
            raise InvalidInput(
                f"a key of this table has the columns {', '.join(rule.keys)}",
                hint="give a dictionary for each key",
            )
        column = _column(list(keys), rule.keys[0], known)  # type: ignore[call-overload]
        table = pa.table({rule.keys[0]: column})
    else:
        table = arrow_table(keys, known)
    heads = {name.partition(".")[0] for name in rule.partitions}
    whole = all(name in table.column_names for name in heads)
    return table, bool(rule.partitions) and not whole
