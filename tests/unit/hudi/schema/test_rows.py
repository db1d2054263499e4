"""Conversion between Avro records and Arrow tables, byte-compatible with Java."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.avro_records import decode_rows, encode_rows
from tidelock.hudi.schema import avro_schema

NESTED = pa.schema(
    [
        ("number", pa.int32()),
        ("text", pa.string()),
        ("money", pa.decimal128(15, 2)),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("tag", pa.binary(3)),
        (
            "items",
            pa.list_(
                pa.field(
                    "element",
                    pa.struct([("x", pa.decimal128(5, 1)), ("at", pa.timestamp("us", "UTC"))]),
                )
            ),
        ),
        ("prices", pa.map_(pa.string(), pa.decimal128(9, 2))),
        (
            "inner",
            pa.struct([("day", pa.date32()), ("days", pa.list_(pa.field("element", pa.date32())))]),
        ),
    ]
)
ROWS = [
    {
        "number": -1,
        "text": "é",
        "money": Decimal("-1.23"),
        "moment": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "day": date(1, 1, 1),
        "clock": time(1, 2, 3, 4),
        "tag": b"\x00\xff\x01",
        "items": [{"x": Decimal("1.5"), "at": None}, None],
        "prices": [("a", Decimal("2.00")), ("b", None)],
        "inner": {"day": date(2020, 2, 29), "days": [date(9999, 12, 31), None]},
    },
    dict.fromkeys(NESTED.names),
    {
        "number": 2**31 - 1,
        "text": "",
        "money": Decimal("9999999999999.99"),
        "moment": None,
        "day": None,
        "clock": None,
        "tag": b"abc",
        "items": [],
        "prices": [],
        "inner": {"day": None, "days": None},
    },
]


def test_every_type_round_trips() -> None:
    table = pa.Table.from_pylist(ROWS, schema=NESTED)
    schema = avro_schema(NESTED, table="t")
    found = decode_rows(encode_rows(table, schema, where="t"), schema, where="t")
    found.validate(full=True)
    assert found.equals(table)


def test_slice_of_a_table_is_encoded_as_its_own_rows() -> None:
    table = pa.Table.from_pylist(ROWS, schema=NESTED)
    schema = avro_schema(NESTED, table="t")
    all_bytes = encode_rows(table, schema, where="t")
    assert encode_rows(table.slice(1, 1), schema, where="t") == all_bytes[1:2]
    assert encode_rows(table.slice(2), schema, where="t") == all_bytes[2:]


def test_record_has_the_same_bytes_as_in_java() -> None:
    # Branch 1 and zigzag 7; branch 1, length 2 and the text; branch 1 and five big-endian bytes.
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.decimal128(10, 2))])
    table = pa.table([[7, None], ["hi", None], [Decimal("-0.01"), None]], schema=schema)
    encoded = encode_rows(table, avro_schema(schema, table="t"), where="t")
    assert encoded[0].hex(" ") == "02 0e 02 04 68 69 02 ff ff ff ff ff"
    assert encoded[1].hex(" ") == "00 00 00"


def test_unions_with_null_in_second_place_are_read() -> None:
    fields = [{"name": "a", "type": ["int", "null"]}]
    schema = {"type": "record", "name": "r", "fields": fields}
    found = decode_rows([b"\x00\x0e", b"\x02"], schema, where="t")
    assert found.to_pylist() == [{"a": 7}, {"a": None}]


def test_decimals_in_plain_bytes_are_trimmed_and_read_as_in_java() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 1}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": decimal}]}
    values = [Decimal("0.0"), Decimal("12.7"), Decimal("12.8"), Decimal("-12.8"), Decimal("-12.9")]
    table = pa.table({"d": pa.array(values, pa.decimal128(20, 1))})
    encoded = encode_rows(table, schema, where="t")
    assert [record.hex() for record in encoded] == ["0200", "027f", "040080", "0280", "04ff7f"]
    assert decode_rows(encoded, schema, where="t").column("d").to_pylist() == values


def test_no_records_give_an_empty_table_with_its_columns() -> None:
    found = decode_rows([], avro_schema(NESTED, table="t"), where="t")
    assert found.num_rows == 0
    assert found.schema.equals(NESTED)


@pytest.mark.parametrize(
    "record", [b"", b"\x02", b"\x02\x06ab", b"\x08\x02", b"\x02\x04\xff\xfe", b"\x02\x03abcd"]
)
def test_bytes_that_do_not_match_the_schema_are_corrupt(record: bytes) -> None:
    schema = avro_schema(pa.schema([("a", pa.string())]), table="t")
    with pytest.raises(DataCorrupt, match=r"part/\.f\.log"):
        decode_rows([record], schema, where="part/.f.log")


def test_value_that_does_not_fit_is_reported_with_its_row() -> None:
    schema = avro_schema(pa.schema([pa.field("a", pa.string(), nullable=False)]), table="t")
    table = pa.table({"a": ["x", None]})
    with pytest.raises(InvalidInput, match="row 1"):
        encode_rows(table, schema, where="t")
