"""Reads files of records in Spark tasks: lines of text, or typed rows.

A file that cannot be read becomes one malformed record with its name, so corrupt files are handled
like malformed records.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.core.errors import DataCorrupt, InvalidInput, NotFound
from tidelock.execution.filegroup.read import open_input
from tidelock.execution.spark.types import worker_schema
from tidelock.hudi.schema import arrow_schema, conform
from tidelock.storage.contract import ObjectMeta, ObjectStore
from tidelock.storage.uri import StoreAddress
from tidelock.streamer.sources.source import MALFORMED, REASON

VALUE: Final = "value"
LINES: Final = pa.schema([(VALUE, pa.binary())])
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_BATCH_ROWS: Final = 50_000
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, EOFError, zlib.error, KeyError)


class Format(StrEnum):
    """The supported file formats."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


@dataclass(frozen=True, slots=True)
class FileScan:
    """The files of each task, their format and schema; sent to the tasks."""

    address: StoreAddress
    tasks: tuple[tuple[ObjectMeta, ...], ...]
    format: Format
    schema: pa.Schema = LINES
    header: str | None = None
    """The expected first line of each file, if it names the columns."""

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task's files."""
        store = self.address.open()
        for file in self.tasks[task]:
            _check(store, file)
            if self.format in (Format.JSON, Format.CSV):
                yield from self._lines(store, file)
            else:
                yield from self._typed(store, file)
            _check(store, file)

    def _lines(self, store: ObjectStore, file: ObjectMeta) -> Iterator[pa.RecordBatch]:
        where, rest, first = f"{store.uri}/{file.key}", b"", True
        for chunk in _chunks(store, file):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if first and lines and self.header is not None:
                _check_header(lines.pop(0), self.header, where)
                first = False
            yield _line_batch(lines)
        if first and rest and self.header is not None:
            _check_header(rest, self.header, where)
            rest = b""
        yield _line_batch([rest])

    def _typed(self, store: ObjectStore, file: ObjectMeta) -> Iterator[pa.RecordBatch]:
        where, target = f"{store.uri}/{file.key}", worker_schema(self.schema)
        try:
            for table in _tables(self.format, store, file):
                rows = conform(table, target, where=where)
                for each in (MALFORMED, REASON):
                    rows = rows.append_column(each, pa.nulls(rows.num_rows, pa.string()))
                yield from rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
        except (NotFound, InvalidInput):
            raise
        except _UNREADABLE as error:
            yield _malformed(target, where, f"not a valid {self.format} file: {error}")


def schema_of(format_: Format, store: ObjectStore, file: ObjectMeta) -> pa.Schema | None:
    """Return the schema of a file; None if the file cannot be read. Raises: `NotFound`."""
    try:
        with open_input(store, file.key, file.size_bytes) as opened:
            match format_:
                case Format.PARQUET:
                    return pq.read_schema(opened).remove_metadata()
                case Format.ORC:
                    return _orc(opened).schema.remove_metadata()
                case _:
                    return _avro_schema(fastavro.reader(opened), f"{store.uri}/{file.key}")
    except _UNREADABLE:
        return None


def first_line(store: ObjectStore, file: ObjectMeta) -> str:
    """Return the first line of a text file."""
    head = b""
    for chunk in _chunks(store, file):
        head += chunk
        if b"\n" in head:
            break
    return _text(head.split(b"\n")[0])


def _tables(format_: Format, store: ObjectStore, file: ObjectMeta) -> Iterator[pa.Table]:
    with open_input(store, file.key, file.size_bytes) as opened:
        match format_:
            case Format.PARQUET:
                for batch in pq.ParquetFile(opened).iter_batches(_BATCH_ROWS):
                    yield pa.Table.from_batches([batch])
            case Format.ORC:
                orc = _orc(opened)
                for stripe in range(orc.nstripes):
                    yield pa.Table.from_batches([orc.read_stripe(stripe)])
            case _:
                yield from _avro_tables(fastavro.reader(opened), f"{store.uri}/{file.key}")


def _orc(opened: pa.NativeFile) -> Any:
    from pyarrow import orc  # not in every build of Arrow

    return orc.ORCFile(opened)


def _avro_schema(reader: Any, where: str) -> pa.Schema:
    return arrow_schema(reader.writer_schema, where=where)


def _avro_tables(reader: Any, where: str) -> Iterator[pa.Table]:
    schema, rows = _avro_schema(reader, where), []
    for row in reader:
        rows.append(row)
        if len(rows) == _BATCH_ROWS:
            yield pa.Table.from_pylist(rows, schema)
            rows = []
    yield pa.Table.from_pylist(rows, schema)


def _chunks(store: ObjectStore, file: ObjectMeta) -> Iterator[bytes]:
    with open_input(store, file.key, file.size_bytes) as opened:
        stream: Any = gzip.GzipFile(fileobj=opened) if file.key.endswith(".gz") else opened
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def _line_batch(lines: list[bytes]) -> pa.RecordBatch:
    values = [_bare(line) for line in lines if line.strip()]
    return pa.record_batch([pa.array(values, pa.binary())], schema=LINES)


def _bare(line: bytes) -> bytes:
    return line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r")


def _text(line: bytes) -> str:
    return _bare(line).decode("utf-8", errors="replace")


def _malformed(schema: pa.Schema, record: str, reason: str) -> pa.RecordBatch:
    columns = {field.name: pa.nulls(1, field.type) for field in schema}
    columns |= {MALFORMED: pa.array([record]), REASON: pa.array([reason])}
    return pa.RecordBatch.from_pydict(columns)


def _check(store: ObjectStore, file: ObjectMeta) -> None:
    """Reject a file that changed since it was listed, or while it was read."""
    found = store.head(file.key)
    if found is None:
        raise NotFound(
            f"{store.uri}/{file.key} was deleted after it was listed",
            hint="do not delete source files before they are read",
        )
    if (found.version, found.size_bytes) != (file.version, file.size_bytes):
        raise DataCorrupt(
            f"{store.uri}/{file.key} changed while it was read",
            hint="write files to another folder and move them to the source when complete",
        )


def _check_header(found: bytes, header: str, where: str) -> None:
    if _text(found) != header:
        raise InvalidInput(
            f"{where}: expected the header {header[:80]!r}, got {_text(found)[:80]!r}",
            hint="use a separate folder for files with other columns",
        )
