"""A folder of files, on a disk or in a bucket; every file is read once, in order of change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import types as st

from tidelock.base.errors import InvalidInput, NotFound
from tidelock.engine.spark.schema import spark_schema
from tidelock.pipeline.localframes import local_frame
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.decoding import CsvDecoder, Decoder, JsonDecoder, Schemas
from tidelock.pipeline.streamer.sources.contract import MALFORMED, REASON, Batch
from tidelock.pipeline.streamer.sources.formats import (
    LINES,
    FileReading,
    Format,
    first_line,
    schema_of,
)
from tidelock.pipeline.streamer.sources.selecting import file_place, is_data, selected
from tidelock.pipeline.streamer.sources.spilling import Spill
from tidelock.store.address import StoreAddress
from tidelock.store.contract import ObjectMeta
from tidelock.store.uri import canonical
from tidelock.table.schema.evolution import evolved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BYTES_MAX: Final = 2**62
_LEAST_BYTES: Final = 1024 * 1024
_DRIVER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Files that are smaller together are read in the driver: a job costs more than reading them."""

_SUFFIXES: Final = {
    Format.JSON: (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".txt"),
    Format.CSV: (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"),
    Format.PARQUET: (".parquet",),
    Format.AVRO: (".avro",),
    Format.ORC: (".orc",),
}


@dataclass
class FileSource:
    """The files of one format below a folder, whatever the depth."""

    spark: SparkSession
    settings: Mapping[str, object]
    format: Format
    schemas: Schemas
    spill: Spill

    @cached_property
    def root(self) -> str:
        """The folder."""
        return canonical(c.DFS_ROOT.required(self.settings))

    @property
    def name(self) -> str:
        """The folder and what is in it."""
        return f"{self.format}:{self.root}"

    @property
    def limit(self) -> int:
        """Bytes of one batch."""
        return _BYTES_MAX

    @cached_property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.root, dict(self.settings))

    @property
    def least(self) -> int:
        """Bytes of a batch at least."""
        return _LEAST_BYTES

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the oldest files that were not read yet."""
        before = file_place(None if since is None else self.spill.whole(since))
        lookback_ms = c.LOOKBACK_MS.required(self.settings)
        files = selected(self._listed(), before, bytes_max=limit, lookback_ms=lookback_ms)
        if not files:
            return None
        size = sum(file.size_bytes for file in files)
        end = self.spill.kept(before.after(files, lookback_ms).text())
        newest = max(file.modified_epoch_ms for file in files)
        return Batch(self._frame(files), end, size, size, newest)

    def hudi_place(self, at: str) -> str | None:
        """Hudi knows the time of the newest file."""
        return str(file_place(self.spill.whole(at)).time_epoch_ms)

    def done_with(self, at: str) -> None:
        """Remove lists of files that no checkpoint names any more."""
        self.spill.sweep(at)

    def close(self) -> None:
        """The store is shared by the process."""

    def _listed(self) -> list[ObjectMeta]:
        store = self._address.open()
        wanted = _SUFFIXES[self.format]
        files = [file for file in store.list("") if is_data(file)]
        named = [file for file in files if is_data(file, wanted)]
        if not files:
            self._check_root()
        # Files without any ending are taken for what the source says, as Spark writes some.
        return named + [file for file in files if "." not in file.key.rpartition("/")[2]]

    def _check_root(self) -> None:
        """Tell an empty folder from one that is not there; buckets know no folders."""
        scheme, _, path = self.root.partition("://")
        if scheme == "file" and not Path(path).is_dir():
            raise NotFound(
                f"the folder {self.root} is gone, or was never there",
                hint=f"create it, or correct {c.DFS_ROOT.key}",
            )

    def _frame(self, files: Sequence[ObjectMeta]) -> DataFrame:
        if self.format is Format.JSON:
            return self._lines(files, None, JsonDecoder(self.schemas))
        if self.format is Format.CSV:
            options = c.by_prefix(self.settings, c.CSV_OPTIONS)
            header = self._header(files, options)
            names = None if header is None else split_header(header, options)
            return self._lines(files, header, CsvDecoder(self.schemas, options, names))
        schema = self.schemas.provided() or self._common(files)
        reading = FileReading(self._address, self._tasks(files), self.format, schema)
        told = [st.StructField(name, st.StringType()) for name in (MALFORMED, REASON)]
        return self._read(reading, st.StructType([*spark_schema(schema).fields, *told]))

    def _lines(
        self, files: Sequence[ObjectMeta], header: str | None, decoder: Decoder
    ) -> DataFrame:
        reading = FileReading(self._address, self._tasks(files), self.format, LINES, header)
        return decoder.rows(self._read(reading, spark_schema(LINES)))

    def _header(self, files: Sequence[ObjectMeta], options: Mapping[str, str]) -> str | None:
        if options.get("header", "false").lower() != "true":
            return None
        return first_line(self._address.open(), files[0])

    def _common(self, files: Sequence[ObjectMeta]) -> pa.Schema:
        """Return the columns that these files have together. Raises: `InvalidInput`."""
        store, found = self._address.open(), pa.schema([])
        for file in files:
            schema = schema_of(self.format, store, file)
            try:
                found = found if schema is None else evolved(found, schema)
            except InvalidInput as error:
                raise InvalidInput(
                    f"{store.uri}/{file.key} and the files before it do not fit together:"
                    f" {error.message}",
                    hint="give a schema with --schemaprovider-class FilebasedSchemaProvider",
                ) from error
        return found

    def _tasks(self, files: Sequence[ObjectMeta]) -> tuple[tuple[ObjectMeta, ...], ...]:
        return packed(files, self.spark.sparkContext.defaultParallelism)

    def _read(self, reading: FileReading, schema: st.StructType) -> DataFrame:
        count = len(reading.tasks)
        if sum(file.size_bytes for task in reading.tasks for file in task) <= _DRIVER_BYTES_MAX:
            batches = [batch for task in range(count) for batch in reading.rows(task)]
            return local_frame(self.spark, pa.Table.from_batches(batches), schema)
        return self.spark.range(0, count, 1, count).mapInArrow(_reader(reading), schema)


def packed(files: Sequence[ObjectMeta], tasks: int) -> tuple[tuple[ObjectMeta, ...], ...]:
    """Return the files in tasks of like size; the same files give the same tasks."""
    bins: list[list[ObjectMeta]] = [[] for _ in range(min(max(tasks, 1), len(files)))]
    filled = [0] * len(bins)
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.key)):
        least = filled.index(min(filled))
        bins[least].append(file)
        filled[least] += file.size_bytes + 1
    return tuple(tuple(each) for each in bins)


def split_header(header: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in a header line."""
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    return tuple(name.strip().strip('"') for name in header.split(separator))


def _reader(
    reading: FileReading,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield from (rows for rows in reading.rows(task) if rows.num_rows)

    return rows
