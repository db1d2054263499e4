"""A small valid table, built file by file in a folder, for tests that damage it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.unit.execution.filegroup.slices import parquet
from tests.unit.hudi.table_builder import Built, base, log, time
from tests.unit.operations.small_tables import schema_json
from tidelock.hudi.log_blocks import avro_block, log_bytes
from tidelock.hudi.partitions import encode as encode_partition
from tidelock.hudi.partitions import metadata_for, metadata_key
from tidelock.hudi.schema import avro_schema, with_meta
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import CommitMetadata, OperationType, WriteStat, encode
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_findings import Validation
from tidelock.storage.uri import open_store

COLUMNS = pa.schema([("id", pa.string()), ("name", pa.string()), ("part", pa.string())])


def rows(at: int, keys: str, *, file: str, part: str = "p", **wrong: str) -> pa.Table:
    """Return rows with one-letter keys; `wrong` gives meta columns other values."""
    found = [
        {
            "_hoodie_commit_time": time(at),
            "_hoodie_commit_seqno": f"{time(at)}_0_{number}",
            "_hoodie_record_key": key,
            "_hoodie_partition_path": part,
            "_hoodie_file_name": file,
            "id": key,
            "name": f"{key} at {at}",
            "part": part,
            **wrong,
        }
        for number, key in enumerate(keys)
    ]
    return pa.Table.from_pylist(found, schema=with_meta(COLUMNS))


class ValidTable(Built):
    """A valid merge-on-read table."""

    def write(
        self,
        at: int,
        done: int,
        files: dict[str, bytes],
        operation: OperationType = OperationType.UPSERT,
        action: Action = Action.DELTA_COMMIT,
    ) -> Instant:
        """Write data files, and the three timeline states of the write that lists them."""
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for key, body in files.items():
            self.put(key, body)
            partition, _, name = key.rpartition("/")
            group = name.removeprefix(".").partition("_")[0]
            stat = WriteStat(
                file_id=group, path=key, partition_path=partition, file_size_in_bytes=len(body)
            )
            stats[partition] = (*stats.get(partition, ()), stat)
            mark = encode_partition(metadata_for(partition, time(at)))
            self.put(metadata_key(partition), mark)
        requested = Instant(time(at), action, InstantState.REQUESTED)
        self.instant(requested)
        self.instant(requested.started())
        metadata = CommitMetadata(
            stats, extra_metadata={"schema": schema_json(COLUMNS)}, operation_type=operation
        )
        return self.instant(requested.done(time(done)), encode(metadata))

    def insert(self, at: int, done: int, keys: str, *, group: str = "g-0", part: str = "p") -> str:
        """Write a base file; return its key."""
        key = base(group, at, part)
        table = rows(at, keys, file=key.rpartition("/")[2], part=part)
        self.write(at, done, {key: parquet(table)}, OperationType.INSERT)
        return key

    def upsert(self, at: int, done: int, keys: str, *, group: str = "g-0", part: str = "p") -> str:
        """Write a log file; return its key."""
        key = log(group, at, part)
        self.write(at, done, {key: changed(rows(at, keys, file=group, part=part), at)})
        return key

    def body(self, key: str) -> bytes:
        """Return the bytes of an object."""
        stored = self.store.get(key)
        assert stored is not None
        return stored.body

    def remove(self, *keys: str) -> None:
        """Delete objects."""
        for key in keys:
            self.store.delete(key)

    def copy_to(self, folder: Path) -> Path:
        """Write the table into a folder."""
        for meta in self.store.list(""):
            path = folder / meta.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.body(meta.key))
        return folder


def changed(table: pa.Table, at: int) -> bytes:
    """Return the bytes of a log file with one block of rows."""
    avro = avro_schema(with_meta(COLUMNS), table="built")
    return log_bytes([avro_block(table, instant=time(at), schema=avro)])


def valid_table() -> ValidTable:
    """Return a table with two partitions, an insert in each, and an update."""
    table = ValidTable()
    table.insert(1, 2, "abc")
    table.insert(3, 4, "de", group="h-0", part="q")
    table.upsert(5, 6, "b")
    return table


def timeline_key(at: int, rest: str) -> str:
    """Return the key of a timeline file, such as `.deltacommit.requested`."""
    return f"{TIMELINE_FOLDER}/{time(at)}{rest}"


def completed(at: int, done: int, action: str = "deltacommit") -> str:
    """Return the key of a completed instant."""
    return timeline_key(at, f"_{time(done)}.{action}")


def found(folder: Path) -> Validation:
    """Validate the table in a folder."""
    store = open_store(str(folder))
    try:
        return validate(store)
    finally:
        store.close()
