"""Conversion between Spark and Arrow types.

Spark has no unsigned integers, no time of day, and timestamps only in microseconds. Unsupported
types are rejected by column name, not truncated.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as pt
from pyspark.sql import types as st

from tidelock.core.errors import InvalidInput, Unsupported

_TO_SPARK: Final[dict[pa.DataType, st.DataType]] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.null(): st.NullType(),
}

_TO_ARROW: Final[dict[type[st.DataType], pa.DataType]] = {
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", tz="UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.NullType: pa.null(),
}


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Return the Spark schema of these columns.

    Raises: `Unsupported` naming the first column without a Spark type.
    """
    return st.StructType([_spark_field(field, "") for field in schema])


def arrow_schema_of(schema: st.StructType) -> pa.Schema:
    """Return the Arrow schema of batches with these columns in a Python worker.

    Raises: `InvalidInput` naming the first column of an unsupported type.
    """
    return pa.schema([_arrow_field(field, "") for field in schema.fields])


def worker_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with types that are the same in Spark and in Python workers."""
    return arrow_schema_of(spark_schema(schema))


def _spark_field(field: pa.Field, path: str) -> st.StructField:
    kind = _spark_type(field.type, f"{path}{field.name}")
    return st.StructField(field.name, kind, field.nullable)


def _spark_type(kind: pa.DataType, path: str) -> st.DataType:
    simple = _TO_SPARK.get(kind)
    if simple is not None:
        return simple
    if pt.is_decimal(kind) and kind.precision <= 38:
        return st.DecimalType(kind.precision, kind.scale)
    if pt.is_timestamp(kind) and kind.unit != "ns":
        return st.TimestampNTZType() if kind.tz is None else st.TimestampType()
    if pt.is_fixed_size_binary(kind):
        return st.BinaryType()
    if pt.is_dictionary(kind):
        return _spark_type(kind.value_type, path)
    if pt.is_struct(kind):
        return st.StructType([_spark_field(field, f"{path}.") for field in kind])
    if pt.is_list(kind) or pt.is_large_list(kind):
        item = _spark_type(kind.value_type, f"{path}[]")
        return st.ArrayType(item, kind.value_field.nullable)
    if pt.is_map(kind):
        key = _spark_type(kind.key_type, f"{path}{{}}")
        item = _spark_type(kind.item_type, f"{path}{{}}")
        return st.MapType(key, item, kind.item_field.nullable)
    raise Unsupported(
        f"column {path}: Spark has no type for {kind}",
        hint="omit the column with the option tidelock.read.columns, or read without Spark",
    )


def _arrow_field(field: st.StructField, path: str) -> pa.Field:
    kind = _arrow_type(field.dataType, f"{path}{field.name}")
    return pa.field(field.name, kind, nullable=field.nullable)


def _arrow_type(kind: st.DataType, path: str) -> pa.DataType:
    simple = _TO_ARROW.get(type(kind))
    if simple is not None:
        return simple
    match kind:
        case st.StringType() | st.CharType() | st.VarcharType():
            return pa.string()
        case st.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case st.StructType():
            return pa.struct([_arrow_field(field, f"{path}.") for field in kind.fields])
        case st.ArrayType():
            item = _arrow_type(kind.elementType, f"{path}[]")
            return pa.list_(pa.field("element", item, nullable=kind.containsNull))
        case st.MapType():
            key = pa.field("key", _arrow_type(kind.keyType, f"{path}{{}}"), nullable=False)
            item = _arrow_type(kind.valueType, f"{path}{{}}")
            return pa.map_(key, pa.field("value", item, nullable=kind.valueContainsNull))
        case _:
            raise InvalidInput(
                f"column {path}: Spark type {kind.simpleString()} is not supported",
                hint="cast it to a string, a number, a decimal, a date or a timestamp",
            )
