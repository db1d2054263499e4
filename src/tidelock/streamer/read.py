"""Reads a batch once: valid rows to write, and malformed records for the quarantine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.core.errors import InvalidInput
from tidelock.core.system import SystemClock, SystemIds
from tidelock.execution.spark.job import run_job
from tidelock.execution.spark.read import quote_columns
from tidelock.execution.spark.types import arrow_schema_of
from tidelock.hudi.schema import META_COLUMNS, without_meta
from tidelock.spark.frames import all_of, local_frame
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.uri import canonical, open_store
from tidelock.streamer import config as c
from tidelock.streamer.sources.checkpoint_files import put_content_addressed
from tidelock.streamer.sources.source import MALFORMED, REASON, Batch
from tidelock.streamer.transform import Transformer, transformed

COLLECTED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Batches up to this size are collected in the driver by one job; others stay in the workers."""

_RECORD_CHARACTERS_MAX: Final = 64 * 1024
"""A quarantined record is truncated to this length."""


@dataclass(frozen=True, slots=True)
class MalformedRecord:
    """A record that could not be decoded, or a row that cannot be written, and the reason."""

    record: str
    reason: str


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a batch: Arrow in the driver, or a frame. `malformed` is limited in length."""

    rows: pa.Table | DataFrame
    malformed: tuple[MalformedRecord, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns, without meta columns."""
        found = self.rows.schema
        return without_meta(found if isinstance(found, pa.Schema) else arrow_schema_of(found))


@contextmanager
def read_batch(
    batch: Batch, chain: Sequence[Transformer], *, malformed_max: int, where: str
) -> Iterator[BatchRows]:
    """Read a batch; unpersist it at the end.

    Raises: `Unavailable` if Spark fails, `InvalidInput` for an invalid transformation.
    """
    frame = batch.frame
    if MALFORMED not in frame.columns:
        yield BatchRows(transformed(frame, chain), ())
    elif batch.size_bytes is not None and batch.size_bytes <= COLLECTED_BYTES_MAX:
        yield _collected(frame, chain, malformed_max, where)
    else:
        persisted = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield _persisted(persisted, chain, malformed_max, where)
        finally:
            persisted.unpersist()


def without_keys(
    batch: BatchRows, keys: Sequence[str], *, malformed_max: int, where: str
) -> BatchRows:
    """Return the batch with rows that have a null key column moved to `malformed`."""
    present = [name for name in keys if name in batch.schema.names]
    if not present:
        return batch
    reason = f"the record key column {present[0]} is null"
    if isinstance(batch.rows, pa.Table):
        lacking = reduce(pc.or_, (pc.is_null(batch.rows.column(name)) for name in present))
        bad = _rows_as_records(batch.rows.filter(lacking).slice(0, malformed_max + 1), reason)
        return BatchRows(batch.rows.filter(pc.invert(lacking)), batch.malformed + bad)
    has_keys = all_of(F.col(name).isNotNull() for name in quote_columns(present))
    malformed = batch.rows.where(~has_keys).limit(malformed_max + 1)
    found = run_job(
        malformed.sparkSession, f"rows without keys of {where}", malformed.toArrow, group=where
    )
    bad = _rows_as_records(found, reason)
    return BatchRows(batch.rows.where(has_keys) if bad else batch.rows, batch.malformed + bad)


def _collected(
    frame: DataFrame, chain: Sequence[Transformer], malformed_max: int, where: str
) -> BatchRows:
    spark = frame.sparkSession
    table: pa.Table = run_job(spark, f"records of {where}", frame.toArrow, group=where)
    is_bad = pc.is_valid(table.column(MALFORMED))
    bad = _malformed_records(table.filter(is_bad).slice(0, malformed_max + 1))
    good = table.filter(pc.invert(is_bad)).drop_columns([MALFORMED, REASON])
    if not chain:
        return BatchRows(good, bad)
    plain = frame.drop(MALFORMED, REASON).schema
    return BatchRows(transformed(local_frame(spark, good, plain), chain), bad)


def _persisted(
    frame: DataFrame, chain: Sequence[Transformer], malformed_max: int, where: str
) -> BatchRows:
    malformed = frame.where(F.col(MALFORMED).isNotNull()).select(MALFORMED, REASON)
    limited = malformed.limit(malformed_max + 1)
    found = run_job(frame.sparkSession, f"records of {where}", limited.toArrow, group=where)
    good = frame.where(F.col(MALFORMED).isNull()).drop(MALFORMED, REASON)
    return BatchRows(transformed(good, chain), _malformed_records(found))


def _malformed_records(table: pa.Table) -> tuple[MalformedRecord, ...]:
    records = table.column(MALFORMED).to_pylist()
    reasons = table.column(REASON).to_pylist()
    pairs = zip(records, reasons, strict=True)
    return tuple(
        MalformedRecord(str(record)[:_RECORD_CHARACTERS_MAX], str(reason))
        for record, reason in pairs
    )


def _rows_as_records(table: pa.Table, reason: str) -> tuple[MalformedRecord, ...]:
    own = table.drop_columns([name for name in META_COLUMNS if name in table.column_names])
    return tuple(
        MalformedRecord(json.dumps(row, default=str)[:_RECORD_CHARACTERS_MAX], reason)
        for row in own.to_pylist()
    )


FOLDER: Final = ".hoodie/.tidelock/quarantine"
# Keys in the metadata of a commit; the first has the name of a configuration key by chance.
COUNT_KEY: Final = "tidelock.streamer.malformed"
FILE_KEY: Final = "tidelock.streamer.quarantine"
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A folder of JSON lines files with the record, reason and source of each malformed record."""

    mode: c.MalformedPolicy
    uri: str
    settings: Mapping[str, object]
    records_max: int

    @classmethod
    def read(cls, settings: Mapping[str, object], table: str) -> Quarantine:
        """Return the configured quarantine. Raises: `ConfigInvalid`."""
        path = c.QUARANTINE_PATH.value(settings)
        uri = canonical(path) if path else f"{canonical(table)}/{FOLDER}"
        return cls(
            c.ON_MALFORMED.member(c.MalformedPolicy, settings),
            uri,
            {k: v for k, v in settings.items() if not c.is_streamer_key(k)},
            c.MALFORMED_MAX.required(settings),
        )

    @property
    def is_enabled(self) -> bool:
        """Whether malformed records are quarantined instead of stopping the streamer."""
        return self.mode is c.MalformedPolicy.QUARANTINE

    def store(
        self, bad: Sequence[MalformedRecord], *, writer: str, source: str, end: str
    ) -> dict[str, str]:
        """Store malformed records before their batch is committed; return the commit metadata.

        The file name is derived from the batch, so a retried batch writes the same file. Raises:
        `InvalidInput` if the quarantine is disabled, or there are too many records.
        """
        if not bad:
            return {}
        shown = f"{bad[0].reason}: {bad[0].record[:_SHOWN]!r}"
        if not self.is_enabled:
            raise InvalidInput(
                f"{source}: {len(bad)} malformed records, the first: {shown}",
                hint=f"correct the source, or set {c.ON_MALFORMED.key}="
                f"{c.MalformedPolicy.QUARANTINE}",
            )
        if len(bad) > self.records_max:
            raise InvalidInput(
                f"{source}: more than {self.records_max} malformed records in one batch, the first:"
                f" {shown}",
                hint="check the source and its schema; nothing of the batch was written",
            )
        lines = [
            json.dumps({"record": each.record, "reason": each.reason, "source": source})
            for each in bad
        ]
        body = ("\n".join(lines) + "\n").encode()
        named = hashlib.sha256(f"{writer}\n{end}".encode() + body).hexdigest()[:20]
        key = f"{_folder(writer)}/{named}.jsonl"
        with closing(open_store(self.uri, self.settings)) as store:
            put_content_addressed(store, key, body, ReadbackPolicy(SystemClock(), SystemIds()))
        return {COUNT_KEY: str(len(bad)), FILE_KEY: f"{self.uri}/{key}"}


def _folder(writer: str) -> str:
    """Return the folder name for a writer id."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in writer)
    return plain[:80].strip("-") or "writer"
