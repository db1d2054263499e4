"""The rows of a base file, some columns and some rows at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.filtering import RowFilter
from tidelock.kernel.objectfile import opened_input
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile
from tidelock.table.schema.evolution import conformed

BATCH_ROWS: Final = 256 * 1024
"""Enough for the merge to be vectorised."""

BATCH_BYTES: Final = 64 * 1024 * 1024
"""Wide rows come in smaller batches, so that a worker's memory does not depend on their width."""

UNREADABLE: Final = (pa.ArrowException, OSError, UnicodeError)
"""What Arrow raises over bytes that are no Parquet file, or no longer one."""

_FETCH_BYTES: Final = 64 * 1024 * 1024
"""Small row groups are fetched together, up to this size."""

ALONE_BYTES: Final = 1024 * 1024
"""So little is read without Arrow's threads: waking them takes longer, and each keeps memory."""

_FEW_ROWS: Final = 10_000
"""In a smaller file, looking which strings repeat themselves takes longer than decoding them."""

_INDEX_BYTES: Final = 4
"""A string that takes less than this in the file is one of few, told apart by a short number."""


def read_base(
    store: ObjectStore,
    base: BaseFile,
    schema: pa.Schema,
    *,
    batch_rows: int = BATCH_ROWS,
    passing: RowFilter | None = None,
    encoded: Collection[str] = (),
) -> Iterator[pa.Table]:
    """Yield the rows of a base file with the columns and types of `schema`.

    Columns the file does not have are null; columns it has beyond `schema` are not fetched. With
    `passing`, row groups are left out whose statistics say that no row of them can pass. Strings of
    the columns in `encoded` stay dictionary-encoded if they are few: whoever only writes them on
    saves the decoding.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput` for a column that cannot be widened.
    """
    where = f"{store.uri}/{base.key}"
    with opened(store, base, where) as file:
        few = strings_of_few(file, schema, encoded)
        wanted = _with_dictionaries(schema, few)
        names = [name for name in schema.names if name in file.schema_arrow.names]
        groups = range(file.num_row_groups) if passing is None else passing.row_groups(file)
        reader = file if not few else opened(store, base, where, metadata=file.metadata, few=few)
        try:
            for batch in _batches(reader, groups, names, batch_rows):
                yield conformed(batch, wanted, where=where)
        except UNREADABLE as error:
            raise DataCorrupt(f"{where}: the base file cannot be read: {error}") from error
        finally:
            reader.close()


def opened(
    store: ObjectStore,
    base: BaseFile,
    where: str,
    *,
    metadata: pq.FileMetaData | None = None,
    few: Sequence[str] = (),
) -> pq.ParquetFile:
    """Open a base file; strings of the columns `few` are read as dictionaries.

    Raises: `NotFound`, `DataCorrupt`.
    """
    source = opened_input(store, base.key, base.size_bytes)
    try:
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=list(few),
            # The ranges of row groups are fetched together: on a far store each is a round trip.
            pre_buffer=isinstance(source, pa.PythonFile),
            coerce_int96_timestamp_unit="us",
        )
        # Names that are no text are found out when they are asked for.
        _ = file.schema_arrow.names
    except UNREADABLE as error:
        raise DataCorrupt(
            f"{where}: the base file is not a Parquet file of {base.size_bytes} bytes: {error}",
            hint="it was truncated or overwritten; restore it or roll back the write that made it",
        ) from error
    return file


def _batches(
    file: pq.ParquetFile, chosen: Sequence[int], names: Sequence[str], batch_rows: int
) -> Iterator[pa.Table]:
    if not names:
        # Nothing to fetch, but as many rows: all their columns are from after this file.
        for group in chosen:
            rows = file.metadata.row_group(group).num_rows
            yield pa.table({"": pa.nulls(rows)})
        return
    for groups, size_bytes, rows in _fetches(file.metadata, chosen):
        fitting = max(1, BATCH_BYTES * rows // max(1, size_bytes))
        batches = file.iter_batches(
            batch_size=min(batch_rows, fitting),
            row_groups=groups,
            columns=list(names),
            use_threads=size_bytes > ALONE_BYTES,
        )
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _fetches(
    metadata: pq.FileMetaData, chosen: Sequence[int]
) -> Iterator[tuple[list[int], int, int]]:
    """Yield row groups to be fetched together, with their size in memory and their rows.

    What is fetched ahead is given back only with the next fetch, so they are not all one.
    """
    groups: list[int] = []
    size_bytes = rows = 0
    for number in chosen:
        group = metadata.row_group(number)
        if groups and size_bytes + group.total_byte_size > _FETCH_BYTES:
            yield groups, size_bytes, rows
            groups, size_bytes, rows = [], 0, 0
        groups.append(number)
        size_bytes += group.total_byte_size
        rows += group.num_rows
    if groups:
        yield groups, size_bytes, rows


def strings_of_few(file: pq.ParquetFile, schema: pa.Schema, names: Collection[str]) -> list[str]:
    """Return which of the columns hold strings that repeat themselves throughout the file.

    They had better stay encoded on their way to another file.
    """
    if not names or file.metadata.num_rows < _FEW_ROWS:
        return []
    found = []
    for place in range(file.metadata.num_columns):
        name = file.metadata.schema.column(place).path
        if name not in names or name not in schema.names:
            continue
        plain = pt.is_string(schema.field(name).type)
        if plain and pt.is_string(file.schema_arrow.field(name).type) and _is_few(file, place):
            found.append(name)
    return found


def _is_few(file: pq.ParquetFile, place: int) -> bool:
    for group in range(file.num_row_groups):
        chunk = file.metadata.row_group(group).column(place)
        encoded = any(encoding.endswith("_DICTIONARY") for encoding in chunk.encodings)
        if not encoded or chunk.total_uncompressed_size >= _INDEX_BYTES * chunk.num_values:
            return False
    return True


def _with_dictionaries(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([field.with_type(kind) if field.name in names else field for field in schema])
