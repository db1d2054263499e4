"""Rows of the driver as a frame of Spark's, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return the rows of an Arrow table as a frame.

    Spark 4.1 stops reading a table at its first empty batch, and says nothing of the rows behind
    it. A table of one batch has none.
    """
    return spark.createDataFrame(table.combine_chunks(), schema)
