"""File source: a folder on a disk or in a bucket. Each file is read once, by modification time."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import types as st

from tidelock.core.errors import ConfigInvalid, InvalidInput, NotFound
from tidelock.execution.spark.types import spark_schema
from tidelock.hudi.schema import evolve
from tidelock.spark.frames import local_frame
from tidelock.storage.contract import ObjectMeta
from tidelock.storage.uri import StoreAddress, canonical
from tidelock.streamer import config as c
from tidelock.streamer.decode import CsvDecoder, Decoder, JsonDecoder, Schemas
from tidelock.streamer.sources.checkpoint_files import CheckpointFiles
from tidelock.streamer.sources.file_formats import LINES, FileScan, Format, first_line, schema_of
from tidelock.streamer.sources.source import MALFORMED, REASON, Batch, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_HIDDEN: Final = (".", "_")
_DIGEST_BYTES: Final = 9


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far a folder has been read.

    Files older than `floor_epoch_ms` have been read. From there up to `time_epoch_ms`, only the
    files in `seen` have been read; it maps their digests to their modification times.
    """

    time_epoch_ms: int = -1
    floor_epoch_ms: int = -1
    seen: Mapping[str, int] = field(default_factory=dict)

    def is_unread(self, file: ObjectMeta, lookback_ms: int) -> bool:
        """Return whether a file has not been read yet."""
        if file.modified_epoch_ms > self.time_epoch_ms:
            return True
        # Files before the floor are not recorded, so a longer lookback does not read them again.
        near_epoch_ms = max(self.time_epoch_ms - lookback_ms, self.floor_epoch_ms)
        return file.modified_epoch_ms >= near_epoch_ms and digest(file.key) not in self.seen

    def after(self, read: Iterable[ObjectMeta], lookback_ms: int) -> FilePosition:
        """Return the position after these files have been read as well."""
        seen = dict(self.seen)
        seen.update((digest(file.key), file.modified_epoch_ms) for file in read)
        newest = max([self.time_epoch_ms, *seen.values()])
        floor = max(self.floor_epoch_ms, newest - lookback_ms)
        near = {name: time for name, time in seen.items() if time >= floor}
        return FilePosition(newest, floor, near)

    def text(self) -> str:
        """Return the checkpoint text; times are stored relative to the newest."""
        newest = self.time_epoch_ms
        fields = {
            "time": newest,
            "floor": self.floor_epoch_ms,
            "seen": {name: newest - time for name, time in sorted(self.seen.items())},
        }
        return json.dumps(fields, separators=(",", ":"))


def parse_file_position(text: str | None) -> FilePosition:
    """Return the position of a checkpoint: Tidelock's format, or the plain time of Hudi's.

    Raises: `ConfigInvalid`.
    """
    if text is None:
        return FilePosition()
    try:
        if text.isdigit():
            # Hudi's streamer has read the files of that time, and does not record their names.
            return FilePosition(int(text) + 1, int(text) + 1)
        fields = json.loads(text)
        newest = int(fields["time"])
        seen = {str(name): newest - int(behind) for name, behind in fields["seen"].items()}
        return FilePosition(newest, int(fields["floor"]), seen)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigInvalid(
            f"checkpoint: expected a position in a folder, got {text[:80]!r}",
            hint="use a time in milliseconds",
        ) from error


def digest(key: str) -> str:
    """Return a short digest of a file's key."""
    hashed = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES)
    return urlsafe_b64encode(hashed.digest()).decode().rstrip("=")


def is_data(file: ObjectMeta, suffixes: Sequence[str] = ()) -> bool:
    """Return whether a file may have records: it is not empty and not hidden."""
    hidden = any(part.startswith(_HIDDEN) for part in file.key.split("/"))
    matches = not suffixes or file.key.lower().endswith(tuple(suffixes))
    return file.size_bytes > 0 and not hidden and matches


def next_files(
    files: Iterable[ObjectMeta], since: FilePosition, *, bytes_max: int, lookback_ms: int = 0
) -> tuple[ObjectMeta, ...]:
    """Return the files of the next batch: oldest first, up to a size, at least one."""
    unread = sorted(
        (file for file in files if since.is_unread(file, lookback_ms)),
        key=lambda file: (file.modified_epoch_ms, file.key),
    )
    chosen: list[ObjectMeta] = []
    size = 0
    for file in unread:
        if chosen and size + file.size_bytes > bytes_max:
            break
        chosen.append(file)
        size += file.size_bytes
    return tuple(chosen)


_BYTES_MAX: Final = 2**62
_BYTES_MIN: Final = 1024 * 1024
_DRIVER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Batches up to this size are read in the driver: a Spark job would cost more than the read."""

_SUFFIXES: Final = {
    Format.JSON: (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".txt"),
    Format.CSV: (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"),
    Format.PARQUET: (".parquet",),
    Format.AVRO: (".avro",),
    Format.ORC: (".orc",),
}


@dataclass
class FileSource(Source):
    """Reads the files of one format in a folder, recursively."""

    spark: SparkSession
    settings: Mapping[str, object]
    format: Format
    schemas: Schemas
    checkpoint_files: CheckpointFiles
    limit = _BYTES_MAX
    limit_min = _BYTES_MIN

    @cached_property
    def root(self) -> str:
        return canonical(c.DFS_ROOT.required(self.settings))

    @property
    def name(self) -> str:
        return f"{self.format}:{self.root}"

    @cached_property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.root, dict(self.settings))

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the oldest files that have not been read."""
        before = parse_file_position(None if since is None else self.checkpoint_files.load(since))
        lookback_ms = c.LOOKBACK_MS.required(self.settings)
        files = next_files(self._listed(), before, bytes_max=limit, lookback_ms=lookback_ms)
        if not files:
            return None
        size = sum(file.size_bytes for file in files)
        end = self.checkpoint_files.store_if_long(before.after(files, lookback_ms).text())
        newest = max(file.modified_epoch_ms for file in files)
        return Batch(self._frame(files), end, size, size, newest)

    def hudi_checkpoint(self, position: str) -> str | None:
        return str(parse_file_position(self.checkpoint_files.load(position)).time_epoch_ms)

    def on_committed(self, position: str) -> None:
        self.checkpoint_files.delete_superseded(position)

    def _listed(self) -> list[ObjectMeta]:
        store = self._address.open()
        suffixes = _SUFFIXES[self.format]
        files = [file for file in store.list("") if is_data(file)]
        named = [file for file in files if is_data(file, suffixes)]
        if not files:
            self._check_root()
        # Files without an extension are assumed to have the source's format, as Spark writes some.
        return named + [file for file in files if "." not in file.key.rpartition("/")[2]]

    def _check_root(self) -> None:
        """Reject a missing local folder. Object stores have no folders to check."""
        scheme, _, path = self.root.partition("://")
        if scheme == "file" and not Path(path).is_dir():
            raise NotFound(
                f"folder {self.root} not found", hint=f"create it, or correct {c.DFS_ROOT.key}"
            )

    def _frame(self, files: Sequence[ObjectMeta]) -> DataFrame:
        if self.format is Format.JSON:
            return self._lines(files, None, JsonDecoder(self.schemas))
        if self.format is Format.CSV:
            options = c.by_prefix(self.settings, c.CSV_OPTIONS)
            named = options.get("header", "false").lower() == "true"
            header = first_line(self._address.open(), files[0]) if named else None
            names = None if header is None else split_header(header, options)
            return self._lines(files, header, CsvDecoder(self.schemas, options, names))
        schema = self.schemas.provided() or self._common(files)
        scan = FileScan(self._address, self._tasks(files), self.format, schema)
        extra = [st.StructField(name, st.StringType()) for name in (MALFORMED, REASON)]
        return self._read(scan, st.StructType([*spark_schema(schema).fields, *extra]))

    def _lines(
        self, files: Sequence[ObjectMeta], header: str | None, decoder: Decoder
    ) -> DataFrame:
        scan = FileScan(self._address, self._tasks(files), self.format, LINES, header)
        return decoder.rows(self._read(scan, spark_schema(LINES)))

    def _common(self, files: Sequence[ObjectMeta]) -> pa.Schema:
        """Return the merged schema of the files. Raises: `InvalidInput`."""
        store, found = self._address.open(), pa.schema([])
        for file in files:
            schema = schema_of(self.format, store, file)
            try:
                found = found if schema is None else evolve(found, schema)
            except InvalidInput as error:
                raise InvalidInput(
                    f"{store.uri}/{file.key}: the schema cannot be merged with earlier files:"
                    f" {error.message}",
                    hint="set a schema with --schemaprovider-class FilebasedSchemaProvider",
                ) from error
        return found

    def _tasks(self, files: Sequence[ObjectMeta]) -> tuple[tuple[ObjectMeta, ...], ...]:
        return balanced_tasks(files, self.spark.sparkContext.defaultParallelism)

    def _read(self, scan: FileScan, schema: st.StructType) -> DataFrame:
        count = len(scan.tasks)
        if sum(file.size_bytes for task in scan.tasks for file in task) <= _DRIVER_BYTES_MAX:
            batches = [batch for task in range(count) for batch in scan.rows(task)]
            return local_frame(self.spark, pa.Table.from_batches(batches), schema)
        return self.spark.range(0, count, 1, count).mapInArrow(_reader(scan), schema)


def balanced_tasks(files: Sequence[ObjectMeta], tasks: int) -> tuple[tuple[ObjectMeta, ...], ...]:
    """Return the files in tasks of similar size; the same files give the same tasks."""
    bins: list[list[ObjectMeta]] = [[] for _ in range(min(max(tasks, 1), len(files)))]
    filled = [0] * len(bins)
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.key)):
        smallest = filled.index(min(filled))
        bins[smallest].append(file)
        filled[smallest] += file.size_bytes + 1
    return tuple(tuple(each) for each in bins)


def split_header(header: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the column names of a header line."""
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    return tuple(name.strip().strip('"') for name in header.split(separator))


def _reader(scan: FileScan) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield from (rows for rows in scan.rows(task) if rows.num_rows)

    return rows
