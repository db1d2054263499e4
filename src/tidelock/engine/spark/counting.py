"""How many rows a frame has for each partition path, counted by Spark over a few columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st

from tidelock.base.errors import InvalidInput
from tidelock.engine.spark.schema import arrow_schema_of
from tidelock.kernel.prepare import PrepareRule, keyed
from tidelock.table.keys import partition_paths

_COUNT, _BLANK = "_tidelock_count", "_tidelock_blank"


def counted(frame: DataFrame, rule: PrepareRule) -> dict[str | None, int]:
    """Return the number of rows of each partition path.

    Paths are made by the kernel, of the few distinct values that Spark finds. Raises:
    `InvalidInput` for columns or values that no key can be made of.
    """
    keyed(arrow_schema_of(frame.schema).empty_table(), rule)  # says what is wrong with columns
    heads = list(dict.fromkeys(_head(frame, name) for name in rule.keys.partitions))
    blank = _all([_is_blank(frame, name) for name in rule.keys.keys])
    totals = [F.count(F.lit(1)).alias(_COUNT), F.count_if(blank).alias(_BLANK)]
    quoted = [F.col(_quoted(name)) for name in heads]
    found = (frame.groupBy(*quoted) if quoted else frame).agg(*totals).toArrow()
    missing = pc.sum(found.column(_BLANK)).as_py() or 0
    if missing:
        raise InvalidInput(
            f"{rule.where}: the record key ({', '.join(rule.keys.keys)}) is null or empty in"
            f" {missing} rows",
            hint="fill it, or leave such rows out",
        )
    paths = partition_paths(found, rule.keys)
    counts = pa.table({"path": paths, "rows": found.column(_COUNT)})
    summed = counts.group_by("path").aggregate([("rows", "sum")])
    pairs = zip(
        summed.column("path").to_pylist(), summed.column("rows_sum").to_pylist(), strict=True
    )
    return {path: size for path, size in pairs if size}


def _is_blank(frame: DataFrame, name: str) -> Column:
    column = F.col(_quoted(name) if name in frame.columns else name)
    text = isinstance(frame.select(column).schema[0].dataType, st.StringType)
    return column.isNull() | (column == "") if text else column.isNull()


def _all(marks: Sequence[Column]) -> Column:
    whole = marks[0]
    for mark in marks[1:]:
        whole = whole & mark
    return whole


def _head(frame: DataFrame, name: str) -> str:
    return name if name in frame.columns else name.partition(".")[0]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
