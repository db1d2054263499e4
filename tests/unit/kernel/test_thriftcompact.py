"""Footers come out of the codec as they went in, and broken ones are told apart."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.thriftcompact import Kind, Mapped, Sequence, Struct, decode, encode

LONG = 2**63 - 1

scalars: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.TRUE: st.booleans(),
    Kind.BYTE: st.integers(-128, 127),
    Kind.I16: st.integers(-(2**15), 2**15 - 1),
    Kind.I32: st.integers(-(2**31), 2**31 - 1),
    Kind.I64: st.integers(-LONG - 1, LONG),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.BINARY: st.binary(max_size=40),
    Kind.UUID: st.binary(min_size=16, max_size=16),
}


def valued(kind: Kind, value: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[int, Any]]:
    """A boolean field's type is its value."""
    if kind is Kind.TRUE:
        return value.map(lambda found: (int(Kind.TRUE if found else Kind.FALSE), found))
    return value.map(lambda found: (int(kind), found))


def _fields(
    kind: Kind, value: st.SearchStrategy[Any]
) -> Iterator[st.SearchStrategy[tuple[int, Any]]]:
    """Yield the ways in which values of a type are in a struct: alone, in lists and in maps."""

    def listed(found: list[Any]) -> tuple[int, Any]:
        return int(Kind.LIST), Sequence(kind, found)

    def mapped(found: list[tuple[Any, Any]]) -> tuple[int, Any]:
        return int(Kind.MAP), Mapped(Kind.BINARY, kind, found)

    yield valued(kind, value)
    yield st.lists(value, max_size=20).map(listed)
    yield st.lists(st.tuples(st.binary(max_size=5), value), min_size=1, max_size=3).map(mapped)


def structs(depth: int = 2) -> st.SearchStrategy[Struct]:
    fields = [each for kind, value in scalars.items() for each in _fields(kind, value)]
    if depth:
        inner = structs(depth - 1)
        fields.append(inner.map(lambda found: (int(Kind.STRUCT), found)))
        many = st.lists(inner, max_size=17)
        fields.append(many.map(lambda found: (int(Kind.LIST), Sequence(Kind.STRUCT, found))))
    return st.dictionaries(st.integers(1, 300), st.one_of(fields), max_size=6)


@given(structs())
def test_what_is_encoded_is_decoded(value: Struct) -> None:
    assert decode(encode(value), where="x") == value


def test_a_footer_of_arrows_comes_out_byte_for_byte() -> None:
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
def test_what_is_no_footer_is_corrupt(broken: bytes) -> None:
    with pytest.raises(DataCorrupt, match="where it is"):
        decode(broken, where="where it is")
