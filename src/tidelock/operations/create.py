"""Table creation: properties from arguments and Hudi's options; checks that options match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from tidelock.core.config import ConfigKey, check_values
from tidelock.core.errors import ConfigInvalid, InvalidInput, Unsupported
from tidelock.hudi.keys import KeyRule, partition_paths, record_keys
from tidelock.hudi.properties import (
    BASE_FORMAT,
    KeyGenerator,
    MergeMode,
    TableProperties,
    TableType,
    new_properties,
)
from tidelock.hudi.schema import (
    avro_schema,
    render_schema,
    sanitize_name,
    stored_schema,
    without_meta,
)
from tidelock.lock.config import DATABASE_NAME, TABLE_NAME
from tidelock.operations import config as o
from tidelock.operations.config import INDEX_OPTIONS
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

T = TypeVar("T")

Names = str | Sequence[str] | None

_GENERATORS: Final = {
    "SimpleKeyGenerator": KeyGenerator.SIMPLE,
    "ComplexKeyGenerator": KeyGenerator.COMPLEX,
    "NonpartitionedKeyGenerator": KeyGenerator.NON_PARTITION,
    "TimestampBasedKeyGenerator": KeyGenerator.TIMESTAMP,
}
_SQL_WRAPPERS: Final = ("SqlKeyGenerator", "MergeIntoKeyGenerator")
"""Classes with which Hudi's SQL wraps the key generator of a table."""

_CHANGEABLE: Final = frozenset({BASE_FORMAT, *(key.key for key in INDEX_OPTIONS)})
"""Properties that are not part of a table's identity; the index is checked elsewhere."""


def open_table_store(
    uri: str, settings: Mapping[str, object] | None, options: Mapping[str, object] | None
) -> tuple[ObjectStore, dict[str, object]]:
    """Return the store of a table, and its checked options. Raises: `ConfigInvalid`."""
    chosen = {**(settings or {}), **(options or {})}
    o.check_options(chosen)
    check_values(chosen)
    return open_store(uri, chosen), chosen


def table_properties(uri: str, schema: pa.Schema, options: Mapping[str, object]) -> TableProperties:
    """Return the properties of a table to create.

    Raises: `InvalidInput` for columns that do not exist or cannot be keys, `ConfigInvalid`,
    `Unsupported`.
    """
    keys = o.RECORD_KEY_FIELDS.value(options) or ()
    partitions = o.PARTITION_PATH_FIELDS.value(options) or ()
    order = o.ORDERING.value(options) or ()
    if not keys:
        raise InvalidInput(
            "key: expected at least one column, got none",
            hint=f"set {o.RECORD_KEY_FIELDS.key} to one or more columns; in Python key=, on the"
            " command line --key",
        )
    named = TABLE_NAME.value(options) or _name_of(uri)
    for role, columns in (("record key", keys), ("partition", partitions), ("ordering", order)):
        _check_columns(role, columns, schema)
    stored = stored_schema(schema, table=named)
    times = {k.key: v for k in o.TIME_OPTIONS if (v := k.value(options)) is not None}
    index = {key.key: str(options[key.key]) for key in INDEX_OPTIONS if key.key in options}
    mode = o.requested_merge_mode(options)
    properties = new_properties(
        named,
        database=DATABASE_NAME.required(options),
        table_type=_member(TableType, o.TABLE_TYPE.required(options), o.TABLE_TYPE),
        version=o.TABLE_VERSION.required(options),
        record_keys=keys,
        partition_fields=partitions,
        ordering_fields=order,
        merge_mode=None if mode is None else _member(MergeMode, mode, o.RECORD_MERGE_MODE),
        key_generator=_generator(options, times),
        hive_style=o.HIVE_STYLE_PARTITIONS.required(options),
        url_encode=o.URL_ENCODED_PARTITIONS.required(options),
        create_schema=render_schema(avro_schema(stored, table=named)),
        others={**times, **index},
    )
    _check_keys(stored, properties)
    return properties


def with_arguments(
    options: Mapping[str, object],
    *,
    key: Names,
    ordering: Names,
    partition_by: Names,
    table_type: str | None,
    version: int | None,
    name: str | None,
) -> dict[str, object]:
    """Return the options overridden by arguments."""
    given: tuple[tuple[ConfigKey[Any], object], ...] = (
        (o.RECORD_KEY_FIELDS, _joined(key)),
        (o.ORDERING, _joined(ordering)),
        (o.PARTITION_PATH_FIELDS, _joined(partition_by)),
        (o.TABLE_TYPE, table_type),
        (o.TABLE_VERSION, version),
        (TABLE_NAME, name),
    )
    found = dict(options)
    for option, value in given:
        if value is not None:
            for alias in option.aliases:
                found.pop(alias, None)
            found[option.key] = value
    return found


def _joined(names: Names) -> str | None:
    if names is None or isinstance(names, str):
        return names
    given: object = names
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(
            f"expected a column name or a list of names, got {names!r}",
            hint='use "id" or ["id", "day"]',
        )
    return ",".join(names)


def user_schema(schema: object) -> pa.Schema:
    """Return a schema given as an Arrow schema, or as pairs of name and type.

    Raises: `InvalidInput`.
    """
    try:
        found = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        raise InvalidInput(
            f"schema: expected an Arrow schema or pairs of name and type, got {schema!r}: {error}",
            hint='use for example [("id", "string")]',
        ) from error
    if not without_meta(found).names:
        raise InvalidInput(
            "schema: expected at least one column, got none", hint="add the key column"
        )
    twice = {name for name in found.names if found.names.count(name) > 1}
    if twice:
        raise InvalidInput(
            f"schema: the column {min(twice)!r} occurs twice", hint="name each column once"
        )
    return without_meta(found)


def check_identity(known: TableProperties, options: Mapping[str, object]) -> None:
    """Check that options match the properties of a table, as Hudi does.

    Checks only options that are given, under all their names. Raises: `ConfigInvalid` naming each
    option, the table's value and the given one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    conflicts: list[tuple[str, str, object]] = []
    checked: set[str] = set()
    for key, value, same in _identity(known):
        checked.update((key.key, *key.aliases))
        conflicts += [
            (name, value, given[name])
            for name in (key.key, *key.aliases)
            if name in given and not same(key.value({key.key: given[name]}))
        ]
    conflicts += [
        (name, known.values[name], given[name])
        for name in sorted(given.keys() & known.values.keys() - checked - _CHANGEABLE)
        if not _same_text(known.values[name], str(given[name]))
    ]
    if conflicts:
        given_text = (f"{name}: expected {value!r}, got {got!r}" for name, value, got in conflicts)
        shown = "; ".join(given_text)
        raise ConfigInvalid(
            f"{known.where}: options contradict the table's properties: {shown}",
            hint="omit them; these properties are fixed when a table is created",
        )


def _identity(
    known: TableProperties,
) -> Iterator[tuple[ConfigKey[Any], str, Callable[[Any], bool]]]:
    """Yield each option of a table's identity, the table's value, and a check of a given value."""
    parts = known.partition_fields if known.is_partitioned else ()
    generator = known.key_generator
    yield o.RECORD_KEY_FIELDS, ",".join(known.record_keys), known.record_keys.__eq__
    yield o.PARTITION_PATH_FIELDS, ",".join(parts), lambda given: _plain_fields(given) == parts
    yield o.ORDERING, ",".join(known.ordering_fields), known.ordering_fields.__eq__
    for key, value in (
        (TABLE_NAME, known.name),
        (o.TABLE_TYPE, known.type.value),
        (o.RECORD_MERGE_MODE, known.merge_mode.value),
    ):
        yield key, value, partial(_same_text, value)
    if known.database:
        yield DATABASE_NAME, known.database, partial(_same_text, known.database)
    yield o.TABLE_VERSION, str(known.version), known.version.__eq__
    yield o.KEY_GENERATOR_TYPE, generator.value, partial(_is_type_of, generator)
    yield o.KEY_GENERATOR_CLASS, generator.value, partial(_is_class_of, generator)
    yield o.HIVE_STYLE_PARTITIONS, str(known.hive_style).lower(), known.hive_style.__eq__
    yield o.URL_ENCODED_PARTITIONS, str(known.url_encode).lower(), known.url_encode.__eq__


def _same_text(value: str, given: str) -> bool:
    return value.strip().lower() == given.strip().lower()


def _plain_fields(given: Sequence[str]) -> tuple[str, ...]:
    """Return partition columns without the kind that a custom key generator appends."""
    return tuple(field.partition(":")[0] for field in given)


def _is_type_of(generator: KeyGenerator, given: str) -> bool:
    return (_generator_named(given) or KeyGenerator.OTHER) is generator


def _is_class_of(generator: KeyGenerator, given: str) -> bool:
    short = given.rpartition(".")[2]
    if short in _SQL_WRAPPERS:
        return True
    if generator in o.KEY_GENERATORS:
        return _GENERATORS.get(_plain_class(short)) is generator
    return _plain_class(short) not in _GENERATORS


def _generator_named(given: str) -> KeyGenerator | None:
    return KeyGenerator.__members__.get(given.removesuffix("_AVRO"))


def _plain_class(short: str) -> str:
    return short.removesuffix("Avro").replace("AvroKey", "Key")


def _check_columns(role: str, columns: Sequence[str], schema: pa.Schema) -> None:
    for column in columns:
        if column not in schema.names and column.partition(".")[0] not in schema.names:
            raise InvalidInput(
                f"the {role} column {column!r} is not in the schema",
                hint=f"the columns are {', '.join(schema.names)}",
            )


def _check_keys(schema: pa.Schema, properties: TableProperties) -> None:
    """Check that the columns can be record keys and partition paths."""
    nothing, rule = schema.empty_table(), KeyRule.of(properties)
    record_keys(nothing, rule)
    partition_paths(nothing, rule)


def _generator(options: Mapping[str, object], times: Mapping[str, str]) -> KeyGenerator | None:
    named = o.KEY_GENERATOR_TYPE.value(options)
    if named:
        found = _generator_named(named)
    else:
        class_name = o.KEY_GENERATOR_CLASS.value(options)
        if not class_name:
            return KeyGenerator.TIMESTAMP if o.TIME_TYPE.key in times else None
        short = class_name.rpartition(".")[2]
        found, named = _GENERATORS.get(_plain_class(short)), class_name
    if found not in o.KEY_GENERATORS:
        raise Unsupported(
            f"{o.KEY_GENERATOR_TYPE.key}: the key generator {named} is not supported",
            hint=f"use one of {', '.join(o.KEY_GENERATORS)}",
        )
    return found


def _member(kind: type[T], named: str, key: ConfigKey[str]) -> T:
    members: Mapping[str, T] = kind.__members__  # type: ignore[attr-defined]
    if named.upper() not in members:
        raise key.unknown_value(named, members)
    return members[named.upper()]


def _name_of(uri: str) -> str:
    """Return a table name from the last part of its path, with characters that Avro allows."""
    return sanitize_name(uri.rstrip("/").rpartition("/")[2]) or "table"
