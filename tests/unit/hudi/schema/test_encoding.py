"""Columnwise Avro encoding and decoding, compared with fastavro."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.hudi.table_builder import encode_records
from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi import avro_records
from tidelock.hudi.avro_records import (
    can_decode,
    decode_columns,
    decode_rows,
    encode_framed,
    encode_rows,
)
from tidelock.hudi.log_blocks import (
    RECORD_HEAD_BYTES,
    decode_records,
    frame_records,
    record_offsets,
)
from tidelock.hudi.schema import avro_schema

UTC = dt.UTC
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "plain", "with ünïcödé", "x" * 300]),
    "octets": (pa.binary(), [b"", b"\x00\xff", b"abc", b"y" * 200]),
    "number": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "small": (pa.int32(), [0, 63, -64, 2**31 - 1]),
    "tiny": (pa.int8(), [0, 1, -128, 127]),
    "ratio": (pa.float64(), [0.0, -0.0, 1.5, float("inf")]),
    "short": (pa.float32(), [0.0, 1.5, -2.25, 3.0]),
    "flag": (pa.bool_(), [True, False, True, True]),
    "day": (pa.date32(), [dt.date(1970, 1, 1), dt.date(2026, 11, 15)] * 2),
    "at": (pa.timestamp("us", "UTC"), [dt.datetime(1969, 1, 1, tzinfo=UTC)] * 4),
    "time": (pa.time64("us"), [dt.time(1, 2, 3, 4)] * 4),
    "price": (
        pa.decimal128(10, 2),
        [Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99")] * 2,
    ),
    "wide": (pa.decimal128(38, 10), [Decimal(0), Decimal(-1), Decimal("12345678901234567890.5")]),
    "tags": (pa.list_(pa.string()), [[], ["a"], ["b", "c"], None]),
    "place": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": "a"}, None]),
}


@pytest.fixture(params=[0, 64], ids=["by columns", "one by one"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode with the code path for many rows, and with that for few."""
    monkeypatch.setattr(avro_records, "_COLUMNWISE_ROWS_MIN", request.param)


def table_of(names: list[str], *, nulls: bool) -> pa.Table:
    """Return four rows of the columns, optionally with every second value null."""
    columns = {}
    for name in names:
        kind, values = COLUMNS[name]
        four = (values * 4)[:4]
        columns[name] = pa.array(
            [None if nulls and i % 2 else value for i, value in enumerate(four)], kind
        )
    return pa.table(columns)


@pytest.mark.parametrize("nulls", [False, True], ids=["whole", "nulls"])
@pytest.mark.parametrize("name", COLUMNS)
def test_column_is_encoded_as_fastavro_does(name: str, nulls: bool) -> None:
    rows = table_of(["number", name, "text"], nulls=nulls)
    schema = avro_schema(rows.schema, table="t")
    framed = encode_framed(rows, schema, where="here")
    expected = encode_records(encode_rows(rows, schema, where="here"))
    assert frame_records(rows.num_rows, framed) == expected


@pytest.mark.parametrize("nulls", [False, True], ids=["whole", "nulls"])
@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in ("tags", "place")])
def test_column_is_decoded_as_fastavro_does(name: str, nulls: bool) -> None:
    rows = table_of(["number", name, "text"], nulls=nulls)
    schema = avro_schema(rows.schema, table="t")
    content = frame_records(rows.num_rows, encode_framed(rows, schema, where="here"))
    found = decoded(content, schema)
    found.validate(full=True)
    assert found.equals(decode_rows(decode_records(content, where="here"), schema, where="here"))


def decoded(content: bytes, schema: dict[str, Any], columns: list[str] | None = None) -> pa.Table:
    """Return the records of a block's content."""
    assert can_decode(schema)
    return decode_columns(
        content,
        record_offsets(content, where="here"),
        schema,
        gap_bytes=RECORD_HEAD_BYTES,
        columns=columns,
        where="here",
    )


def test_only_requested_columns_are_decoded() -> None:
    rows = table_of(["text", "number", "price", "flag", "ratio"], nulls=True)
    schema = avro_schema(rows.schema, table="t")
    content = frame_records(rows.num_rows, encode_framed(rows, schema, where="here"))
    found = decoded(content, schema, ["flag", "number", "absent"])
    assert found.equals(decoded(content, schema).select(["number", "flag"]))


def test_required_columns_have_no_union_branch() -> None:
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
    ]
    rows = pa.table({"id": ["a", "bc"], "n": [1, 300]}, schema=pa.schema(fields))
    schema = avro_schema(rows.schema, table="t")
    framed = encode_framed(rows, schema, where="here")
    assert framed == b"\x00\x00\x00\x03\x02a\x02\x00\x00\x00\x05\x04bc\xd8\x04"
    assert decoded(frame_records(2, framed), schema).equals(rows)


@pytest.mark.parametrize(("logical", "number"), [("millis", 1_500), ("micros", 1_500_000)])
def test_times_are_converted_to_the_unit_of_the_schema(logical: str, number: int) -> None:
    kind = {"type": "long", "logicalType": f"timestamp-{logical}"}
    schema = {"type": "record", "name": "r", "fields": [{"name": "t", "type": kind}]}
    plain = {"type": "record", "name": "r", "fields": [{"name": "t", "type": "long"}]}
    for unit in ("ms", "us"):
        stamp = pa.array([1_500], pa.int64()).view(pa.timestamp("ms", "UTC"))
        rows = pa.table({"t": stamp.cast(pa.timestamp(unit, "UTC"))})
        framed = encode_framed(rows, schema, where="here")
        assert framed == encode_framed(pa.table({"t": [number]}), plain, where="here")


def test_null_can_be_the_second_branch() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": ["long", "null"]}]}
    rows = pa.table({"n": pa.array([1, None], pa.int64())})
    framed = encode_framed(rows, schema, where="here")
    assert framed == b"\x00\x00\x00\x02\x00\x02\x00\x00\x00\x01\x02"
    assert decoded(frame_records(2, framed), schema).equals(rows)


def test_slices_chunks_and_dictionaries_are_encoded_as_their_rows() -> None:
    rows = table_of(["text", "number", "price", "flag"], nulls=True)
    city = pa.array(["x", "y", "x", None]).dictionary_encode()
    rows = rows.append_column("city", city)
    plain = rows.set_column(4, "city", city.cast(pa.string()))
    schema = avro_schema(plain.schema, table="t")
    pieces = pa.concat_tables([rows.slice(1, 2), rows.slice(0, 3)])
    expected = pa.concat_tables([plain.slice(1, 2), plain.slice(0, 3)]).combine_chunks()
    assert encode_framed(pieces, schema, where="x") == encode_framed(expected, schema, where="x")


def test_no_rows_give_no_bytes() -> None:
    rows = table_of(["text"], nulls=False).slice(0, 0)
    schema = avro_schema(rows.schema, table="t")
    assert encode_framed(rows, schema, where="here") == b""
    assert decoded(frame_records(0, b""), schema).num_rows == 0


def test_null_in_a_required_column_is_refused() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    with pytest.raises(InvalidInput, match="column n has nulls"):
        encode_framed(pa.table({"n": pa.array([None], pa.int64())}), schema, where="here")


def test_number_out_of_range_is_refused() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    with pytest.raises(InvalidInput, match="column n does not match"):
        encode_framed(pa.table({"n": pa.array([2**40], pa.int64())}), schema, where="here")


def test_type_named_by_an_earlier_column_is_resolved() -> None:
    pair = {"type": "record", "name": "pair", "fields": [{"name": "x", "type": "long"}]}
    fields = [{"name": "a", "type": pair}, {"name": "b", "type": "pair"}]
    schema = {"type": "record", "name": "r", "fields": fields}
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    rows = pa.table({"a": pa.array([{"x": 1}], kind), "b": pa.array([{"x": 2}], kind)})
    assert encode_framed(rows, schema, where="here") == b"\x00\x00\x00\x02\x02\x04"


def text_content(record: bytes) -> bytes:
    """Return a block's content with one record."""
    return frame_records(1, len(record).to_bytes(4, "big") + record)


TEXT = {"type": "record", "name": "r", "fields": [{"name": "t", "type": ["null", "string"]}]}


@pytest.mark.parametrize(
    "record",
    [
        b"\x02\x04a",  # shorter than its length
        b"\x02\x02ab",  # longer than its length
        b"\x02\x03",  # a negative length
        b"\x04\x02a",  # unknown branch
        b"\x02" + b"\xff" * 10 + b"\x01",  # unterminated number
        b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # length out of bounds
        b"\x02\x02\xff",  # invalid UTF-8
        b"",
    ],
    ids=["short", "long", "negative", "branch", "endless", "huge", "utf-8", "empty"],
)
def test_record_that_does_not_match_its_schema_is_corrupt(record: bytes) -> None:
    with pytest.raises(DataCorrupt, match="here"):
        decoded(text_content(record), TEXT)


def test_number_too_large_for_its_column_is_corrupt() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    with pytest.raises(DataCorrupt, match="more than 32 bits"):
        decoded(text_content(b"\xfe\xff\xff\xff\xff\x01"), schema)


@pytest.mark.parametrize("cut", [1, 3, 9])
def test_inconsistent_lengths_are_corrupt(cut: int) -> None:
    content = text_content(b"\x02\x08abcd")
    with pytest.raises(DataCorrupt, match="do not match the block"):
        record_offsets(content[:-cut], where="here")
    with pytest.raises(DataCorrupt, match="do not match the block"):
        record_offsets(content + b"x", where="here")


def test_nested_types_are_left_to_fastavro() -> None:
    schema = avro_schema(table_of(["tags"], nulls=False).schema, table="t")
    assert not can_decode(schema)
