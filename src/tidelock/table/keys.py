"""Record keys and partition paths of rows, as Hudi's key generators make them, column-wise.

The text of a value is what Java's `toString` gives: `true`, `2024-01-31`, `12.50`. A timestamp is
its microseconds since 1970, because that is what Hudi's generators see in an Avro record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import InvalidInput, Unsupported
from tidelock.table.partition import partition_path
from tidelock.table.properties import KeyGenerator, TableProperties
from tidelock.table.timepartition import TimeFolders

NULL_PART: Final = "__null__"
EMPTY_PART: Final = "__empty__"
"""What stands in a composite key for a part without a value."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a table makes keys and partition paths of its columns."""

    generator: KeyGenerator
    keys: tuple[str, ...]
    partitions: tuple[str, ...] = ()
    version: int = 9
    hive_style: bool = False
    url_encode: bool = False
    time: TimeFolders | None = None

    @classmethod
    def of(cls, properties: TableProperties) -> KeyRule:
        """Return the rule of a table. Raises: `ConfigInvalid` for time settings that cannot be."""
        by_time = properties.key_generator is KeyGenerator.TIMESTAMP
        return cls(
            properties.key_generator,
            properties.record_keys,
            properties.partition_fields,
            properties.version,
            properties.hive_style,
            properties.url_encode,
            TimeFolders.of(properties.values) if by_time else None,
        )

    @property
    def is_named(self) -> bool:
        """Tell whether keys read `field:value`, or are the plain value of the one key field.

        Tables of version 8 got plain values from the complex generator too, when it had one field.
        """
        if len(self.keys) > 1:
            return True
        return self.generator is KeyGenerator.COMPLEX and self.version >= 9


def record_keys(rows: pa.Table, rule: KeyRule) -> pa.Array:
    """Return the record key of each row.

    Raises: `InvalidInput` naming the column, and the first row whose key is null or empty.
    """
    _check_generator(rule)
    if not rule.keys:
        raise InvalidInput(
            "the table has no record key", hint="set hoodie.datasource.write.recordkey.field"
        )
    texts = [column_text(rows, name, "record key") for name in rule.keys]
    blank = _blank(texts[0])
    for text in texts[1:]:
        blank = pc.and_(blank, _blank(text))
    _refuse_blank(blank, rule.keys)
    if not rule.is_named:
        return texts[0]
    parts: list[pa.Array | pa.Scalar] = []
    for name, text in zip(rule.keys, texts, strict=True):
        value = pc.if_else(pc.equal(text, ""), EMPTY_PART, text)
        parts += [pa.scalar(f"{',' if parts else ''}{name}:"), pc.fill_null(value, NULL_PART)]
    return pc.binary_join_element_wise(*parts, "")


def partition_paths(rows: pa.Table, rule: KeyRule) -> pa.Array:
    """Return the partition path of each row: "" for a table without partitions.

    Raises: `InvalidInput` naming the column and a value that cannot be a folder.
    """
    _check_generator(rule)
    if not rule.partitions or rule.generator is KeyGenerator.NON_PARTITION:
        return pa.repeat(pa.scalar(""), rows.num_rows)
    folders = [_folders(rows, name, rule) for name in rule.partitions]
    return pc.binary_join_element_wise(*folders, "/")


def column_text(rows: pa.Table, name: str, role: str) -> pa.Array:
    """Return a column, or the field of a struct (`a.b`), as the text that keys are made of.

    Raises: `InvalidInput` when it is not there, or its type has no text that Java agrees on.
    """
    array = _column(rows, name, role)
    kind = array.type
    if pt.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pt.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
    if _has_text(kind):
        return array.cast(pa.string())
    raise InvalidInput(
        f"the {role} column {name!r} is a {kind}, whose text differs between languages",
        hint="use a string, a whole number, a date, a decimal or a boolean",
    )


def _column(rows: pa.Table, name: str, role: str) -> pa.Array:
    head, *inner = [name] if name in rows.column_names else name.split(".")
    if head not in rows.column_names:
        raise InvalidInput(
            f"the {role} column {name!r} is missing",
            hint=f"the columns are {', '.join(rows.column_names)}",
        )
    array = rows.column(head).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    for part in inner:
        if not pt.is_struct(array.type) or array.type.get_field_index(part) < 0:
            raise InvalidInput(f"the {role} column {name!r} is missing: {head} has no {part}")
        array = pc.struct_field(array, part)
    return array


def _has_text(kind: pa.DataType) -> bool:
    return bool(
        pt.is_null(kind)
        or pt.is_string(kind)
        or pt.is_large_string(kind)
        or pt.is_string_view(kind)
        or pt.is_integer(kind)
        or pt.is_boolean(kind)
        or pt.is_date32(kind)
        or pt.is_decimal(kind)
    )


def _blank(text: pa.Array) -> pa.Array:
    return pc.fill_null(pc.equal(text, ""), fill_value=True)


def _refuse_blank(blank: pa.Array, names: Sequence[str]) -> None:
    row = pc.index(blank, value=True).as_py()
    if row >= 0:
        column = f"column {names[0]!r} is" if len(names) == 1 else f"columns {list(names)} are all"
        raise InvalidInput(
            f"row {row}: the record key {column} null or empty",
            hint="fill it, or leave such rows out",
        )


def _folders(rows: pa.Table, name: str, rule: KeyRule) -> pa.Array:
    """Return one field's part of the path. Folders are few, so each distinct one is made once."""
    if rule.time is not None:
        text = rule.time.folders(_column(rows, name, "partition"), name)
    else:
        text = column_text(rows, name, "partition")
    coded = text.dictionary_encode(null_encoding="encode")
    made = [
        partition_path(
            [name],
            [value],
            hive_style=rule.hive_style,
            url_encode=rule.url_encode,
            nested=rule.time is not None,
        )
        for value in coded.dictionary.to_pylist()
    ]
    return pa.array(made, pa.string()).take(coded.indices)


def _check_generator(rule: KeyRule) -> None:
    if rule.generator in (KeyGenerator.CUSTOM, KeyGenerator.OTHER):
        raise Unsupported(
            f"keys of the generator {rule.generator} cannot be made here",
            hint="use SIMPLE, COMPLEX, NON_PARTITION or TIMESTAMP",
        )
