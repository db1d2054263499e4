"""Builds a table in memory file by file: real metadata, without rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelock.core.javaproperties import render_properties
from tidelock.hudi.file_groups import WriteToken, base_name, log_name
from tidelock.hudi.log_blocks import Block, BlockType, Header, frame_records
from tidelock.hudi.properties import KEY, TableType, new_properties
from tidelock.hudi.snapshot import TableSnapshot, open_table
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    ReplaceCommitMetadata,
    WriteStat,
    encode,
)
from tidelock.storage.contract import Overwrite
from tidelock.storage.memory import MemoryStore

TOKEN = WriteToken(0, 1, 1)


def time(number: int) -> str:
    """Return a request or completion time: small numbers are easier to follow in a test."""
    return f"{20_250_101_000_000_000 + number}"


def base(group: str, at: int, partition: str = "p", token: WriteToken = TOKEN) -> str:
    """Return the key of a base file."""
    return _key(partition, base_name(group, token, time(at)))


def log(group: str, at: int, partition: str = "p", version: int = 1) -> str:
    """Return the key of a log file."""
    return _key(partition, log_name(group, time(at), TOKEN, version=version))


def _key(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def encode_records(records: Sequence[bytes]) -> bytes:
    """Encode the content of an Avro block."""
    framed = b"".join(len(record).to_bytes(4, "big") + record for record in records)
    return frame_records(len(records), framed)


def rollback_block(*, instant: str, target: str) -> Block:
    """Return the command block that rolls back earlier blocks of `target` in this slice."""
    headers = {
        int(Header.INSTANT_TIME): instant,
        int(Header.TARGET_INSTANT_TIME): target,
        int(Header.COMMAND_BLOCK_TYPE): "0",
    }
    return Block(BlockType.COMMAND, headers, b"")


class Built:
    """A table under construction."""

    def __init__(
        self, table_type: TableType = TableType.MERGE_ON_READ, *, partitioned: bool = True
    ) -> None:
        """Write the properties."""
        self.store = MemoryStore("table")
        self.properties = new_properties(
            "built",
            table_type=table_type,
            record_keys=["id"],
            partition_fields=["part"] if partitioned else [],
            hive_style=False,
        )
        self.put(KEY, render_properties(self.properties.values).encode())

    def put(self, key: str, body: bytes = b"x") -> None:
        """Write an object unconditionally."""
        self.store.put(key, body, Overwrite())

    def instant(self, instant: Instant, body: bytes = b"") -> Instant:
        """Write a state file of the timeline."""
        self.put(f"{TIMELINE_FOLDER}/{instant.file_name}", body)
        return instant

    def commit(
        self,
        at: int,
        done: int,
        files: Sequence[str] = (),
        *,
        action: Action = Action.DELTA_COMMIT,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
        schema: str = "",
        evolved_schema: str = "",
        stray: Sequence[str] = (),
    ) -> Instant:
        """Write data files and the completed instant that lists them."""
        for key in (*files, *stray):
            self.put(key)
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for key in files:
            partition, _, name = key.rpartition("/")
            group = name.removeprefix(".").partition("_")[0]
            stat = WriteStat(file_id=group, path=key, partition_path=partition)
            stats[partition] = (*stats.get(partition, ()), stat)
        extra = {"schema": schema} if schema else {}
        if evolved_schema:
            extra["latest_schema"] = evolved_schema
        metadata = (
            ReplaceCommitMetadata(
                stats, extra_metadata=extra, partition_to_replace_file_ids=replaced
            )
            if replaced is not None
            else CommitMetadata(stats, extra_metadata=extra)
        )
        kind = Action.REPLACE_COMMIT if replaced is not None else action
        instant = Instant(time(at), kind, InstantState.COMPLETED, time(done))
        return self.instant(instant, encode(metadata))

    def pending(
        self, at: int, files: Sequence[str] = (), *, action: Action = Action.DELTA_COMMIT
    ) -> Instant:
        """Write data files of a pending write."""
        for key in files:
            self.put(key)
        requested = Instant(time(at), action, InstantState.REQUESTED)
        self.instant(requested)
        return self.instant(requested.started())

    def plan_compaction(self, at: int, groups: Sequence[tuple[str, str]]) -> Instant:
        """Write a compaction plan for these file groups (partition, file id)."""
        operations = tuple(
            CompactionOperation(None, file_id=group, partition_path=partition)
            for partition, group in groups
        )
        requested = Instant(time(at), Action.COMPACTION, InstantState.REQUESTED)
        return self.instant(requested, encode(CompactionPlan(operations)))

    def forget(self, instant: Instant) -> None:
        """Remove a state file from the timeline."""
        self.store.delete(f"{TIMELINE_FOLDER}/{instant.file_name}")

    def open(self) -> TableSnapshot:
        """Open the table."""
        return open_table(self.store)
