"""Conversion between Spark's and Arrow's types, in both directions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from tidelock.core.errors import InvalidInput, Unsupported
from tidelock.execution.spark.types import arrow_schema_of, spark_schema, worker_schema

EVERY = pa.schema(
    [
        pa.field("b", pa.bool_()),
        pa.field("i8", pa.int8()),
        pa.field("i16", pa.int16()),
        pa.field("i32", pa.int32(), nullable=False),
        pa.field("i64", pa.int64()),
        pa.field("f32", pa.float32()),
        pa.field("f64", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("inside", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.date32())])),
        pa.field("by_name", pa.map_(pa.string(), pa.field("value", pa.int64()))),
    ]
)


def test_types_survive_a_round_trip_through_spark() -> None:
    assert arrow_schema_of(spark_schema(EVERY)).equals(EVERY)


def test_values_of_every_type_pass_through_a_worker_unchanged(spark: SparkSession) -> None:
    noon = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
    row = {
        "b": True,
        "i8": -8,
        "i16": 300,
        "i32": 70_000,
        "i64": 2**40,
        "f32": 0.5,
        "f64": 1e300,
        "s": "gr\u00fcn",
        "raw": b"\x00\xff",
        "day": dt.date(1899, 12, 31),
        "at": noon,
        "local": noon.replace(tzinfo=None),
        "price": Decimal("-12.5000"),
        "tags": ["a", None],
        "inside": {"x": 1, "y": None},
        "by_name": [("k", 1)],
    }
    table = pa.Table.from_pylist([row], schema=EVERY)
    frame = spark.range(0, 1, 1, 1).mapInArrow(lambda _: table.to_batches(), spark_schema(EVERY))
    back = frame.mapInArrow(lambda batches: batches, frame.schema).toArrow()
    assert back.cast(worker_schema(EVERY)).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("us"), pa.decimal256(40, 2)])
def test_types_that_spark_lacks_are_rejected(kind: pa.DataType) -> None:
    inner = pa.schema([pa.field("outer", pa.struct([pa.field("odd", kind)]))])
    with pytest.raises(Unsupported, match=r"column outer\.odd: Spark has no type for"):
        spark_schema(inner)


def test_types_that_tables_lack_are_rejected() -> None:
    schema = st.StructType([st.StructField("wait", st.DayTimeIntervalType())])
    with pytest.raises(
        InvalidInput, match="column wait: Spark type interval day to second is not supported"
    ):
        arrow_schema_of(schema)


def test_char_and_varchar_are_strings() -> None:
    schema = st.StructType(
        [st.StructField("c", st.CharType(3)), st.StructField("v", st.VarcharType(3))]
    )
    assert arrow_schema_of(schema).types == [pa.string(), pa.string()]
