"""Writers of base files: meta columns first, row groups of bounded size, and Hudi's footer."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.core.errors import InvalidInput
from tidelock.execution.filegroup.context import (
    KEYS_INLINE_MAX,
    BloomSettings,
    FileResult,
    FileSettings,
    FileTarget,
    WriteContext,
    WrittenBaseFile,
    count_base_rows,
    create_marker,
    created_result,
    file_path,
    resolve_upload,
)
from tidelock.execution.filegroup.read import with_dictionaries
from tidelock.hudi.bloom_filter import (
    DYNAMIC,
    FOOTER_FILTER,
    FOOTER_MAX_KEY,
    FOOTER_MIN_KEY,
    FOOTER_TYPE,
    BloomFilter,
    BloomShape,
    decode_filter,
    encode_filter,
)
from tidelock.hudi.file_groups import file_id as numbered_file_id
from tidelock.hudi.markers import IoType
from tidelock.hudi.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    conform,
)
from tidelock.storage.contract import ObjectStore, Upload

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_SAMPLE_ROWS: Final = 4_096

_SAMPLE_ROWS_MIN: Final = 100

_DISTINCT_SHARE: Final = 0.7
"""If more of the sampled values are distinct, a dictionary costs more than it saves."""


def constant_column(value: str, size: int) -> pa.DictionaryArray:
    """Return a column with the same value in every row, dictionary-encoded."""
    indices = pa.repeat(pa.scalar(0, pa.int32()), size)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))


def sequence_numbers(instant: str, slot: int, size: int, *, start: int) -> pa.Array:
    """Return Hudi's `<instant>_<task>_<row>` for the rows from `start` on."""
    prefix = f"{instant}_{slot}_".encode()
    texts: list[npt.NDArray[np.uint8]] = []
    first, end = start, start + size
    offsets = np.zeros(size + 1, np.int32)
    while first < end:
        # Numbers with the same number of digits give strings of equal length: make them together.
        last = min(end, 10 ** len(str(first)))
        table = _digit_rows(prefix, first, last)
        texts.append(table.reshape(-1))
        offsets[first - start + 1 : last - start + 1] = table.shape[1]
        first = last
    np.cumsum(offsets, out=offsets)
    data = pa.py_buffer(np.concatenate(texts) if texts else b"")
    return pa.Array.from_buffers(pa.string(), size, [None, pa.py_buffer(offsets), data])


def _digit_rows(prefix: bytes, first: int, last: int) -> npt.NDArray[np.uint8]:
    """Return a row of characters for each number in `first` to `last`, all of equal length."""
    if last <= 1_000:
        characters = b"".join(prefix + str(number).encode() for number in range(first, last))
        return np.frombuffer(characters, np.uint8).reshape(last - first, -1)
    # The last three digits repeat every thousand; compute the prefixes once.
    thousand = first // 1_000
    heads = _digit_rows(prefix, thousand, (last - 1) // 1_000 + 1)
    table = np.empty((len(heads), 1_000, heads.shape[1] + 3), np.uint8)
    table[:, :, :-3] = heads[:, None, :]
    table[:, :, -3:] = _THREE_DIGITS
    flat = table.reshape(-1, table.shape[2])
    return flat[first - 1_000 * thousand : last - 1_000 * thousand]


_THREE_DIGITS: Final = np.frombuffer(
    b"".join(f"{number:03}".encode() for number in range(1_000)), np.uint8
).reshape(1_000, 3)


def add_commit_columns(
    rows: pa.Table, *, instant: str, slot: int, start: int, schema: pa.Schema
) -> pa.Table:
    """Return rows in the columns of `schema`, with the commit time and sequence numbers of a write.

    The file name stays empty; the writer of the file sets it.
    """
    size = rows.num_rows
    generated = {
        COMMIT_TIME: lambda: constant_column(instant, size),
        COMMIT_SEQNO: lambda: sequence_numbers(instant, slot, size, start=start),
        FILE_NAME: lambda: pa.nulls(size, pa.string()),
    }
    columns = []
    for field in schema:
        if field.name in generated:
            columns.append(generated[field.name]())
        elif field.name in rows.column_names:
            columns.append(rows.column(field.name))
        else:
            columns.append(pa.nulls(size, field.type))
    return pa.Table.from_arrays(columns, names=schema.names)


def dictionary_columns(
    rows: pa.Table, schema: pa.Schema, chosen: tuple[str, ...] | None
) -> list[str]:
    """Return the columns to dictionary-encode: `chosen`, or those with repeated values.

    Keys and sequence numbers are unique; the other meta columns repeat.
    """
    meta = [COMMIT_TIME, PARTITION_PATH, FILE_NAME]
    if chosen is not None:
        return [*meta, *chosen]
    if rows.num_rows < _SAMPLE_ROWS_MIN:
        return [*meta, *(field.name for field in rows.schema if pt.is_dictionary(field.type))]
    sample = rows.slice(0, _SAMPLE_ROWS)
    for field in schema:
        if field.name in META_COLUMNS or pt.is_boolean(field.type):
            continue
        if pt.is_nested(field.type):
            meta += _nested_string_paths(field.type, field.name)
        elif _is_repetitive(sample.column(field.name)):
            meta.append(field.name)
    return meta


def _nested_string_paths(kind: pa.DataType, path: str) -> list[str]:
    """Return the Parquet paths of the strings in a nested column.

    They are not sampled; Parquet falls back by itself if a dictionary grows too large.
    """
    if pt.is_struct(kind):
        parts = [_nested_string_paths(part.type, f"{path}.{part.name}") for part in kind]
        return list(chain.from_iterable(parts))
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _nested_string_paths(kind.value_type, f"{path}.list.element")
    if pt.is_map(kind):
        keys = _nested_string_paths(kind.key_type, f"{path}.key_value.key")
        return keys + _nested_string_paths(kind.item_type, f"{path}.key_value.value")
    return [path] if pt.is_string(kind) or pt.is_binary(kind) else []


def _is_repetitive(column: pa.ChunkedArray) -> bool:
    if pt.is_dictionary(column.type):
        return True
    values = column.drop_null()
    if not len(values):
        return True
    return bool(pc.count_distinct(values).as_py() <= _DISTINCT_SHARE * len(values) + 1)


class BaseFileUpload(ExitStack[None]):
    """The upload of one base file. Leaving the context without `finish` discards it."""

    def __init__(
        self, store: ObjectStore, ctx: WriteContext, target: FileTarget, *, first: bool
    ) -> None:
        """Create the marker and begin the upload; `first` if the group has no base file."""
        super().__init__()
        self.name = ctx.base_name(target.file_id, target.slot)
        self._store = store
        self._key = file_path(target.partition, self.name)
        io_type = IoType.CREATE if first else IoType.MERGE
        create_marker(store, ctx, target.partition, self.name, io_type, first=first)
        self._upload = self.enter_context(store.upload(self._key))
        self.sink = self.enter_context(_sink(self._upload))

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""
        return int(self.sink.tell())

    def finish(self, rows: int) -> int:
        """Complete the upload of a file with this number of rows, and return its size.

        Raises: as `resolve_upload`.
        """
        size_bytes = self.size_bytes
        self.sink.close()
        reply = self._upload.finish()
        size_bytes = resolve_upload(
            self._store, self._key, reply, size_bytes=size_bytes, rows=rows, count=count_base_rows
        )
        self.close()
        return size_bytes


def _sink(upload: Upload) -> pa.NativeFile:
    """Return a file for Arrow to write to; a native one if the upload has a path."""
    if upload.path is not None:
        return pa.OSFile(upload.path, mode="wb")
    return pa.PythonFile(_UploadFile(upload), mode="w")


class _UploadFile(io.RawIOBase):
    """An upload as a writable file."""

    def __init__(self, upload: Upload) -> None:
        super().__init__()
        self._upload = upload
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer) -> int:
        size = memoryview(data).nbytes
        self._upload.write(data)
        self._position += size
        return size


class KeyStats:
    """Collects keys, or the key statistics of other footers, for a footer."""

    def __init__(self, bloom: BloomSettings | None) -> None:
        self.min_key: str | None = None
        self.max_key: str | None = None
        self._bloom = None if bloom is None else _new_filter(bloom)

    def add(self, keys: pa.ChunkedArray) -> None:
        """Add the keys of some rows."""
        bounds = pc.min_max(keys).as_py()
        self._extend(bounds["min"], bounds["max"])
        if self._bloom is not None:
            for chunk in keys.chunks:
                self._bloom.add(chunk)

    def include(self, footer: Mapping[str, str], *, where: str) -> None:
        """Add the statistics of another file's footer, checked by `can_include`."""
        self._extend(footer[FOOTER_MIN_KEY], footer[FOOTER_MAX_KEY])
        if self._bloom is not None:
            self._bloom.include(decode_filter(footer[FOOTER_FILTER], where=where))

    def footer(self) -> dict[str, str]:
        """Return the footer's key-value pairs."""
        found = {}
        if self.min_key is not None and self.max_key is not None:
            found = {FOOTER_MIN_KEY: self.min_key, FOOTER_MAX_KEY: self.max_key}
        if self._bloom is not None:
            found |= {FOOTER_FILTER: encode_filter(self._bloom), FOOTER_TYPE: DYNAMIC}
        return found

    def _extend(self, low: str, high: str) -> None:
        self.min_key = low if self.min_key is None else min(self.min_key, low)
        self.max_key = high if self.max_key is None else max(self.max_key, high)


def can_include(footer: Mapping[str, str], bloom: BloomSettings | None, *, where: str) -> bool:
    """Return whether a footer has all the key statistics that these settings require.

    Raises: `DataCorrupt` for a filter that cannot be read.
    """
    if FOOTER_MIN_KEY not in footer or FOOTER_MAX_KEY not in footer:
        return False
    if bloom is None:
        return True
    if FOOTER_FILTER not in footer or footer.get(FOOTER_TYPE) != DYNAMIC:
        return False
    return decode_filter(footer[FOOTER_FILTER], where=where).shape == _new_filter(bloom).shape


def _new_filter(bloom: BloomSettings) -> BloomFilter:
    return BloomFilter(BloomShape.of(bloom.entries, bloom.rate), bloom.entries_max)


FILE_COLUMNS: Final = (PARTITION_PATH, FILE_NAME)
"""Meta columns with one value per file, which the writer adds to the rows."""


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns to read from stored rows: all but those that the writer adds."""
    return pa.schema([field for field in schema if field.name not in FILE_COLUMNS])


def with_file_columns(rows: pa.Table, schema: pa.Schema, partition: str, name: str) -> pa.Table:
    """Return the rows in the schema's order, with the columns that are constant in a file."""
    values = {PARTITION_PATH: partition, FILE_NAME: name}
    columns = [
        constant_column(values[field.name], rows.num_rows)
        if field.name in values
        else rows.column(field.name)
        for field in schema
    ]
    kinds = [column.type for column in columns]
    fields = [field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def parquet_options(rows: pa.Table, schema: pa.Schema, settings: FileSettings) -> dict[str, Any]:
    """Return the options of Arrow's Parquet writer for a file that begins with these rows."""
    return {
        "compression": settings.compression,
        "use_dictionary": dictionary_columns(rows, schema, settings.dictionary),
        "write_statistics": settings.statistics,
        "coerce_timestamps": "us",
        "allow_truncated_timestamps": True,
        "store_schema": False,
    }


class BaseWriter:
    """Writes the rows of one base file."""

    def __init__(self, upload: BaseFileUpload, ctx: WriteContext, partition: str) -> None:
        """Write to `upload`, in the context of which `finish` must be called."""
        self._settings = ctx.settings
        self._schema = ctx.schema
        self._partition = partition
        self._file = upload
        self.name = upload.name
        self._writer: pq.ParquetWriter | None = None
        self._encoded: set[str] = set()
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self.rows = 0
        self._keys = KeyStats(ctx.settings.bloom)

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far, without pending rows."""
        return self._file.size_bytes

    @property
    def row_bytes(self) -> float | None:
        """The average stored size of a row so far; None before the first row group."""
        flushed = self.rows - self.pending_rows
        return self.size_bytes / flushed if flushed else None

    @property
    def pending_rows(self) -> int:
        """The number of rows that wait for their row group."""
        return sum(rows.num_rows for rows in self._pending)

    def write(self, rows: pa.Table) -> None:
        """Add rows with the columns of the schema; `FILE_COLUMNS` may be missing."""
        if not rows.num_rows:
            return
        if not self.rows:
            kinds = zip(rows.column_names, rows.schema.types, strict=True)
            self._encoded = {name for name, kind in kinds if pt.is_dictionary(kind)}
        self._keys.add(rows.column(RECORD_KEY))
        self.rows += rows.num_rows
        room = self._settings.row_group_bytes
        width = max(1, rows.nbytes // rows.num_rows)
        start = 0
        while start < rows.num_rows:
            take = max(1, (room - self._pending_bytes) // width)
            part = rows.slice(start, take)
            self._pending.append(part)
            self._pending_bytes += width * part.num_rows
            start += part.num_rows
            if self._pending_bytes + width > room:
                self.flush()

    def flush(self) -> None:
        """Write the pending rows as a row group."""
        if not self._pending:
            return
        rows_of_group = pa.concat_tables([self._encode_repeated(rows) for rows in self._pending])
        self._pending.clear()
        self._pending_bytes = 0
        writer, schema = self._opened(rows_of_group), self._stored_schema()
        complete = with_file_columns(rows_of_group, schema, self._partition, self.name)
        writer.write_table(complete.unify_dictionaries(), row_group_size=rows_of_group.num_rows)

    def finish(self) -> WrittenBaseFile:
        """Write the footer and complete the upload. Raises: as `resolve_upload`."""
        self.flush()
        writer = self._opened(self._schema.empty_table())
        footer = self._keys.footer()
        if footer:
            writer.add_key_value_metadata(footer)
        writer.close()
        size_bytes = self._file.finish(self.rows)
        keys = self._keys
        return WrittenBaseFile(self.name, self.rows, size_bytes, keys.min_key, keys.max_key)

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            options = parquet_options(first, self._schema, self._settings)
            self._writer = pq.ParquetWriter(self._file.sink, self._stored_schema(), **options)
            self._file.callback(self._skip_footer)
        return self._writer

    def _skip_footer(self) -> None:
        """Mark the Parquet writer as closed, so that a discarded file gets no footer."""
        if self._writer is not None:
            self._writer.is_open = False

    def _encode_repeated(self, rows: pa.Table) -> pa.Table:
        """Dictionary-encode the columns that were encoded in the first rows, and decode others."""
        columns = []
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            encoded = name in self._encoded
            if encoded and not pt.is_dictionary(column.type):
                columns.append(column.dictionary_encode())
            elif not encoded and pt.is_dictionary(column.type):
                columns.append(column.cast(column.type.value_type))
            else:
                columns.append(column)
        return pa.Table.from_arrays(columns, names=rows.column_names)

    def _stored_schema(self) -> pa.Schema:
        return with_dictionaries(self._schema, {*FILE_COLUMNS, *self._encoded})


_NUMBERED_ID: Final = re.compile(r"(.+)-(\d+)")
_COMPRESSION_GUESS: Final = 0.5
"""The assumed compression ratio before the first row group is written."""


def incoming_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of incoming rows: all but the meta columns that the writer adds."""
    generated = (COMMIT_TIME, COMMIT_SEQNO, FILE_NAME)
    return pa.schema([field for field in schema if field.name not in generated])


def stamp_rows(
    rows: pa.Table, ctx: WriteContext, slot: int, schema: pa.Schema, *, where: str
) -> pa.Table:
    """Return incoming rows in the columns of `schema`, with the commit columns of the write."""
    conformed = conform(rows, incoming_schema(ctx.schema), where=where)
    return add_commit_columns(conformed, instant=ctx.instant, slot=slot, start=0, schema=schema)


class FileGroupsWriter(ExitStack[None]):
    """Writes base files one after the other, each in a new group.

    Leaving the context discards the unfinished file; finished ones stay until a rollback.
    """

    def __init__(self, store: ObjectStore, ctx: WriteContext, first: FileTarget) -> None:
        """Start with the group of `first`; further ones follow if its id ends in a number."""
        super().__init__()
        self._store = store
        self._ctx = ctx
        self._target = first
        self._results: list[FileResult] = []

    def _begin_file(self) -> BaseFileUpload:
        upload = BaseFileUpload(self._store, self._ctx, self._target, first=True)
        return self.enter_context(upload)

    def _add_result(self, written: WrittenBaseFile, keys: tuple[str, ...] | None = ()) -> None:
        """Add the result of the current file, and go to the next group."""
        self._results.append(created_result(self._target, written, keys))
        numbered = _NUMBERED_ID.fullmatch(self._target.file_id)
        if numbered:
            following = numbered_file_id(numbered[1], int(numbered[2]) + 1)
            self._target = replace(self._target, file_id=following)


class RollingWriter(FileGroupsWriter):
    """Writes base files up to the maximum size.

    With `keep_meta`, rows are stored rows that keep the meta columns of their commit.
    """

    def __init__(
        self, store: ObjectStore, ctx: WriteContext, first: FileTarget, *, keep_meta: bool = False
    ) -> None:
        """Start with the group of `first`, whose id ends in a number to continue from."""
        super().__init__(store, ctx, first)
        if ctx.settings.file_bytes_max is not None and not _NUMBERED_ID.fullmatch(first.file_id):
            raise InvalidInput(f"file id {first.file_id!r}: expected a number at the end")
        self._keep_meta = keep_meta
        self._writer: BaseWriter | None = None
        self._keys: list[pa.ChunkedArray] = []
        self._rows = 0
        self._incoming = incoming_schema(ctx.schema)

    def write(self, rows: pa.Table) -> None:
        """Add rows to the current file, and to further files when it is full."""
        where = f"rows for {self._target.file_id}"
        conformed = rows if self._keep_meta else conform(rows, self._incoming, where=where)
        start = 0
        while start < conformed.num_rows:
            part = conformed.slice(start, self._room(conformed))
            self._write(part)
            start += part.num_rows

    def finish(self) -> tuple[FileResult, ...]:
        """Finish the last file and return all results."""
        if self._writer is not None or not self._results:
            self._finish_file()
        return tuple(self._results)

    def _write(self, part: pa.Table) -> None:
        if self._keep_meta:
            self._current().write(part)
            return
        instant, schema, slot = self._ctx.instant, self._ctx.schema, self._target.slot
        self._current().write(
            add_commit_columns(part, instant=instant, slot=slot, start=self._rows, schema=schema)
        )
        self._rows += part.num_rows
        if sum(len(keys) for keys in self._keys) <= KEYS_INLINE_MAX:
            self._keys.append(part.column(RECORD_KEY))

    def _room(self, rows: pa.Table) -> int:
        """Return how many rows fit into the current file; finishes it first if it is full."""
        bytes_max = self._ctx.settings.file_bytes_max
        if bytes_max is None:
            return int(rows.num_rows)
        writer = self._current()
        width = writer.row_bytes
        if width is None:
            # The row size is unknown yet, so take at most a row group before checking again.
            guess = max(1.0, rows.nbytes / rows.num_rows * _COMPRESSION_GUESS)
            group = self._ctx.settings.row_group_bytes * _COMPRESSION_GUESS
            room = min(bytes_max, group) / guess - writer.pending_rows
            if room < 1 and writer.pending_rows:
                # A file smaller than a row group: flush to measure the row size.
                writer.flush()
                return self._room(rows)
            return max(1, int(room))
        room = (bytes_max - writer.size_bytes) / width - writer.pending_rows
        if room < 1:
            self._finish_file()
            return self._room(rows)
        return int(room)

    def _current(self) -> BaseWriter:
        if self._writer is None:
            self._writer = BaseWriter(self._begin_file(), self._ctx, self._target.partition)
        return self._writer

    def _finish_file(self) -> None:
        written = self._current().finish()
        inline = self._keep_meta or written.rows <= KEYS_INLINE_MAX
        # Collecting the keys of a large file would be as expensive as encoding some columns.
        names = [key for keys in self._keys for key in keys.to_pylist()] if inline else []
        self._add_result(written, tuple(names) if inline else None)
        self._writer = None
        self._keys.clear()
