"""Conversion between Arrow and Avro schemas, byte-compatible with Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.schema import (
    META_COLUMNS,
    arrow_schema,
    avro_schema,
    parse_schema,
    render_schema,
    sanitize_name,
    stored_schema,
    with_meta,
    without_meta,
)

# The schema that Spark wrote into the commits of a real table with all its types.
SPARK = (
    '{"type":"record","name":"trips_record","namespace":"hoodie.trips","fields":['
    '{"name":"id","type":["null","int"],"default":null},'
    '{"name":"name","type":["null","string"],"default":null},'
    '{"name":"isActive","type":["null","boolean"],"default":null},'
    '{"name":"longField","type":["null","long"],"default":null},'
    '{"name":"floatField","type":["null","float"],"default":null},'
    '{"name":"doubleField","type":["null","double"],"default":null},'
    '{"name":"decimalField","type":["null",{"type":"fixed","name":"fixed",'
    '"namespace":"hoodie.trips.trips_record.decimalField","size":5,"logicalType":"decimal",'
    '"precision":10,"scale":5}],"default":null},'
    '{"name":"dateField","type":["null",{"type":"int","logicalType":"date"}],"default":null},'
    '{"name":"timestampField","type":["null",{"type":"long","logicalType":"timestamp-micros"}],'
    '"default":null},'
    '{"name":"binaryField","type":["null","bytes"],"default":null},'
    '{"name":"arrayField","type":["null",{"type":"array","items":["null",{"type":"record",'
    '"name":"arrayField","namespace":"hoodie.trips.trips_record","fields":['
    '{"name":"arr_struct_f1","type":["null","string"],"default":null}]}]}],"default":null},'
    '{"name":"mapField","type":["null",{"type":"map","values":["null",{"type":"record",'
    '"name":"mapField","namespace":"hoodie.trips.trips_record","fields":['
    '{"name":"map_f1","type":["null","double"],"default":null}]}]}],"default":null},'
    '{"name":"structField","type":["null",{"type":"record","name":"structField",'
    '"namespace":"hoodie.trips.trips_record","fields":['
    '{"name":"child_struct","type":["null",{"type":"record","name":"child_struct",'
    '"namespace":"hoodie.trips.trips_record.structField","fields":['
    '{"name":"child_field1","type":["null","double"],"default":null}]}],"default":null}]}],'
    '"default":null}]}'
)


def arrow(text: str) -> pa.Schema:
    """Return the Arrow schema of Avro JSON."""
    return arrow_schema(parse_schema(text, where="a commit"), where="a commit")


def field_type(avro: Any) -> pa.DataType:
    """Return the Arrow type of one Avro type."""
    record = {"type": "record", "name": "r", "fields": [{"name": "f", "type": avro}]}
    return arrow_schema(record, where="a test").field("f").type


def test_spark_schema_round_trips_byte_for_byte() -> None:
    assert render_schema(avro_schema(arrow(SPARK), table="trips")) == SPARK


def test_each_spark_type_has_its_arrow_type() -> None:
    schema = arrow(SPARK)
    assert schema.field("id") == pa.field("id", pa.int32())
    assert schema.field("decimalField").type == pa.decimal128(10, 5)
    assert schema.field("dateField").type == pa.date32()
    assert schema.field("timestampField").type == pa.timestamp("us", tz="UTC")
    assert schema.field("binaryField").type == pa.binary()
    item = pa.struct([("arr_struct_f1", pa.string())])
    assert schema.field("arrayField").type == pa.list_(pa.field("element", item))
    value = pa.struct([("map_f1", pa.float64())])
    assert schema.field("mapField").type == pa.map_(pa.string(), value)
    child = pa.struct([("child_field1", pa.float64())])
    assert schema.field("structField").type == pa.struct([("child_struct", child)])


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", tz="UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "f16", "size": 16}, pa.binary(16)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
            pa.decimal128(20, 2),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2},
            pa.decimal256(50, 2),
        ),
        (["string", "null"], pa.string()),
    ],
)
def test_types_of_other_writers_are_read(avro: Any, expected: pa.DataType) -> None:
    assert field_type(avro) == expected


def test_named_type_can_be_referenced_again() -> None:
    fixed = {"type": "fixed", "name": "money", "namespace": "x", "size": 4}
    fields = [{"name": "a", "type": fixed}, {"name": "b", "type": ["null", "x.money"]}]
    schema = arrow_schema({"type": "record", "name": "r", "fields": fields}, where="a test")
    assert schema.field("b") == pa.field("b", pa.binary(4))


@pytest.mark.parametrize("avro", [["int", "string"], "no_such_type", ["null", "int", "string"]])
def test_unsupported_type_is_reported_with_location_and_field(avro: Any) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "price", "type": avro}]}
    with pytest.raises(DataCorrupt, match=r"part/x\.log.*price"):
        arrow_schema(record, where="part/x.log")


@pytest.mark.parametrize("text", ["", "{", '"string"', '{"type":"array","items":"int"}', "[]"])
def test_invalid_record_schema_is_corrupt(text: str) -> None:
    with pytest.raises(DataCorrupt, match="a commit"):
        parse_schema(text, where="a commit")


@pytest.mark.parametrize(
    ("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (15, 7), (18, 8), (38, 16)]
)
def test_decimal_uses_as_few_bytes_as_in_java(precision: int, size: int) -> None:
    schema = pa.schema([("d", pa.decimal128(precision, 0))])
    (field,) = avro_schema(schema, table="t")["fields"]
    assert field["type"][1]["size"] == size


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("ns"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("s", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC")),
        (pa.date64(), pa.date32()),
        (pa.large_list(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
    ],
)
def test_types_that_avro_lacks_are_stored_as_the_next_wider(
    given: pa.DataType, stored: pa.DataType
) -> None:
    assert stored_schema(pa.schema([("c", given)]), table="t").field("c").type == stored


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.null(), pa.duration("s"), pa.map_(pa.int32(), pa.string())]
)
def test_unsupported_arrow_type_is_reported_with_its_column(kind: pa.DataType) -> None:
    nested = pa.schema([("outer", pa.struct([("odd", kind)]))])
    with pytest.raises(InvalidInput, match=r"outer.*no Avro type"):
        avro_schema(nested, table="t")


@pytest.mark.parametrize("name", ["a b", "1st", "a.b", "", "größe"])
def test_invalid_avro_column_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="not a valid Avro name"):
        avro_schema(pa.schema([(name, pa.int32())]), table="t")


def test_required_column_is_not_a_union() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    assert avro_schema(schema, table="t")["fields"] == [{"name": "id", "type": "long"}]
    assert arrow(render_schema(avro_schema(schema, table="t"))) == schema


@pytest.mark.parametrize(
    ("name", "expected"), [("trips", "trips"), ("my-table", "my__table"), ("9lives", "__lives")]
)
def test_table_name_becomes_an_avro_name_as_in_hudi(name: str, expected: str) -> None:
    assert sanitize_name(name) == expected


def test_meta_columns_come_first_with_an_empty_doc() -> None:
    schema = with_meta(pa.schema([("id", pa.int64())]))
    assert tuple(schema.names) == (*META_COLUMNS, "id")
    assert with_meta(schema) == schema
    assert without_meta(schema).names == ["id"]
    first = json.loads(render_schema(avro_schema(schema, table="t")))["fields"][0]
    assert render_schema(first) == (
        '{"name":"_hoodie_commit_time","type":["null","string"],"doc":"","default":null}'
    )
