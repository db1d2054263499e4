"""A table as one attempt at a write sees it: what rows that depend on the table are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.engine.local import LocalEngine, Scan
from tidelock.kernel.merge import MergeRule
from tidelock.operation.frames import scan_frame
from tidelock.operation.query import chosen_columns
from tidelock.operation.reads import snapshot_now
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.schema.meta import with_meta, without_meta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NothingToWrite(Exception):
    """The rows that were computed are none, so there is nothing to commit."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The rows of a table after the entry of the ledger that an attempt is made on.

    Guarantees: a commit made of what is read here is taken only if nobody wrote in between.
    """

    store: ObjectStore
    slices: tuple[FileSlice, ...]
    stored: pa.Schema
    rule: MergeRule

    @property
    def schema(self) -> pa.Schema:
        """The user's columns; every one is nullable, since rows may be older than a column."""
        fields = without_meta(self.stored)
        return pa.schema([field.with_nullable(nullable=True) for field in fields])

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows. Raises: `InvalidInput`, `NotFound`, `DataCorrupt`."""
        scan = self._scan(columns, meta_columns=False)
        schema = pa.schema([scan.schema.field(name) for name in scan.columns or ()])
        parts = [rows.cast(schema) for rows in LocalEngine().read(scan)]
        return pa.concat_tables([schema.empty_table(), *parts])

    def frame(
        self,
        spark: SparkSession,
        options: Mapping[str, object],
        columns: Sequence[str] | None = None,
        *,
        meta_columns: bool = False,
    ) -> DataFrame:
        """Return the rows as a frame, of which nothing is read yet. Raises: `InvalidInput`."""
        scan = self._scan(columns, meta_columns=meta_columns)
        return scan_frame(spark, snapshot_now(self.store), scan, options)

    def _scan(self, columns: Sequence[str] | None, *, meta_columns: bool) -> Scan:
        schema = with_meta(self.schema)
        chosen = chosen_columns(schema, columns, meta_columns=meta_columns, where=self.store.uri)
        return Scan(self.store, self.slices, schema, self.rule, chosen)
