"""Making a table: what it is, decided once, from arguments and Hudi's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from tidelock.base.config import ConfigKey
from tidelock.base.errors import ConfigInvalid, InvalidInput, Unsupported
from tidelock.operation import options as o
from tidelock.operation.settings import INDEX_OPTIONS
from tidelock.table.keys import KeyRule, partition_paths, record_keys
from tidelock.table.properties import (
    KeyGenerator,
    MergeMode,
    TableProperties,
    TableType,
    new_properties,
)
from tidelock.table.schema.avro import avro_schema, render_schema, sanitized, storable
from tidelock.table.schema.meta import without_meta

T = TypeVar("T")

Names = str | Sequence[str] | None

_GENERATORS: Final = {
    "SimpleKeyGenerator": KeyGenerator.SIMPLE,
    "ComplexKeyGenerator": KeyGenerator.COMPLEX,
    "NonpartitionedKeyGenerator": KeyGenerator.NON_PARTITION,
    "TimestampBasedKeyGenerator": KeyGenerator.TIMESTAMP,
}
_CREATED: Final = (
    KeyGenerator.SIMPLE,
    KeyGenerator.COMPLEX,
    KeyGenerator.NON_PARTITION,
    KeyGenerator.TIMESTAMP,
)
_TIME_SETTINGS: Final = "hoodie.keygen.timebased."


def table_properties(
    uri: str,
    schema: pa.Schema,
    *,
    key: Names,
    ordering: Names,
    partition_by: Names,
    table_type: str | None,
    version: int | None,
    name: str | None,
    options: Mapping[str, object],
) -> TableProperties:
    """Return the properties of a table to create; arguments win over options.

    Raises: `InvalidInput` for columns that are not there or cannot be keys, `ConfigInvalid`,
    `Unsupported`.
    """
    keys = _chosen(key, o.RECORD_KEY_FIELDS, options)
    partitions = _chosen(partition_by, o.PARTITION_PATH_FIELDS, options)
    order = _chosen(ordering, o.ORDERING, options)
    if not keys:
        raise InvalidInput(
            "a table needs a record key", hint='give key="id", or several columns as a list'
        )
    named = name or o.TABLE_NAME.value(options) or _name_of(uri)
    for role, columns in (("record key", keys), ("partition", partitions), ("ordering", order)):
        _check_columns(role, columns, schema)
    stored = storable(schema, table=named)
    times = {k: str(v) for k, v in options.items() if k.startswith(_TIME_SETTINGS)}
    index = {key.key: str(options[key.key]) for key in INDEX_OPTIONS if key.key in options}
    generator = _generator(options, times)
    properties = new_properties(
        named,
        database=o.DATABASE_NAME.required(options),
        table_type=_member(TableType, table_type or o.TABLE_TYPE.required(options), o.TABLE_TYPE),
        version=version or o.TABLE_VERSION.required(options),
        record_keys=keys,
        partition_fields=partitions,
        ordering_fields=order,
        merge_mode=_merge_mode(options),
        key_generator=generator,
        hive_style=o.HIVE_STYLE_PARTITIONS.required(options),
        url_encode=o.URL_ENCODED_PARTITIONS.required(options),
        create_schema=render_schema(avro_schema(stored, table=named)),
        others={**times, **index},
    )
    _check_keys(stored, properties)
    return properties


def user_schema(schema: object) -> pa.Schema:
    """Return the columns that a user describes: an Arrow schema, or pairs of name and type.

    Raises: `InvalidInput`.
    """
    try:
        found = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{schema!r} is no schema: {error}", hint='give a pyarrow schema, or [("id", "string")]'
        ) from error
    if not without_meta(found).names:
        raise InvalidInput("a table needs columns", hint="give a schema with at least its key")
    twice = {name for name in found.names if found.names.count(name) > 1}
    if twice:
        raise InvalidInput(f"the schema has the column {min(twice)!r} twice")
    return without_meta(found)


def _chosen(
    given: Names, key: ConfigKey[tuple[str, ...]], options: Mapping[str, object]
) -> tuple[str, ...]:
    if given is None:
        return key.value(options) or ()
    return (given,) if isinstance(given, str) else tuple(given)


def _check_columns(role: str, columns: Sequence[str], schema: pa.Schema) -> None:
    for column in columns:
        if column not in schema.names and column.partition(".")[0] not in schema.names:
            raise InvalidInput(
                f"the {role} column {column!r} is not in the schema",
                hint=f"the columns are {', '.join(schema.names)}",
            )


def _check_keys(schema: pa.Schema, properties: TableProperties) -> None:
    """Refuse columns whose values cannot be keys or folders before there are any rows."""
    nothing, rule = schema.empty_table(), KeyRule.of(properties)
    record_keys(nothing, rule)
    partition_paths(nothing, rule)


def _generator(options: Mapping[str, object], times: Mapping[str, str]) -> KeyGenerator | None:
    named = o.KEY_GENERATOR_TYPE.value(options)
    if named:
        found = KeyGenerator.__members__.get(named.removesuffix("_AVRO"))
    else:
        class_name = o.KEY_GENERATOR_CLASS.value(options)
        if not class_name:
            return KeyGenerator.TIMESTAMP if times else None
        short = class_name.rpartition(".")[2].removesuffix("Avro").replace("AvroKey", "Key")
        found, named = _GENERATORS.get(short), class_name
    if found not in _CREATED:
        raise Unsupported(
            f"the key generator {named} is not supported",
            hint=f"use {', '.join(_CREATED)}",
        )
    return found


def _merge_mode(options: Mapping[str, object]) -> MergeMode | None:
    named = o.RECORD_MERGE_MODE.value(options)
    return None if named is None else _member(MergeMode, named, o.RECORD_MERGE_MODE)


def _member(kind: type[T], named: str, key: ConfigKey[str]) -> T:
    members: Mapping[str, T] = kind.__members__  # type: ignore[attr-defined]
    if named.upper() not in members:
        raise ConfigInvalid(f"{key.key} = {named} is not known", hint=f"use {', '.join(members)}")
    return members[named.upper()]


def _name_of(uri: str) -> str:
    """Return a table's name from the last part of its path, with letters that Avro allows."""
    return sanitized(uri.rstrip("/").rpartition("/")[2]) or "table"
