"""Making a table: what it is, decided once, from arguments and Hudi's options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from tidelock.base.config import ConfigKey
from tidelock.base.errors import ConfigInvalid, InvalidInput, Unsupported
from tidelock.operation import options as o
from tidelock.operation.settings import INDEX_OPTIONS
from tidelock.table.keys import KeyRule, partition_paths, record_keys
from tidelock.table.properties import (
    BASE_FORMAT,
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
_OF_STATEMENTS: Final = ("SqlKeyGenerator", "MergeIntoKeyGenerator")
"""Classes by which Hudi's SQL wraps a table's own key generator."""

_CHANGEABLE: Final = frozenset({BASE_FORMAT, *(key.key for key in INDEX_OPTIONS)})
"""Properties that are no part of what a table is; the index is checked where it is chosen."""


def table_properties(uri: str, schema: pa.Schema, options: Mapping[str, object]) -> TableProperties:
    """Return the properties of a table to create.

    Raises: `InvalidInput` for columns that are not there or cannot be keys, `ConfigInvalid`,
    `Unsupported`.
    """
    keys = o.RECORD_KEY_FIELDS.value(options) or ()
    partitions = o.PARTITION_PATH_FIELDS.value(options) or ()
    order = o.ORDERING.value(options) or ()
    if not keys:
        raise InvalidInput(
            "a table needs a record key", hint='give key="id", or several columns as a list'
        )
    named = o.TABLE_NAME.value(options) or _name_of(uri)
    for role, columns in (("record key", keys), ("partition", partitions), ("ordering", order)):
        _check_columns(role, columns, schema)
    stored = storable(schema, table=named)
    times = {k.key: v for k in o.TIME_OPTIONS if (v := k.value(options)) is not None}
    index = {key.key: str(options[key.key]) for key in INDEX_OPTIONS if key.key in options}
    generator = _generator(options, times)
    properties = new_properties(
        named,
        database=o.DATABASE_NAME.required(options),
        table_type=_member(TableType, o.TABLE_TYPE.required(options), o.TABLE_TYPE),
        version=o.TABLE_VERSION.required(options),
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
    """Return the options with what a user gives as arguments, which win over them."""
    given: tuple[tuple[ConfigKey[Any], object], ...] = (
        (o.RECORD_KEY_FIELDS, _joined(key)),
        (o.ORDERING, _joined(ordering)),
        (o.PARTITION_PATH_FIELDS, _joined(partition_by)),
        (o.TABLE_TYPE, table_type),
        (o.TABLE_VERSION, version),
        (o.TABLE_NAME, name),
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
        raise InvalidInput(f"{names!r} is no column", hint='give "id", or several: ["id", "day"]')
    return ",".join(names)


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


def check_identity(known: TableProperties, options: Mapping[str, object]) -> None:
    """Refuse options that say that a table is another than it is, as Hudi does.

    Only what is given counts, and every spelling of it. Raises: `ConfigInvalid` naming each option,
    the table's value and the given one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    conflicts: list[tuple[str, str, object]] = []
    claimed: set[str] = set()
    for key, value, same in _claims(known):
        claimed.update((key.key, *key.aliases))
        conflicts += [
            (name, value, given[name])
            for name in (key.key, *key.aliases)
            if name in given and not same(key.value({key.key: given[name]}))
        ]
    conflicts += [
        (name, known.values[name], given[name])
        for name in sorted(given.keys() & known.values.keys() - claimed - _CHANGEABLE)
        if not _same_text(known.values[name], str(given[name]))
    ]
    if conflicts:
        shown = "; ".join(f"{name} is {value!r}, given {said!r}" for name, value, said in conflicts)
        raise ConfigInvalid(
            f"{known.where}: the options contradict the table: {shown}",
            hint="leave them out, or give the table's values; what a table is, is decided when it"
            " is created",
        )


def _claims(
    known: TableProperties,
) -> Iterator[tuple[ConfigKey[Any], str, Callable[[Any], bool]]]:
    """Yield each option that says what a table is, the table's value, and what agrees with it."""
    parts = known.partition_fields if known.is_partitioned else ()
    generator = known.key_generator
    yield o.RECORD_KEY_FIELDS, ",".join(known.record_keys), known.record_keys.__eq__
    yield o.PARTITION_PATH_FIELDS, ",".join(parts), lambda said: _plain_fields(said) == parts
    yield o.ORDERING, ",".join(known.ordering_fields), known.ordering_fields.__eq__
    for key, value in (
        (o.TABLE_NAME, known.name),
        (o.TABLE_TYPE, known.type.value),
        (o.RECORD_MERGE_MODE, known.merge_mode.value),
    ):
        yield key, value, partial(_same_text, value)
    if known.database:
        yield o.DATABASE_NAME, known.database, partial(_same_text, known.database)
    yield o.TABLE_VERSION, str(known.version), known.version.__eq__
    yield o.KEY_GENERATOR_TYPE, generator.value, partial(_is_type_of, generator)
    yield o.KEY_GENERATOR_CLASS, generator.value, partial(_is_class_of, generator)
    yield o.HIVE_STYLE_PARTITIONS, str(known.hive_style).lower(), known.hive_style.__eq__
    yield o.URL_ENCODED_PARTITIONS, str(known.url_encode).lower(), known.url_encode.__eq__


def _same_text(value: str, said: str) -> bool:
    return value.strip().lower() == said.strip().lower()


def _plain_fields(said: Sequence[str]) -> tuple[str, ...]:
    """Return partition columns without the kind that a custom key generator appends."""
    return tuple(field.partition(":")[0] for field in said)


def _is_type_of(generator: KeyGenerator, said: str) -> bool:
    return (_generator_named(said) or KeyGenerator.OTHER) is generator


def _is_class_of(generator: KeyGenerator, said: str) -> bool:
    short = said.rpartition(".")[2]
    if short in _OF_STATEMENTS:
        return True
    if generator in _CREATED:
        return _GENERATORS.get(_plain_class(short)) is generator
    return _plain_class(short) not in _GENERATORS


def _generator_named(said: str) -> KeyGenerator | None:
    return KeyGenerator.__members__.get(said.removesuffix("_AVRO"))


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
    """Refuse columns whose values cannot be keys or folders before there are any rows."""
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
    if found not in _CREATED:
        raise Unsupported(
            f"the key generator {named} is not supported",
            hint=f"use {', '.join(_CREATED)}",
        )
    return found


def _merge_mode(options: Mapping[str, object]) -> MergeMode | None:
    named = o.merge_mode_asked(options)
    return None if named is None else _member(MergeMode, named, o.RECORD_MERGE_MODE)


def _member(kind: type[T], named: str, key: ConfigKey[str]) -> T:
    members: Mapping[str, T] = kind.__members__  # type: ignore[attr-defined]
    if named.upper() not in members:
        raise ConfigInvalid(f"{key.key} = {named} is not known", hint=f"use {', '.join(members)}")
    return members[named.upper()]


def _name_of(uri: str) -> str:
    """Return a table's name from the last part of its path, with letters that Avro allows."""
    return sanitized(uri.rstrip("/").rpartition("/")[2]) or "table"
