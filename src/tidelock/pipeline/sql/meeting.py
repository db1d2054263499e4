"""The rows of a table that the source of a MERGE can meet, found before anything is joined.

A join carries the whole table across. But where ON says that keys are equal, a source that fits the
driver names the few rows it can match. Where Spark runs in the driver's own machine they are read
right there, by the kernel, log files and all; elsewhere Spark leaves the others out as it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)
from sqlglot import exp

from tidelock.engine.spark.schema import spark_schema, workable
from tidelock.engine.spark.session import is_local_master
from tidelock.engine.spark.source import can_be_read_again
from tidelock.operation.moment import Moment
from tidelock.pipeline.localframes import local_frame
from tidelock.pipeline.sql.keyed import equalities
from tidelock.pipeline.sql.target import Target, fits_driver, struct_of
from tidelock.pipeline.sql.text import quoted

MET_BYTES_MAX: Final = 256 * 1024 * 1024
"""As Arrow. Where a source meets more, Spark reads the table."""

_BROADCAST_BYTES_MAX: Final = 64 * 1024 * 1024
"""As Arrow. Fewer rows go to every task of the join; more are shuffled, as the source is."""

_COMPARED: Final = (ByteType, ShortType, IntegerType, LongType, StringType, DateType)
"""Types whose values are equal to Arrow exactly where they are equal to Spark."""

_KEY: Final = "_tidelock_key_"


@dataclass(frozen=True, slots=True)
class Met:
    """Rows of a table; `few` says that they are in the driver already."""

    frame: DataFrame
    few: bool = False


@dataclass(frozen=True, slots=True)
class Meeting:
    """A source, and the columns of a table that equal columns of it, by name."""

    target: Target
    source: DataFrame
    pairs: Mapping[str, str]

    def rows(self, now: Moment, names: Sequence[str]) -> Met | None:
        """Return the rows that some source row may match; None if Spark should look at all.

        Raises: `InvalidInput`, `NotFound` and what reading raises.
        """
        columns = [F.col(quoted(name)) for name in self.pairs.values()]
        keys = self.source.select(*(c.alias(f"{_KEY}{i}") for i, c in enumerate(columns)))
        if not fits_driver(keys):
            return None
        if is_local_master(self.target.spark) and fits_driver(self.source):
            found = self._read_here(self.target.as_arrow(keys), now, names)
            if found is not None:
                return found
        return Met(self._left_out(keys, now, names))

    def _read_here(self, keys: pa.Table, now: Moment, names: Sequence[str]) -> Met | None:
        """Return the rows, read by this process; None if they are too many for it."""
        values = {
            name: column.unique().drop_null().cast(now.schema.field(name).type)
            for name, column in zip(self.pairs, keys.columns, strict=True)
        }
        found = now.among(names, values, bytes_max=MET_BYTES_MAX)
        if found is None:
            return None
        plain = found.cast(workable(found.schema))
        frame = local_frame(self.target.spark, plain, spark_schema(found.schema))
        small = plain.nbytes <= _BROADCAST_BYTES_MAX
        return Met(F.broadcast(frame) if small else frame, few=True)

    def _left_out(self, keys: DataFrame, now: Moment, names: Sequence[str]) -> DataFrame:
        """Return the rows as Spark reads them, those that nothing equals left out."""
        same = F.lit(True)  # noqa: FBT003 - Spark's literal
        for number, name in enumerate(self.pairs):
            same = same & (self.target.of(name) == F.col(f"{_KEY}{number}"))
        here = self.target.frame(now, frozenset(name.lower() for name in names))
        return here.join(F.broadcast(keys), same, "left_semi")


def meeting_of(target: Target, on: exp.Expr, name: str, source: DataFrame) -> Meeting | None:
    """Return how the rows that a source can meet are found; None where ON does not tell.

    `name` is what the statement calls the source. ON must say what the whole record key equals.
    """
    if target.names_meta or on.find(exp.Query) is not None:
        return None
    kind = struct_of(target.table.schema)
    offered = {each.lower(): each for each in source.columns}
    pairs: dict[str, str] = {}
    for mine, other in equalities(target, on, name, kind.names):
        its = offered.get(other.name.lower())
        if its is not None and _alike(kind[mine].dataType, source.schema[its].dataType):
            pairs.setdefault(mine, its)
    if len(offered) < len(source.columns) or not set(target.keys) <= set(pairs):
        return None
    # What is computed, or may differ the second time, is kept: it is looked at twice.
    again = source if can_be_read_again(source) else target.keep(source)
    return Meeting(target, again, pairs)


def _alike(mine: DataType, other: DataType) -> bool:
    """Tell whether values of these types are equal to Arrow just where they are to Spark."""
    if isinstance(mine, LongType) and isinstance(other, IntegerType):
        return True
    return mine == other and isinstance(mine, _COMPARED)
