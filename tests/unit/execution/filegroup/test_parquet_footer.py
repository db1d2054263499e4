"""Parquet footers round-trip, and corrupt ones are rejected."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import DataCorrupt
from tidelock.execution.filegroup.parquet_footer import (
    Struct,
    ThriftList,
    ThriftMap,
    ThriftType,
    decode,
    encode,
)

LONG = 2**63 - 1

scalars: dict[ThriftType, st.SearchStrategy[Any]] = {
    ThriftType.TRUE: st.booleans(),
    ThriftType.BYTE: st.integers(-128, 127),
    ThriftType.I16: st.integers(-(2**15), 2**15 - 1),
    ThriftType.I32: st.integers(-(2**31), 2**31 - 1),
    ThriftType.I64: st.integers(-LONG - 1, LONG),
    ThriftType.DOUBLE: st.floats(allow_nan=False),
    ThriftType.BINARY: st.binary(max_size=40),
    ThriftType.UUID: st.binary(min_size=16, max_size=16),
}


def valued(kind: ThriftType, value: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[int, Any]]:
    """The type of a boolean field is its value."""
    if kind is ThriftType.TRUE:
        return value.map(lambda found: (int(ThriftType.TRUE if found else ThriftType.FALSE), found))
    return value.map(lambda found: (int(kind), found))


def _fields(
    kind: ThriftType, value: st.SearchStrategy[Any]
) -> Iterator[st.SearchStrategy[tuple[int, Any]]]:
    """Yield the ways in which values of a type occur in a struct: alone, in lists and in maps."""

    def listed(found: list[Any]) -> tuple[int, Any]:
        return int(ThriftType.LIST), ThriftList(kind, found)

    def mapped(found: list[tuple[Any, Any]]) -> tuple[int, Any]:
        return int(ThriftType.MAP), ThriftMap(ThriftType.BINARY, kind, found)

    yield valued(kind, value)
    yield st.lists(value, max_size=20).map(listed)
    yield st.lists(st.tuples(st.binary(max_size=5), value), min_size=1, max_size=3).map(mapped)


def structs(depth: int = 2) -> st.SearchStrategy[Struct]:
    fields = [each for kind, value in scalars.items() for each in _fields(kind, value)]
    if depth:
        inner = structs(depth - 1)
        fields.append(inner.map(lambda found: (int(ThriftType.STRUCT), found)))
        many = st.lists(inner, max_size=17)
        fields.append(
            many.map(lambda found: (int(ThriftType.LIST), ThriftList(ThriftType.STRUCT, found)))
        )
    return st.dictionaries(st.integers(1, 300), st.one_of(fields), max_size=6)


@given(structs())
def test_footers_round_trip(value: Struct) -> None:
    assert decode(encode(value), where="x") == value


def test_footer_of_arrow_round_trips_byte_for_byte() -> None:
    rows = pa.table({"a": [1, 2, None], "b": [["x"], [], None], "c": [{"d": 1.5}] * 3})
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=1, write_page_index=True)
    body = sink.getvalue()
    length = int.from_bytes(body[-8:-4], "little")
    footer = body[-8 - length : -8]
    assert encode(decode(footer, where="x")) == footer


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x15",
        b"\x15\x02",
        b"\x18\x7fabc\x00",
        b"\x1e\x00",
        b"\x19\xfc\xff\xff\xff\x7f\x00",
        b"\x16" + b"\xff" * 11,
        b"\x1c" * 80,
        b"\x00\x00",
    ],
    ids=[
        "nothing",
        "no value",
        "no end",
        "text past the end",
        "unknown type",
        "more items than bytes",
        "number without end",
        "too deep",
        "something after it",
    ],
)
def test_invalid_footers_are_corrupt(broken: bytes) -> None:
    with pytest.raises(DataCorrupt, match="where it is"):
        decode(broken, where="where it is")
