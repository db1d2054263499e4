"""A batch is read once: good rows to be written, malformed records to be put aside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.engine.spark.job import run_job
from tidelock.engine.spark.read import quoted
from tidelock.engine.spark.schema import arrow_schema_of
from tidelock.pipeline.localframes import local_frame
from tidelock.pipeline.streamer.sources.contract import MALFORMED, REASON, Batch
from tidelock.pipeline.streamer.transform import Transformer, transformed
from tidelock.table.schema.meta import META_COLUMNS, without_meta

COLLECTED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Batches that may be smaller come to the driver in one job; others stay in the workers."""

_RECORD_CHARACTERS_MAX: Final = 64 * 1024
"""A record that was put aside is cut to this."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that could not be read, or a row that cannot be written, and why."""

    record: str
    reason: str


@dataclass(frozen=True, slots=True)
class Read:
    """What a batch holds: Arrow rows in the driver, or a frame. `malformed` is cut at a bound."""

    rows: pa.Table | DataFrame
    malformed: tuple[Bad, ...]

    @property
    def schema(self) -> pa.Schema:
        """The user's columns."""
        found = self.rows.schema
        return without_meta(found if isinstance(found, pa.Schema) else arrow_schema_of(found))


@contextmanager
def reading(
    batch: Batch, chain: Sequence[Transformer], *, malformed_max: int, where: str
) -> Iterator[Read]:
    """Read a batch, and give up what Spark keeps of it at the end.

    Raises: `Unavailable` when Spark could not, `InvalidInput` for a wrong transformation.
    """
    frame = batch.frame
    if MALFORMED not in frame.columns:
        yield Read(transformed(frame, chain), ())
    elif batch.size_bytes is not None and batch.size_bytes <= COLLECTED_BYTES_MAX:
        yield _collected(frame, chain, malformed_max, where)
    else:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield _kept(kept, chain, malformed_max, where)
        finally:
            kept.unpersist()


def without_keys(read: Read, keys: Sequence[str], *, malformed_max: int, where: str) -> Read:
    """Return what was read with the rows put aside that lack a part of their key."""
    present = [name for name in keys if name in read.schema.names]
    if not present:
        return read
    reason = f"the record key column {present[0]} is null"
    if isinstance(read.rows, pa.Table):
        lacking = _any_null(read.rows, present)
        bad = _listed(read.rows.filter(lacking).slice(0, malformed_max + 1), reason)
        return Read(read.rows.filter(pc.invert(lacking)), read.malformed + bad)
    null = F.lit(False)  # noqa: FBT003 - a column that is false
    for name in quoted(present):
        null = null | F.col(name).isNull()
    few = read.rows.where(null).limit(malformed_max + 1)
    found = run_job(few.sparkSession, f"rows without keys of {where}", few.toArrow, group=where)
    bad = _listed(found, reason)
    return Read(read.rows.where(~null) if bad else read.rows, read.malformed + bad)


def _collected(
    frame: DataFrame, chain: Sequence[Transformer], malformed_max: int, where: str
) -> Read:
    spark = frame.sparkSession
    table: pa.Table = run_job(spark, f"records of {where}", frame.toArrow, group=where)
    is_bad = pc.is_valid(table.column(MALFORMED))
    bad = _told(table.filter(is_bad).slice(0, malformed_max + 1))
    good = table.filter(pc.invert(is_bad)).drop_columns([MALFORMED, REASON])
    if not chain:
        return Read(good, bad)
    plain = frame.drop(MALFORMED, REASON).schema
    return Read(transformed(local_frame(spark, good, plain), chain), bad)


def _kept(frame: DataFrame, chain: Sequence[Transformer], malformed_max: int, where: str) -> Read:
    few = frame.where(F.col(MALFORMED).isNotNull()).select(MALFORMED, REASON)
    asked = few.limit(malformed_max + 1)
    found = run_job(frame.sparkSession, f"records of {where}", asked.toArrow, group=where)
    good = frame.where(F.col(MALFORMED).isNull()).drop(MALFORMED, REASON)
    return Read(transformed(good, chain), _told(found))


def _told(table: pa.Table) -> tuple[Bad, ...]:
    records = table.column(MALFORMED).to_pylist()
    reasons = table.column(REASON).to_pylist()
    pairs = zip(records, reasons, strict=True)
    return tuple(Bad(str(record)[:_RECORD_CHARACTERS_MAX], str(why)) for record, why in pairs)


def _listed(table: pa.Table, reason: str) -> tuple[Bad, ...]:
    own = table.drop_columns([name for name in META_COLUMNS if name in table.column_names])
    return tuple(
        Bad(json.dumps(row, default=str)[:_RECORD_CHARACTERS_MAX], reason)
        for row in own.to_pylist()
    )


def _any_null(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    found = pc.is_null(table.column(names[0]))
    for name in names[1:]:
        found = pc.or_(found, pc.is_null(table.column(name)))
    return found
