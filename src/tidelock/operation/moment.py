"""A table as one attempt at a write sees it: what rows that depend on the table are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.engine.local import LocalEngine, Scan
from tidelock.kernel.filtering import RowFilter
from tidelock.kernel.merge import MergeRule
from tidelock.operation.filters import without_impossible
from tidelock.operation.frames import scan_frame
from tidelock.operation.query import chosen_columns
from tidelock.operation.reads import snapshot_now
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.properties import TableProperties
from tidelock.table.schema.meta import with_meta, without_meta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AMONG_BATCH_ROWS: Final = 1_000_000


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
    properties: TableProperties

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

    def among(
        self, columns: Sequence[str], values: Mapping[str, pa.Array], *, bytes_max: int
    ) -> pa.Table | None:
        """Return the rows that have one of the values in each of the columns that `values` names.

        None once they are more than `bytes_max`. Raises: as `read`.
        """
        scan = self._scan(columns, meta_columns=False)
        condition = pc.scalar(value=True)
        for name, some in values.items():
            condition &= pc.field(name).isin(some)
        passing = RowFilter(condition, scan.schema, tuple(values))
        slices = without_impossible(self.slices, passing, self.properties)
        # Every batch is compared with all values, so there are few of them.
        scan = replace(scan, slices=slices, passing=passing, batch_rows=_AMONG_BATCH_ROWS)
        schema = pa.schema([scan.schema.field(name) for name in columns])
        parts, size = [schema.empty_table()], 0
        for rows in LocalEngine().batches(scan):
            size += rows.nbytes
            if size > bytes_max:
                return None
            parts.append(rows.cast(schema))
        return pa.concat_tables(parts)

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
