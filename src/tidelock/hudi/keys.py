"""Record keys and partition paths of rows, computed column-wise as by Hudi's key generators.

Values are converted to text as by Java's `toString`: `true`, `2024-01-31`, `12.50`. A timestamp
becomes its microseconds since the epoch, as Hudi's generators see it in an Avro record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.core.errors import ConfigInvalid, InvalidInput, Unsupported
from tidelock.hudi.partitions import partition_path
from tidelock.hudi.properties import KeyGenerator, TableProperties
from tidelock.hudi.schema import as_array

_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_TOKEN: Final = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|[^A-Za-z']")

_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"

_OUTPUT: Final = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "DDD": "%j",
}
_INPUT: Final = {
    "yyyy": r"(?P<year>[0-9]{4})",
    "MM": r"(?P<month>[0-9]{1,2})",
    "dd": r"(?P<day>[0-9]{1,2})",
    "HH": r"(?P<hour>[0-9]{1,2})",
    "mm": r"(?P<minute>[0-9]{1,2})",
    "ss": r"(?P<second>[0-9]{1,2})",
    "SSS": r"(?:[0-9]{1,3})",
    "Z": r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})",
    "ZZ": r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})",
}
_MICROSECONDS: Final = {
    "DAYS": 86_400_000_000,
    "HOURS": 3_600_000_000,
    "MINUTES": 60_000_000,
    "SECONDS": 1_000_000,
    "MILLISECONDS": 1_000,
    "MICROSECONDS": 1,
}
"""Microseconds in each unit."""

_UNIT_OF: Final = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
TIME_TYPES: Final = (*_UNIT_OF, "SCALAR", "DATE_STRING", "MIXED")
"""The types of partition columns that the TIMESTAMP key generator converts."""


@dataclass(frozen=True, slots=True)
class TimestampPartitions:
    """How the TIMESTAMP key generator converts times to partition folders."""

    output: str
    unit: str | None = None
    inputs: tuple[str, ...] = ()
    input_zone: str | None = None
    output_zone: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, str]) -> TimestampPartitions:
        """Read the settings from a table's properties. Raises: `ConfigInvalid`."""
        kind = _setting(values, "timestamp.type")
        output = _setting(values, "output.dateformat")
        if not kind or not output:
            missing = "timestamp.type" if not kind else "output.dateformat"
            raise ConfigInvalid(
                f"{_PREFIXES[0]}{missing} is not set",
                hint="the TIMESTAMP key generator requires it",
            )
        unit = _UNIT_OF.get(kind)
        if kind == "SCALAR":
            unit = (_setting(values, "timestamp.scalar.time.unit") or "SECONDS").upper()
        if kind not in TIME_TYPES or (unit is not None and unit not in _MICROSECONDS):
            raise ConfigInvalid(
                f"{_PREFIXES[0]}timestamp.type: invalid type {kind!r}, unit {unit!r}",
                hint=f"use a type of {', '.join(TIME_TYPES)}, and a unit of"
                f" {', '.join(_MICROSECONDS)}",
            )
        split = _setting(values, "input.dateformat.list.delimiter.regex") or ","
        inputs = re.split(split, _setting(values, "input.dateformat"))
        both = _setting(values, "timezone")
        return cls(
            output,
            unit,
            tuple(pattern.strip() for pattern in inputs if pattern.strip()),
            _arrow_zone(both or _setting(values, "input.timezone")),
            _arrow_zone(both or _setting(values, "output.timezone")),
        )

    def folders(self, values: pa.Array, name: str) -> pa.Array:
        """Return the folder of each value. Raises: `InvalidInput`, `ConfigInvalid`."""
        if pt.is_string(values.type) or pt.is_large_string(values.type):
            local = self._from_strings(values.cast(pa.string()), name)
        else:
            local = self._from_numbers(values, name)
        output = _translated(self.output, _OUTPUT, lambda text: text.replace("%", "%%"))
        return pc.strftime(local, format=output)

    def _from_numbers(self, values: pa.Array, name: str) -> pa.Array:
        """Convert numbers of units since the epoch to local times. Hudi treats null as 1."""
        kind = values.type
        if pt.is_timestamp(kind):
            values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        elif pt.is_date32(kind):
            values = values.cast(pa.int32())
        elif not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
            raise InvalidInput(
                f"partition column {name!r}: expected a time, got {kind}",
                hint="use a timestamp, date, number or string column",
            )
        if self.unit is None:
            raise ConfigInvalid(
                f"partition column {name!r}: the unit of numeric times is not set",
                hint=f"set {_PREFIXES[0]}timestamp.type",
            )
        whole = pc.trunc(values).cast(pa.int64()) if not pt.is_integer(values.type) else values
        micros = pc.multiply(pc.fill_null(whole.cast(pa.int64()), 1), _MICROSECONDS[self.unit])
        # Rounded down, also before the epoch.
        seconds = pc.floor(pc.divide(micros.cast(pa.float64()), 1e6)).cast(pa.int64())
        return _local_times(seconds, self.output_zone)

    def _from_strings(self, texts: pa.Array, name: str) -> pa.Array:
        """Parse strings to local times, each by the first pattern that matches."""
        if not self.inputs:
            raise ConfigInvalid(
                f"partition column {name!r} has strings, but {_PREFIXES[0]}input.dateformat is not"
                " set",
                hint=f"set {_PREFIXES[0]}input.dateformat, for example to yyyy-MM-dd",
            )
        # Hudi treats null as the epoch.
        epoch = pa.scalar(0, pa.timestamp("s"))
        local: pa.Array = pa.nulls(len(texts), pa.timestamp("s"))
        for pattern in self.inputs:
            local = pc.coalesce(local, self._read(texts, pattern))
        local = pc.if_else(texts.is_null(), epoch, local)
        if local.null_count:
            row = pc.index(local.is_null(), value=True).as_py()
            raise InvalidInput(
                f"row {row}: partition column {name!r}: expected {' or '.join(self.inputs)}, got"
                f" {texts[row].as_py()!r}",
                hint=f"correct the value, or add its pattern to {_PREFIXES[0]}input.dateformat",
            )
        return local

    def _read(self, texts: pa.Array, pattern: str) -> pa.Array:
        found = pc.extract_regex(texts, pattern=f"^{_translated(pattern, _INPUT, re.escape)}$")
        local = _assemble_times(found)
        names = {field.name for field in found.type}
        if self.input_zone is None and self.output_zone is None:
            return local
        if "zone" in names:
            instant = pc.subtract(local.cast(pa.int64()), _offset_s(pc.struct_field(found, "zone")))
        else:
            zone = self.input_zone or "UTC"
            instant = pc.assume_timezone(local, zone, ambiguous="earliest").cast(pa.int64())
        return _local_times(instant, self.output_zone or self.input_zone)


def _setting(values: Mapping[str, str], name: str) -> str:
    for prefix in _PREFIXES:
        if values.get(prefix + name, "").strip():
            return values[prefix + name]
    return ""


def _arrow_zone(text: str) -> str | None:
    """Return the time zone in Arrow's notation: Java's GMT+8:00 is +08:00."""
    shift = re.fullmatch(r"(?:GMT|UTC)([+-])(\d{1,2})(?::?(\d{2}))?", text.strip())
    if shift:
        return f"{shift[1]}{int(shift[2]):02d}:{shift[3] or '00'}"
    return text.strip() or None


def _translated(
    pattern: str, fields: Mapping[str, str], escape_literal: Callable[[str], str]
) -> str:
    """Translate a Java date pattern: letters by `fields`, other text by `escape_literal`."""
    parts, position = [], 0
    while position < len(pattern):
        found = _TOKEN.match(pattern, position)
        if found is None:
            raise ConfigInvalid(
                f"date pattern {pattern!r}: unclosed quote",
                hint="close the quote, or write two for a quote",
            )
        position = found.end()
        if not found[1]:
            literal = found[0] if found[2] is None else found[2].replace("''", "'") or "'"
            parts.append(escape_literal(literal))
        elif found[0] in fields:
            parts.append(fields[found[0]])
        else:
            raise ConfigInvalid(
                f"date pattern {pattern!r}: unsupported field {found[0]!r}",
                hint=f"use {', '.join(fields)}",
            )
    return "".join(parts)


def _assemble_times(found: pa.Array) -> pa.Array:
    """Build times from the matched fields of a pattern; null where it did not match."""
    names = {field.name for field in found.type}
    parts: list[pa.Array | pa.Scalar] = []
    rest = (("-", "month", "01"), ("-", "day", "01"), (" ", "hour", "00"))
    for before, name, default in (*rest, (":", "minute", "00"), (":", "second", "00")):
        text = pc.struct_field(found, name) if name in names else pa.scalar(default)
        parts += [pa.scalar(before), pc.utf8_lpad(text, width=2, padding="0")]
    year = pc.struct_field(found, "year") if "year" in names else pa.scalar("1970")
    texts = pc.binary_join_element_wise(year, *parts, "")
    times = pc.strptime(texts, format=_TIME_FORMAT, unit="s", error_is_null=True)
    # An invalid date is normalized to another one, so compare with the input to reject it.
    same = pc.and_(found.is_valid(), pc.equal(pc.strftime(times, format=_TIME_FORMAT), texts))
    return pc.if_else(same, times, pa.scalar(None, pa.timestamp("s")))


def _offset_s(zones: pa.Array) -> pa.Array:
    """Convert `+05:30`, `-0800` or `Z` to seconds east of UTC."""
    plain = pc.replace_substring(pc.if_else(pc.equal(zones, "Z"), "+0000", zones), ":", "")
    hours = pc.utf8_slice_codeunits(plain, 1, 3).cast(pa.int64())
    minutes = pc.utf8_slice_codeunits(plain, 3, 5).cast(pa.int64())
    seconds = pc.add(pc.multiply(hours, 3600), pc.multiply(minutes, 60))
    return pc.if_else(pc.starts_with(plain, "-"), pc.negate(seconds), seconds)


def _local_times(instant_s: pa.Array, zone: str | None) -> pa.Array:
    """Return the wall-clock times of instants in a time zone."""
    utc = instant_s.cast(pa.timestamp("s", tz="UTC"))
    return pc.local_timestamp(utc.cast(pa.timestamp("s", tz=zone or "UTC")))


_WITH_TEXT: Final = (
    pt.is_null,
    pt.is_string,
    pt.is_large_string,
    pt.is_string_view,
    pt.is_integer,
    pt.is_boolean,
    pt.is_date32,
    pt.is_decimal,
)
"""The types whose text matches Java's."""

NULL_PART: Final = "__null__"
EMPTY_PART: Final = "__empty__"
"""The placeholders for null and empty parts of a composite key."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a table derives record keys and partition paths from columns."""

    generator: KeyGenerator
    keys: tuple[str, ...]
    partitions: tuple[str, ...] = ()
    version: int = 9
    hive_style: bool = False
    url_encode: bool = False
    time: TimestampPartitions | None = None

    @classmethod
    def of(cls, properties: TableProperties) -> KeyRule:
        """Return the rule of a table. Raises: `ConfigInvalid` for invalid time settings."""
        by_time = properties.key_generator is KeyGenerator.TIMESTAMP
        return cls(
            properties.key_generator,
            properties.record_keys,
            properties.partition_fields,
            properties.version,
            properties.hive_style,
            properties.url_encode,
            TimestampPartitions.of(properties.values) if by_time else None,
        )

    @property
    def is_named(self) -> bool:
        """Whether keys have the form `field:value`, or are the plain value of the only key field.

        In tables of version 8 the complex generator also makes plain values from a single field.
        """
        if len(self.keys) > 1:
            return True
        return self.generator is KeyGenerator.COMPLEX and self.version >= 9


def record_keys(rows: pa.Table, rule: KeyRule) -> pa.Array:
    """Return the record key of each row. Raises: `InvalidInput` naming the column and row."""
    _check_generator(rule)
    if not rule.keys:
        raise InvalidInput(
            "the table has no record key", hint="set hoodie.datasource.write.recordkey.field"
        )
    texts = [column_text(rows, name, "record key") for name in rule.keys]
    blank = reduce(pc.and_, (pc.fill_null(pc.equal(text, ""), fill_value=True) for text in texts))
    _check_blank(blank, rule.keys)
    if not rule.is_named:
        return texts[0]
    parts: list[pa.Array | pa.Scalar] = []
    for name, text in zip(rule.keys, texts, strict=True):
        value = pc.if_else(pc.equal(text, ""), EMPTY_PART, text)
        parts += [pa.scalar(f"{',' if parts else ''}{name}:"), pc.fill_null(value, NULL_PART)]
    return pc.binary_join_element_wise(*parts, "")


def partition_paths(rows: pa.Table, rule: KeyRule) -> pa.Array:
    """Return the partition path of each row: "" for a table without partitions.

    Raises: `InvalidInput` naming the column, and a value that is not a valid folder name.
    """
    _check_generator(rule)
    if not rule.partitions or rule.generator is KeyGenerator.NON_PARTITION:
        return pa.repeat(pa.scalar(""), rows.num_rows)
    folders = [_folders(rows, name, rule) for name in rule.partitions]
    return pc.binary_join_element_wise(*folders, "/")


def column_text(rows: pa.Table, name: str, role: str) -> pa.Array:
    """Return a column, or a struct field (`a.b`), converted to text for keys.

    Raises: `InvalidInput` if it does not exist, or its text would differ from Java's.
    """
    array = _column(rows, name, role)
    kind = array.type
    if pt.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pt.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
    if any(is_kind(kind) for is_kind in _WITH_TEXT):
        return array.cast(pa.string())
    raise InvalidInput(
        f"{role} column {name!r}: {kind} has no text form that matches Java's",
        hint="use a string, an integer, a date, a decimal or a boolean",
    )


def _column(rows: pa.Table, name: str, role: str) -> pa.Array:
    head, *inner = [name] if name in rows.column_names else name.split(".")
    if head not in rows.column_names:
        raise InvalidInput(
            f"{role} column {name!r} does not exist",
            hint=f"the columns are {', '.join(rows.column_names)}",
        )
    array = as_array(rows.column(head))
    for part in inner:
        if not pt.is_struct(array.type) or array.type.get_field_index(part) < 0:
            raise InvalidInput(f"{role} column {name!r} does not exist: {head} has no field {part}")
        array = pc.struct_field(array, part)
    return array


def _check_blank(blank: pa.Array, names: Sequence[str]) -> None:
    row = pc.index(blank, value=True).as_py()
    if row >= 0:
        column = f"column {names[0]!r} is" if len(names) == 1 else f"columns {list(names)} are all"
        raise InvalidInput(
            f"row {row}: the record key {column} null or empty",
            hint="set a value, or filter out such rows",
        )


def _folders(rows: pa.Table, name: str, rule: KeyRule) -> pa.Array:
    """Return one field's part of the path. Each distinct value is converted once."""
    if rule.time is not None:
        text = rule.time.folders(_column(rows, name, "partition"), name)
    else:
        text = column_text(rows, name, "partition")
    coded = text.dictionary_encode(null_encoding="encode")
    paths = [
        partition_path(
            [name],
            [value],
            hive_style=rule.hive_style,
            url_encode=rule.url_encode,
            nested=rule.time is not None,
        )
        for value in coded.dictionary.to_pylist()
    ]
    return pa.array(paths, pa.string()).take(coded.indices)


def _check_generator(rule: KeyRule) -> None:
    if rule.generator in (KeyGenerator.CUSTOM, KeyGenerator.OTHER):
        raise Unsupported(
            f"key generator {rule.generator} is not supported",
            hint="use SIMPLE, COMPLEX, NON_PARTITION or TIMESTAMP",
        )
