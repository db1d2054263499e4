"""Timeline metadata as bytes: an Avro object container with exactly one record.

The same value always gives the same bytes, so publishing an instant twice publishes one thing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import fastavro

from tidelock.base.errors import DataCorrupt, InvalidInput
from tidelock.table.timeline.metadata import CommitMetadata, OperationType, TimelineRecord

R = TypeVar("R", bound=TimelineRecord)

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_ONE_RECORD: Final = b"\x02"
_SIMPLE: Final = frozenset({str, int, float, bool, bytes, types.NoneType})


def encode(metadata: TimelineRecord) -> bytes:
    """Return the bytes of a timeline file.

    Raises: `InvalidInput` for a value Avro cannot hold, or an operation that Java does not know.
    """
    if isinstance(metadata, CommitMetadata):
        _check_operation(metadata.operation_type)
    schema = _parsed(cast("Any", type(metadata)))
    record = _as_record(metadata)
    plain = io.BytesIO()
    try:
        fastavro.schemaless_writer(plain, schema, record)
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
        raise InvalidInput(f"{type(metadata).__name__} cannot be written: {error}") from error
    block = plain.getvalue()
    sync = hashlib.sha256(block).digest()[:_SYNC_BYTES]
    head = _head(cast("Any", type(metadata)))
    return b"".join((head, sync, _ONE_RECORD, _whole(len(block)), block, sync))


@cache
def _head(kind: Any) -> bytes:
    """Return how every file of a kind begins, up to the mark that its blocks are told by."""
    file = io.BytesIO()
    fastavro.writer(file, _parsed(kind), [], sync_marker=bytes(_SYNC_BYTES))
    return file.getvalue()[:-_SYNC_BYTES]


def _whole(number: int) -> bytes:
    """Return a number as Avro writes it: zigzag, seven bits to a byte, the lowest first."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _check_operation(operation: str | None) -> None:
    if operation is not None and operation not in OperationType.__members__:
        raise InvalidInput(
            f"{operation!r} is not an operation that Java readers know",
            hint=f"use one of {', '.join(OperationType.__members__)}",
        )


def decode(kind: type[R], body: bytes, *, where: str) -> R:
    """Return what the bytes of a timeline file say.

    Files of older and newer Hudi versions are resolved as Avro does: fields they lack take their
    defaults, fields unknown here are left out. Commits of old tables are JSON.
    Raises: `DataCorrupt` naming `where`.
    """
    if not body:
        _fail(where, "it is empty")
    if body.startswith(b"{") and issubclass(kind, CommitMetadata):
        record = _json_record(body, where)
    elif body.startswith(_MAGIC):
        record = _avro_record(kind, body, where)
    else:
        _fail(where, f"it begins with {body[:4]!r}, not with the magic of Avro")
    try:
        return cast("R", _reader(cast("Any", kind))(record))
    except (TypeError, AttributeError, ValueError) as error:
        _fail(where, f"it is not {kind.__name__}: {error}", error)


def _avro_record(kind: type[TimelineRecord], body: bytes, where: str) -> Mapping[str, Any]:
    try:
        records = list(fastavro.reader(io.BytesIO(body), reader_schema=_parsed(cast("Any", kind))))
    # A parser accepts or raises one type; fastavro raises nearly anything on broken bytes.
    except Exception as error:  # noqa: BLE001
        _fail(
            where, f"it is not {kind.SCHEMA['name']} in Avro: {str(error) or type(error).__name__}"
        )
    if len(records) != 1 or not isinstance(records[0], dict):
        _fail(where, f"it has {len(records)} records, not one")
    return records[0]


def _json_record(body: bytes, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(body)
    except ValueError as error:
        _fail(where, f"it is broken JSON: {error}", error)
    return cast("Mapping[str, Any]", record)


def _fail(where: str, problem: str, cause: Exception | None = None) -> NoReturn:
    raise DataCorrupt(
        f"{where} cannot be read: {problem}",
        hint="restore this file from a copy, or roll the table back to an instant before it",
    ) from cause


@cache
def _parsed(kind: Any) -> Any:
    return fastavro.parse_schema(kind.SCHEMA)


def _avro_name(field: dataclasses.Field[Any]) -> str:
    given: str | None = field.metadata.get("avro")
    return given or re.sub(r"_([a-z])", lambda found: found[1].upper(), field.name)


@cache
def _names(kind: Any) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, _avro_name(field)) for field in dataclasses.fields(kind))


def _as_record(value: Any) -> Any:
    """Return dataclasses as dicts under Avro's names, tuples as lists."""
    if type(value) in _SIMPLE:  # nearly all of them, and a commit has dozens for each file
        return value
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return {avro: _as_record(getattr(value, name)) for name, avro in _names(kind)}
    if isinstance(value, tuple):
        return [_as_record(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _as_record(each) for key, each in value.items()}
    return value


_Read = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> _Read:
    """Return what turns a decoded Avro value into one of type `kind`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        read = _reader(next(each for each in inner if each is not types.NoneType))
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        read = _reader(inner[0])
        return lambda value: tuple(read(each) for each in value or ())
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read = _reader(inner[1])
        return lambda value: {key: read(each) for key, each in (value or {}).items()}
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    return lambda value: value


def _record_reader(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    reads = [(name, avro, _reader(hints[name])) for name, avro in _names(kind)]

    def read_record(record: Mapping[str, Any]) -> Any:
        # A field that JSON leaves out takes the dataclass's own default.
        return kind(**{name: read(record[avro]) for name, avro, read in reads if avro in record})

    return read_record
