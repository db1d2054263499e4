"""A small table without a fault, made file by file in a folder, for tests that damage it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.unit.kernel.slices import parquet
from tests.unit.operation.filled import schema_json
from tests.unit.table.building import Built, base, log, time
from tidelock.ops.validate.findings import Validation
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store
from tidelock.table.logfile.writer import avro_block, log_bytes
from tidelock.table.partition import encode as encode_partition
from tidelock.table.partition import metadata_for, metadata_key
from tidelock.table.schema.avro import avro_schema
from tidelock.table.schema.meta import with_meta
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import CommitMetadata, OperationType, WriteStat

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


class Sound(Built):
    """A merge-on-read table: every file says what it should."""

    def write(
        self,
        at: int,
        done: int,
        files: dict[str, bytes],
        operation: OperationType = OperationType.UPSERT,
        action: Action = Action.DELTA_COMMIT,
    ) -> Instant:
        """Write data files, and the three states of the write that names them."""
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
        requested = Instant(time(at), action, State.REQUESTED)
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


def sound_table() -> Sound:
    """Return a table of two partitions with an insert in each, and an update."""
    table = Sound()
    table.insert(1, 2, "abc")
    table.insert(3, 4, "de", group="h-0", part="q")
    table.upsert(5, 6, "b")
    return table


def timeline_key(at: int, rest: str) -> str:
    """Return the key of a file of the timeline, such as `.deltacommit.requested`."""
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
