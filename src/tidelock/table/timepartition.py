"""Folders made of times: Hudi's TIMESTAMP key generator, with its patterns read column-wise.

Patterns are Joda's, of which the ones that make folders are known: yyyy MM dd HH mm ss, SSS and
Z in inputs, quoted text and separators. Where Hudi would use the zone of its machine, it is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import ConfigInvalid, InvalidInput

_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_TOKEN: Final = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|[^A-Za-z']")

_PLAIN: Final = "%Y-%m-%d %H:%M:%S"

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
_SECONDS: Final = {
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


@dataclass(frozen=True, slots=True)
class TimeFolders:
    """How times become folders."""

    output: str
    unit: str | None = None
    inputs: tuple[str, ...] = ()
    input_zone: str | None = None
    output_zone: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, str]) -> TimeFolders:
        """Return the settings in a table's properties. Raises: `ConfigInvalid`."""
        kind = _setting(values, "timestamp.type")
        output = _setting(values, "output.dateformat")
        if not kind or not output:
            missing = "timestamp.type" if not kind else "output.dateformat"
            raise ConfigInvalid(
                f"{_PREFIXES[0]}{missing} is not set", hint="the TIMESTAMP key generator needs it"
            )
        unit = _UNIT_OF.get(kind)
        if kind == "SCALAR":
            unit = (_setting(values, "timestamp.scalar.time.unit") or "SECONDS").upper()
        if kind not in (*_UNIT_OF, "SCALAR", "DATE_STRING", "MIXED") or (
            unit is not None and unit not in _SECONDS
        ):
            raise ConfigInvalid(f"{_PREFIXES[0]}timestamp.type = {kind!r} with unit {unit!r}")
        split = _setting(values, "input.dateformat.list.delimiter.regex") or ","
        inputs = re.split(split, _setting(values, "input.dateformat"))
        both = _setting(values, "timezone")
        return cls(
            output,
            unit,
            tuple(pattern.strip() for pattern in inputs if pattern.strip()),
            _zone(both or _setting(values, "input.timezone")),
            _zone(both or _setting(values, "output.timezone")),
        )

    def folders(self, values: pa.Array, name: str) -> pa.Array:
        """Return the folder of each value. Raises: `InvalidInput`, `ConfigInvalid`."""
        if pt.is_string(values.type) or pt.is_large_string(values.type):
            local = self._parsed(values.cast(pa.string()), name)
        else:
            local = self._counted(values, name)
        return pc.strftime(local, format=_strftime(self.output))

    def _counted(self, values: pa.Array, name: str) -> pa.Array:
        """Return numbers of units since 1970 as local times. Hudi takes null for 1."""
        kind = values.type
        if pt.is_timestamp(kind):
            values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        elif pt.is_date32(kind):
            values = values.cast(pa.int32())
        elif not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
            raise InvalidInput(f"the partition column {name!r} is a {kind}, which is no time")
        if self.unit is None:
            raise ConfigInvalid(
                f"the partition column {name!r} has numbers, but their unit is not set",
                hint=f"set {_PREFIXES[0]}timestamp.type",
            )
        whole = pc.trunc(values).cast(pa.int64()) if not pt.is_integer(values.type) else values
        micros = pc.multiply(pc.fill_null(whole.cast(pa.int64()), 1), _SECONDS[self.unit])
        return _local(_floored(micros), self.output_zone)

    def _parsed(self, texts: pa.Array, name: str) -> pa.Array:
        """Return texts as local times, read by the first pattern that fits each."""
        if not self.inputs:
            raise ConfigInvalid(
                f"the partition column {name!r} has texts, but {_PREFIXES[0]}input.dateformat is"
                " not set"
            )
        # Hudi takes null for the first millisecond of 1970.
        epoch = pa.scalar(0, pa.timestamp("s"))
        local: pa.Array = pa.nulls(len(texts), pa.timestamp("s"))
        for pattern in self.inputs:
            local = pc.coalesce(local, self._read(texts, pattern))
        local = pc.if_else(texts.is_null(), epoch, local)
        if local.null_count:
            row = pc.index(local.is_null(), value=True).as_py()
            raise InvalidInput(
                f"row {row}: {texts[row].as_py()!r} of the partition column {name!r} does not fit"
                f" {' or '.join(self.inputs)}"
            )
        return local

    def _read(self, texts: pa.Array, pattern: str) -> pa.Array:
        found = pc.extract_regex(texts, pattern=f"^{_regex(pattern)}$")
        local = _assembled(found)
        names = {field.name for field in found.type}
        if self.input_zone is None and self.output_zone is None:
            return local
        if "zone" in names:
            instant = pc.subtract(local.cast(pa.int64()), _offset_s(pc.struct_field(found, "zone")))
        else:
            zone = self.input_zone or "UTC"
            instant = pc.assume_timezone(local, zone, ambiguous="earliest").cast(pa.int64())
        return _local(instant, self.output_zone or self.input_zone)


def _setting(values: Mapping[str, str], name: str) -> str:
    for prefix in _PREFIXES:
        if values.get(prefix + name, "").strip():
            return values[prefix + name]
    return ""


def _zone(text: str) -> str | None:
    """Return the zone in the spelling that Arrow knows: Java's GMT+8:00 is +08:00."""
    shift = re.fullmatch(r"(?:GMT|UTC)([+-])(\d{1,2})(?::?(\d{2}))?", text.strip())
    if shift:
        return f"{shift[1]}{int(shift[2]):02d}:{shift[3] or '00'}"
    return text.strip() or None


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """Return the pattern's parts: (letters, "") for a field, ("", text) for text."""
    parts, position = [], 0
    while position < len(pattern):
        found = _TOKEN.match(pattern, position)
        if found is None:
            raise ConfigInvalid(f"the date pattern {pattern!r} has an open quote")
        if found[1]:
            parts.append((found[0], ""))
        elif found[2] is not None:
            parts.append(("", found[2].replace("''", "'") or "'"))
        else:
            parts.append(("", found[0]))
        position = found.end()
    return parts


def _strftime(pattern: str) -> str:
    return "".join(
        _known(_OUTPUT, letters, pattern) if letters else text.replace("%", "%%")
        for letters, text in _tokens(pattern)
    )


def _regex(pattern: str) -> str:
    return "".join(
        _known(_INPUT, letters, pattern) if letters else re.escape(text)
        for letters, text in _tokens(pattern)
    )


def _known(table: Mapping[str, str], letters: str, pattern: str) -> str:
    if letters not in table:
        raise ConfigInvalid(
            f"the date pattern {pattern!r} has {letters!r}, which is not known here",
            hint=f"use {', '.join(table)}",
        )
    return table[letters]


def _assembled(found: pa.Array) -> pa.Array:
    """Return the times whose parts a pattern found; null where it did not fit."""
    names = {field.name for field in found.type}
    parts: list[pa.Array | pa.Scalar] = []
    rest = (("-", "month", "01"), ("-", "day", "01"), (" ", "hour", "00"))
    for before, name, default in (*rest, (":", "minute", "00"), (":", "second", "00")):
        parts.append(pa.scalar(before))
        if name in names:
            text = pc.struct_field(found, name)
            parts.append(pc.utf8_lpad(text, width=2, padding="0"))
        else:
            parts.append(pa.scalar(default))
    year = pc.struct_field(found, "year") if "year" in names else pa.scalar("1970")
    texts = pc.binary_join_element_wise(year, *parts, "")
    times = pc.strptime(texts, format=_PLAIN, unit="s", error_is_null=True)
    # A day that is not in the calendar comes back as another one, and so does not count as read.
    same = pc.and_(found.is_valid(), pc.equal(pc.strftime(times, format=_PLAIN), texts))
    return pc.if_else(same, times, pa.scalar(None, pa.timestamp("s")))


def _offset_s(zones: pa.Array) -> pa.Array:
    """Return `+05:30`, `-0800` or `Z` as seconds east of Greenwich."""
    plain = pc.replace_substring(pc.if_else(pc.equal(zones, "Z"), "+0000", zones), ":", "")
    hours = pc.utf8_slice_codeunits(plain, 1, 3).cast(pa.int64())
    minutes = pc.utf8_slice_codeunits(plain, 3, 5).cast(pa.int64())
    seconds = pc.add(pc.multiply(hours, 3600), pc.multiply(minutes, 60))
    return pc.if_else(pc.starts_with(plain, "-"), pc.negate(seconds), seconds)


def _floored(micros: pa.Array) -> pa.Array:
    """Return whole seconds, downwards, also before 1970."""
    return pc.floor(pc.divide(micros.cast(pa.float64()), 1e6)).cast(pa.int64())


def _local(instant_s: pa.Array, zone: str | None) -> pa.Array:
    """Return the wall-clock times of instants in a zone."""
    utc = instant_s.cast(pa.timestamp("s", tz="UTC"))
    return pc.local_timestamp(utc.cast(pa.timestamp("s", tz=zone or "UTC")))
