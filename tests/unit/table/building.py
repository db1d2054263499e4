"""A table in memory, made file by file: the bytes of a real one, without rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelock.base.javaproperties import render_properties
from tidelock.store.contract import Overwrite
from tidelock.store.memory import MemoryStore
from tidelock.table.naming import WriteToken, base_name, log_name
from tidelock.table.properties import TableType, new_properties
from tidelock.table.properties_file import KEY
from tidelock.table.snapshot import TableSnapshot, open_table
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    ReplaceCommitMetadata,
    WriteStat,
)

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
        """Write an object, whatever was there."""
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
        """Write data files and the completed instant that names them."""
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
        instant = Instant(time(at), kind, State.COMPLETED, time(done))
        return self.instant(instant, encode(metadata))

    def pending(
        self, at: int, files: Sequence[str] = (), *, action: Action = Action.DELTA_COMMIT
    ) -> Instant:
        """Write data files of a write that has not completed."""
        for key in files:
            self.put(key)
        requested = Instant(time(at), action, State.REQUESTED)
        self.instant(requested)
        return self.instant(requested.started())

    def plan_compaction(self, at: int, groups: Sequence[tuple[str, str]]) -> Instant:
        """Write the plan of a compaction of these file groups (partition, file id)."""
        operations = tuple(
            CompactionOperation(None, group, partition_path=partition)
            for partition, group in groups
        )
        requested = Instant(time(at), Action.COMPACTION, State.REQUESTED)
        return self.instant(requested, encode(CompactionPlan(operations)))

    def forget(self, instant: Instant) -> None:
        """Remove a state file from the timeline."""
        self.store.delete(f"{TIMELINE_FOLDER}/{instant.file_name}")

    def open(self) -> TableSnapshot:
        """Open the table as it is."""
        return open_table(self.store)
