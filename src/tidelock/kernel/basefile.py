"""The rows of a base file, some columns and some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.objectfile import ObjectFile
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile
from tidelock.table.schema.evolution import conformed

BATCH_ROWS: Final = 256 * 1024
"""Enough for the merge to be vectorised, little enough for a worker with hundreds of columns."""


def read_base(
    store: ObjectStore, base: BaseFile, schema: pa.Schema, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.Table]:
    """Yield the rows of a base file with the columns and types of `schema`.

    Columns the file does not have are null; columns it has beyond `schema` are not fetched.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput` for a column that cannot be widened.
    """
    where = f"{store.uri}/{base.key}"
    with _opened(store, base, where) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        try:
            for batch in _batches(file, names, batch_rows):
                yield conformed(batch, schema, where=where)
        except (pa.ArrowInvalid, OSError) as error:
            raise DataCorrupt(f"{where}: the base file cannot be read: {error}") from error


def _opened(store: ObjectStore, base: BaseFile, where: str) -> pq.ParquetFile:
    source = pa.PythonFile(ObjectFile(store, base.key, base.size_bytes), mode="r")
    try:
        # The ranges of a row group are fetched together: on a far store each costs a round trip.
        return pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us")
    except (pa.ArrowInvalid, OSError) as error:
        raise DataCorrupt(
            f"{where}: the base file is not a Parquet file of {base.size_bytes} bytes: {error}",
            hint="it was truncated or overwritten; restore it or roll back the write that made it",
        ) from error


def _batches(file: pq.ParquetFile, names: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
    if not names:
        # Nothing to fetch, but as many rows: all their columns are from after this file.
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield pa.table({"": pa.nulls(rows)})
        return
    for batch in file.iter_batches(batch_size=batch_rows, columns=list(names)):
        yield pa.Table.from_batches([batch])
