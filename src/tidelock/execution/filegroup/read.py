"""Reading base files and file slices: base rows merged with log files, in batches."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.core.errors import DataCorrupt, InvalidInput, NotFound, Unsupported
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.execution.filegroup.merge import (
    Layer,
    MergeRule,
    Overlay,
    check_ordering,
    fold_layers,
    fold_layers_with,
    overlay_rows,
    overlay_rows_with,
)
from tidelock.hudi.file_groups import BaseFile, FileSlice
from tidelock.hudi.log_blocks import CorruptBlock
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import COMMIT_TIME, RECORD_KEY, conform, dictionary_decoded
from tidelock.storage.contract import ObjectStore

SINGLE_GET_BYTES_MAX: Final = 256 * 1024
"""Objects up to this size are read with one request."""


class ObjectFile(io.RawIOBase):
    """A read-only file over one object. Each read is one ranged request; there is no cache."""

    def __init__(self, store: ObjectStore, key: str, size_bytes: int) -> None:
        """Open the object `key`, which has `size_bytes` according to a listing."""
        super().__init__()
        self._store = store
        self._key = key
        self._size = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end.

        Raises: `NotFound`, `DataCorrupt` if the object is shorter than listed.
        """
        remaining = max(0, self._size - self._position)
        count = remaining if size is None or size < 0 else min(size, remaining)
        if count == 0:
            return b""
        end, where = self._position + count, f"{self._store.uri}/{self._key}"
        found = self._store.get(self._key, start=self._position, end=end)
        if found is None:
            raise _missing_error(where)
        if len(found.body) != count:
            raise DataCorrupt(
                f"{where}: expected {count} bytes at byte {self._position}, got"
                f" {len(found.body)}: the object is shorter than listed"
            )
        self._position = end
        return found.body


def open_input(store: ObjectStore, key: str, size_bytes: int) -> pa.NativeFile:
    """Open an object as a file for Arrow to read from; a native one if the store has a path.

    Raises: `NotFound`.
    """
    path = store.local_path(key)
    if path is None:
        file = ObjectFile(store, key, size_bytes)
        if size_bytes <= SINGLE_GET_BYTES_MAX:
            return pa.BufferReader(file.read())
        return pa.PythonFile(file, mode="r")
    try:
        return pa.OSFile(path)
    except FileNotFoundError as error:
        raise _missing_error(f"{store.uri}/{key}") from error


def _missing_error(where: str) -> NotFound:
    return NotFound(
        f"{where} does not exist", hint="a clean may have deleted it; open the table again"
    )


BATCH_ROWS: Final = 256 * 1024
"""Large enough for vectorized merging."""

BATCH_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a batch, so that memory use does not depend on the width of rows."""

READ_ERRORS: Final = (pa.ArrowException, OSError, UnicodeError)
"""The errors that Arrow raises for invalid Parquet files."""

_FETCH_BYTES: Final = 64 * 1024 * 1024
"""Row groups are fetched together up to this size."""

SINGLE_THREAD_BYTES_MAX: Final = 1024 * 1024
"""Less is read without Arrow's threads, which cost more than they save."""

_SAMPLED_ROWS_MIN: Final = 10_000
"""In smaller files, detecting repeated strings costs more than decoding them."""

_INDEX_BYTES: Final = 4
"""Strings that take less than this in the file are encoded as dictionary indexes."""


def read_base(
    store: ObjectStore,
    base: BaseFile,
    schema: pa.Schema,
    *,
    batch_rows: int = BATCH_ROWS,
    row_filter: RowFilter | None = None,
    encoded: Collection[str] = (),
) -> Iterator[pa.Table]:
    """Yield the rows of a base file with the columns and types of `schema`.

    Columns that the file lacks are null; columns not in `schema` are not read. With `row_filter`,
    row groups are skipped if their statistics exclude all rows. Columns in `encoded` stay
    dictionary-encoded if they have few distinct strings, which saves decoding when rows are only
    copied. Raises: `NotFound`, `DataCorrupt`, `InvalidInput` for a column that cannot be widened.
    """
    where = f"{store.uri}/{base.key}"
    with open_base_file(store, base, where) as file:
        encoded_columns = low_cardinality_columns(file, schema, encoded)
        target = with_dictionaries(schema, encoded_columns)
        names = [name for name in schema.names if name in file.schema_arrow.names]
        groups = range(file.num_row_groups) if row_filter is None else row_filter.row_groups(file)
        reader = file
        if encoded_columns:
            reader = open_base_file(
                store, base, where, metadata=file.metadata, encoded_columns=encoded_columns
            )
        try:
            for batch in _batches(reader, groups, names, batch_rows):
                yield conform(batch, target, where=where)
        except READ_ERRORS as error:
            raise DataCorrupt(f"{where}: the base file cannot be read: {error}") from error
        finally:
            reader.close()


def open_base_file(
    store: ObjectStore,
    base: BaseFile,
    where: str,
    *,
    metadata: pq.FileMetaData | None = None,
    encoded_columns: Sequence[str] = (),
) -> pq.ParquetFile:
    """Open a base file; `encoded_columns` are read as dictionaries.

    Raises: `NotFound`, `DataCorrupt`.
    """
    source = open_input(store, base.key, base.size_bytes)
    try:
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=list(encoded_columns),
            # Fetch ranges together: on a remote store each is a round trip.
            pre_buffer=isinstance(source, pa.PythonFile),
            coerce_int96_timestamp_unit="us",
        )
        # Names that are not valid UTF-8 are detected on access.
        _ = file.schema_arrow.names
    except READ_ERRORS as error:
        raise DataCorrupt(
            f"{where}: expected a Parquet file of {base.size_bytes} bytes: {error}",
            hint="it was truncated or overwritten; restore it from a copy or roll back its write",
        ) from error
    return file


def _batches(
    file: pq.ParquetFile, chosen: Sequence[int], names: Sequence[str], batch_rows: int
) -> Iterator[pa.Table]:
    if not names:
        # No column to fetch, only the number of rows: the file predates all the columns.
        for group in chosen:
            rows = file.metadata.row_group(group).num_rows
            yield pa.table({"": pa.nulls(rows)})
        return
    for groups, size_bytes, rows in _fetch_groups(file.metadata, chosen):
        fitting = max(1, BATCH_BYTES * rows // max(1, size_bytes))
        batches = file.iter_batches(
            batch_size=min(batch_rows, fitting),
            row_groups=groups,
            columns=list(names),
            use_threads=size_bytes > SINGLE_THREAD_BYTES_MAX,
        )
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _fetch_groups(
    metadata: pq.FileMetaData, chosen: Sequence[int]
) -> Iterator[tuple[list[int], int, int]]:
    """Yield row groups to fetch together, with their size in memory and their rows.

    Prefetched data is released only with the next fetch, so the size is bounded.
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


def low_cardinality_columns(
    file: pq.ParquetFile, schema: pa.Schema, names: Collection[str]
) -> list[str]:
    """Return the columns with few distinct strings, which should stay encoded when copied."""
    if not names or file.metadata.num_rows < _SAMPLED_ROWS_MIN:
        return []
    found = []
    for index in range(file.metadata.num_columns):
        name = file.metadata.schema.column(index).path
        if name not in names or name not in schema.names:
            continue
        kinds = (schema.field(name).type, file.schema_arrow.field(name).type)
        if all(map(pt.is_string, kinds)) and _is_low_cardinality(file, index):
            found.append(name)
    return found


def _is_low_cardinality(file: pq.ParquetFile, index: int) -> bool:
    for group in range(file.num_row_groups):
        chunk = file.metadata.row_group(group).column(index)
        encoded = any(encoding.endswith("_DICTIONARY") for encoding in chunk.encodings)
        if not encoded or chunk.total_uncompressed_size >= _INDEX_BYTES * chunk.num_values:
            return False
    return True


def with_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with these string columns dictionary-encoded."""
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([field.with_type(kind) if field.name in names else field for field in schema])


def slice_batches(
    store: ObjectStore,
    file_slice: FileSlice,
    schema: pa.Schema,
    *,
    rule: MergeRule,
    columns: Sequence[str] | None = None,
    as_of: str | None = None,
    commit_times: Collection[str] | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
    batch_rows: int = BATCH_ROWS,
    row_filter: RowFilter | None = None,
) -> Iterator[pa.Table]:
    """Yield the merged rows of a slice with `columns` (default: all of `schema`).

    `schema` is the table's, including meta columns; files written under an older one are widened.
    Log blocks of instants after `as_of` are ignored. With `commit_times`, only rows whose current
    version was written by one of these instants are yielded, as for an incremental query. With
    `row_filter`, only matching rows are. Corrupt log blocks are skipped and passed to `on_corrupt`.

    Base rows stream; the content of log files is held in memory. Raises: `NotFound`, `DataCorrupt`,
    `InvalidInput`, `Unsupported`.
    """
    selected = _select_schema(schema, columns)
    extra: tuple[str, ...] = () if commit_times is None else (COMMIT_TIME,)
    extra += () if row_filter is None else row_filter.columns
    if not file_slice.logs:
        # Decode strings after filtering, since most rows will be dropped.
        undecoded = () if row_filter is None and commit_times is None else selected.names
        filtered_by = () if row_filter is None else row_filter.columns
        encoded = {*undecoded, *extra}.difference(filtered_by)
        needed = _schema_to_read(schema, selected, extra)
        batches = _base_rows(
            store, file_slice, needed, batch_rows=batch_rows, row_filter=row_filter, encoded=encoded
        )
    else:
        check_ordering(rule, schema)
        merged_by = rule.merger.columns if rule.merger else ()
        extra = (RECORD_KEY, *rule.ordered_by, *extra, *merged_by)
        needed = _schema_to_read(schema, selected, extra)
        logs = file_slice.logs
        layers = read_layers(store, logs, needed, rule, as_of=as_of, on_corrupt=on_corrupt)
        # A base row that does not match may still win over a change that does.
        base = _base_rows(store, file_slice, needed, batch_rows=batch_rows)
        batches, _ = _overlay(base, layers, needed, rule, f"{store.uri}/{logs[0].key}")
    for batch in batches:
        rows = batch if commit_times is None else _filter_commits(batch, commit_times)
        rows = rows if row_filter is None else rows.filter(row_filter.expression)
        if rows.num_rows:
            yield dictionary_decoded(rows.select(selected.names))


def _base_rows(
    store: ObjectStore,
    file_slice: FileSlice,
    schema: pa.Schema,
    *,
    batch_rows: int = BATCH_ROWS,
    row_filter: RowFilter | None = None,
    encoded: Collection[str] = (),
) -> Iterable[pa.Table]:
    base = file_slice.base
    if base is None:
        return ()
    return read_base(
        store, base, schema, batch_rows=batch_rows, row_filter=row_filter, encoded=encoded
    )


def _overlay(
    base: Iterable[pa.Table],
    layers: Sequence[Layer],
    schema: pa.Schema,
    rule: MergeRule,
    where: str,
) -> tuple[Iterator[pa.Table], Overlay]:
    """Return base rows merged with the layers of log files, and the folded layers."""
    if rule.mode is not MergeMode.CUSTOM:
        changes = fold_layers(layers, schema)
        return overlay_rows(base, changes, rule), changes
    if rule.merger is None:
        raise no_merger_error(where)
    changes = fold_layers_with(rule.merger, layers, schema)
    return overlay_rows_with(rule.merger, base, changes), changes


def _select_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise InvalidInput(
            f"the table has no column {missing[0]!r}",
            hint=f"the columns are {', '.join(schema.names)}",
        )
    return pa.schema([schema.field(name) for name in columns])


def _schema_to_read(schema: pa.Schema, selected: pa.Schema, extra: Iterable[str]) -> pa.Schema:
    """Return the columns to read: those selected, and extra ones."""
    names = dict.fromkeys([*selected.names, *extra])
    return pa.schema([schema.field(name) for name in names])


def _filter_commits(batch: pa.Table, commit_times: Collection[str]) -> pa.Table:
    instants = pa.array(sorted(commit_times), pa.string())
    times = batch.column(COMMIT_TIME)
    if not pt.is_dictionary(times.type):
        return batch.filter(pc.is_in(times, value_set=instants))
    # A file has few instants: compare each once.
    chosen = [
        pc.is_in(chunk.dictionary, value_set=instants).take(chunk.indices) for chunk in times.chunks
    ]
    return batch.filter(pa.chunked_array(chosen, pa.bool_()))


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The current rows of a slice, and what its log files contained.

    `changes` are the folded changes of the log files, None without any. The numbers are for the
    stat.
    """

    batches: Iterable[pa.Table]
    changes: Overlay | None = None
    log_blocks: int = 0
    log_records: int = 0
    corrupt_blocks: int = 0


def read_stored_slice(
    store: ObjectStore, file_slice: FileSlice, schema: pa.Schema, rule: MergeRule
) -> StoredRows:
    """Return the current rows of a slice; base rows stream.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput`, `Unsupported`.
    """
    # Strings that are not compared stay dictionary-encoded.
    compared = schema.names if rule.mode is MergeMode.CUSTOM else (RECORD_KEY, *rule.ordered_by)
    encoded = set(schema.names).difference(compared)
    base = _base_rows(store, file_slice, schema, encoded=encoded)
    if not file_slice.logs:
        return StoredRows(base)
    check_ordering(rule, schema)
    corrupt: list[CorruptBlock] = []
    layers = read_layers(store, file_slice.logs, schema, rule, on_corrupt=corrupt.append)
    records = sum(len(layer.keys) for layer in layers)
    where = f"{store.uri}/{file_slice.logs[0].key}"
    batches, changes = _overlay(base, layers, schema, rule, where)
    return StoredRows(batches, changes, len(layers), records, len(corrupt))


def no_merger_error(where: str) -> Unsupported:
    """Return the error for a table with a custom merge class."""
    return Unsupported(
        f"{where}: the table uses a custom merge class",
        hint="pass a Merger, or compact the table with the writer that has the class",
    )
