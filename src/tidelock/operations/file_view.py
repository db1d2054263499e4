"""The file slices of a table at a ledger position: listed once, then updated from commits.

This saves a writer a listing of the table for every commit. Commits that cannot be applied (of a
table service, a restore or an external writer) cause a new listing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.core.errors import Conflict, DataCorrupt
from tidelock.hudi.file_groups import BaseFile, FileSlice, GroupId, LogFile, data_file
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    OperationType,
    ReplaceCommitMetadata,
    WriteStat,
    decode,
)
from tidelock.operations.read import check_published
from tidelock.storage.contract import ObjectStore
from tidelock.txn.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from tidelock.txn.entries import (
    Boundary,
    Claim,
    Commit,
    ImportPlan,
    InlineContent,
    LedgerEntry,
    Plan,
    PlanRollback,
    PriorityTicket,
    ReleaseSavepoint,
    Rollback,
)
from tidelock.txn.footprint import CommitKind, schema_id_of
from tidelock.txn.state import LedgerState

_FOLLOWED: Final = frozenset(
    {
        CommitKind.UPSERT,
        CommitKind.DELETE,
        CommitKind.INSERT,
        CommitKind.BULK_INSERT,
        CommitKind.READ_WRITE,
        CommitKind.OVERWRITE,
        CommitKind.OVERWRITE_TABLE,
        CommitKind.DELETE_PARTITION,
    }
)
"""Commits that only add slices, add log files to slices, or replace file groups."""

_WITHOUT_FILES: Final = frozenset({CommitKind.CLEAN, CommitKind.ROLLBACK, CommitKind.SAVEPOINT})
"""Commits that do not change the current file slices."""

_FACTS_WITHOUT_FILES: Final = (
    ImportPlan,
    Claim,
    PriorityTicket,
    Boundary,
    Rollback,
    Plan,
    ReleaseSavepoint,
)
"""Ledger facts other than commits that do not change them."""

_LOADS_MAX: Final = 8
"""Attempts to list a table whose timeline is archived concurrently."""

_UNREAD_MAX: Final = 1_024
"""Commits to hold unread before they are applied, to bound memory."""

_SIZE_COMMITS_MAX: Final = 30
"""Commits to read for the row size. Hudi keeps about as many on the active timeline."""


@dataclass(slots=True)
class RowSizes:
    """The row size in base files, from the newest commit that wrote enough."""

    size_bytes: int = 0
    rows: int = 0

    def update(self, stats: Iterable[WriteStat], least_bytes: float) -> bool:
        """Use the sizes of a commit if it wrote more than `least_bytes`; return whether it did."""
        bases = [stat for stat in stats if (stat.path or "").endswith(".parquet")]
        size_bytes = sum(stat.total_write_bytes or 0 for stat in bases)
        rows = sum(stat.num_writes or 0 for stat in bases)
        if not rows or size_bytes <= least_bytes:
            return False
        self.size_bytes, self.rows = size_bytes, rows
        return True

    def record_bytes(self, default: int) -> int:
        """Return the bytes per row."""
        return max(1, self.size_bytes // self.rows) if self.rows else default


@dataclass(slots=True)
class TableView:
    """The state of a table that a writer needs, at the ledger state `state`.

    Commits of others are applied lazily: a write that only adds rows does not need their files.
    `used_partitions` are partitions that are known to have files.

    Guarantees: a view stays at its state; `follow` returns a new one, so that threads can continue
    from different views. Data that views share is never changed in place.
    """

    state: LedgerState
    store: ObjectStore
    slices: dict[str, dict[str, FileSlice]] = field(default_factory=dict)
    replaced: frozenset[GroupId] = frozenset()
    schema_json: str = ""
    schema_at: str = ""
    sizes: RowSizes = field(default_factory=RowSizes)
    least_bytes: float = 0.0
    has_writes: bool = False
    schema_id: str = ""
    unread: list[Commit] = field(default_factory=list)
    used_partitions: frozenset[str] = frozenset()
    snapshot: TableSnapshot | None = None
    _schema_changed: bool = False
    """Whether an unread commit has another schema."""

    _base_of_log: dict[str, str] = field(default_factory=dict)
    """By log file key, the base file that has all keys of the log file; "" if unknown."""

    _deletes: set[str] = field(default_factory=set)
    """The keys of log files that may delete rows."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def busy(self) -> frozenset[GroupId]:
        """File groups in pending plans of table services."""
        plans = self.state.plans.values()
        return frozenset(group for plan in plans for group in plan.targets)

    def file_slices(self, partitions: Iterable[str] | None = None) -> dict[GroupId, FileSlice]:
        """Return the file slices of some or all partitions, by file group."""
        self.catch_up()
        slices = self.slices
        chosen = slices if partitions is None else set(partitions)
        return {
            (partition, file_id): piece
            for partition in sorted(chosen)
            for file_id, piece in sorted(slices.get(partition, {}).items())
        }

    def searched(self, pieces: Iterable[FileSlice]) -> tuple[FileSlice, ...]:
        """Return the slices with only those log files that may have keys the base file lacks.

        New keys go to base files, so a log file has only keys of the base file that its writer
        saw. A compaction drops deleted keys, and such a key may be in a log file that was written
        concurrently; then only the log file has it. Raises: `DataCorrupt`.
        """
        chosen = tuple(pieces)
        self._load_log_bases(log for piece in chosen if piece.base for log in piece.logs)
        return tuple(self._with_new_keys(piece) if piece.logs else piece for piece in chosen)

    def _with_new_keys(self, piece: FileSlice) -> FileSlice:
        if piece.base is None:
            return piece
        base, known = piece.base.name, self._base_of_log
        return replace(piece, logs=tuple(log for log in piece.logs if known[log.key] != base))

    def deleting(self, pieces: Iterable[FileSlice]) -> frozenset[GroupId]:
        """Return the groups whose log files may delete keys of their base file.

        Raises: `DataCorrupt`.
        """
        chosen = [piece for piece in pieces if piece.base and piece.logs]
        self._load_log_bases(log for piece in chosen for log in piece.logs)
        return frozenset(
            (piece.partition, piece.file_id)
            for piece in chosen
            if any(log.key in self._deletes for log in piece.logs)
        )

    def _load_log_bases(self, logs: Iterable[LogFile]) -> None:
        """Read from the commits of log files which base files their writers saw."""
        logs = [log for log in logs if log.key not in self._base_of_log]
        if logs and self.snapshot is not None:
            for _, metadata in self.snapshot.commits_of({log.instant for log in logs}):
                self._record_logs(metadata)
        for log in logs:
            if log.key not in self._base_of_log:
                self._base_of_log[log.key] = ""
                self._deletes.add(log.key)

    def _record_logs(self, metadata: CommitMetadata) -> None:
        merges = metadata.operation_type == OperationType.LOG_COMPACT
        for stats in metadata.partition_to_write_stats.values():
            for stat in stats:
                if not stat.path or stat.path.endswith(".parquet"):
                    continue
                new = merges or stat.num_inserts
                self._base_of_log[stat.path] = "" if new else stat.base_file or ""
                if merges or stat.num_deletes:
                    self._deletes.add(stat.path)

    def follow(self, entries: Iterable[LedgerEntry], state: LedgerState) -> TableView | None:
        """Return the view at `state` after `entries`; None if they cannot be applied."""
        with self._lock:
            known, schema_changed = replace(self, sizes=replace(self.sizes)), self._schema_changed
        unread, used_partitions, large = [*known.unread], set(known.used_partitions), False
        for entry in entries:
            match entry.fact:
                case Commit() as commit if commit.footprint.commit_kind in _FOLLOWED:
                    unread.append(commit)
                    used_partitions.update(partition for partition, _ in commit.footprint.created)
                    schema_changed |= commit.schema_id not in ("", known.schema_id)
                    large |= not isinstance(commit.content, InlineContent)
                case Commit() as commit if commit.footprint.commit_kind in _WITHOUT_FILES:
                    pass
                case PlanRollback(complete=False):
                    pass
                case fact if not isinstance(fact, _FACTS_WITHOUT_FILES):
                    return None
        found = replace(
            known,
            state=state,
            has_writes=known.has_writes or bool(unread),
            unread=unread,
            used_partitions=frozenset(used_partitions),
            _schema_changed=schema_changed,
            _lock=threading.Lock(),
        )
        # Stored contents are deleted once their instants are archived (C96), so they are read
        # now.
        try:
            if large or len(unread) > _UNREAD_MAX:
                found.catch_up()
        except DataCorrupt:
            return None
        return found

    def catch_up(self) -> None:
        """Apply the unread commits."""
        with self._lock:
            if not self.unread:
                return
            slices = dict(self.slices)
            own: set[str] = set()
            for commit in self.unread:
                self._apply(commit.instant, _metadata(commit, self.store), slices, own)
                self.schema_id = commit.schema_id or self.schema_id
            self.slices = slices
            self.unread, self._schema_changed = [], False

    def known_schema(self) -> str:
        """Return the table's current schema as Avro JSON."""
        if self._schema_changed:
            self.catch_up()
        return self.schema_json

    def _apply(
        self,
        instant: str,
        metadata: CommitMetadata,
        slices: dict[str, dict[str, FileSlice]],
        own: set[str],
    ) -> None:
        """Apply one commit. `own` are the partitions of `slices` that no other view shares."""

        def groups_of(partition: str) -> dict[str, FileSlice]:
            if partition not in own:
                own.add(partition)
                slices[partition] = dict(slices.get(partition, {}))
            return slices[partition]

        replaced = frozenset(replaced_groups(metadata))
        if replaced:
            self.replaced |= replaced
        for partition, file_id in replaced:
            if partition in slices:
                groups_of(partition).pop(file_id, None)
        every: list[WriteStat] = []
        self._record_logs(metadata)
        for partition, stats in metadata.partition_to_write_stats.items():
            every += stats
            groups = groups_of(partition)
            for file in _files(partition, stats):
                groups[file.file_id] = _add_file(groups.get(file.file_id), file)
        if metadata.schema_json and instant >= self.schema_at:
            self.schema_json, self.schema_at = metadata.schema_json, instant
        self.sizes.update(every, self.least_bytes)


def load_view(
    store: ObjectStore, properties: TableProperties, state: LedgerState, *, least_bytes: float
) -> TableView:
    """List the table at a ledger state. Raises: `DataCorrupt`, `Unsupported`."""
    for _ in range(_LOADS_MAX):
        try:
            return _load(store, properties, state, least_bytes)
        except Conflict:
            # An instant was archived after the timeline was listed.
            continue
    return _load(store, properties, state, least_bytes)


def _load(
    store: ObjectStore, properties: TableProperties, state: LedgerState, least_bytes: float
) -> TableView:
    aborted = frozenset(state.aborted)
    timeline = load_timeline(store, properties.timeline_folder)
    history = properties.history_folder
    timeline = check_published(store, state, timeline, history=history).without_completed(aborted)
    snapshot = TableSnapshot(
        store, properties, timeline, aborted, _archived(store), forgotten=state.forgotten
    )
    view = TableView(state, store, least_bytes=least_bytes, snapshot=snapshot)
    for piece in snapshot.verified_slices_until(state.time):
        view.slices.setdefault(piece.partition, {})[piece.file_id] = piece
    view.used_partitions = frozenset(view.slices)
    view.replaced = frozenset(snapshot.replaced)
    done = [instant for instant in timeline.writes() if instant.completion <= state.time]
    view.has_writes = bool(done)
    view.schema_json = properties.create_schema
    for number, instant in enumerate(reversed(done)):
        if view.schema_at and (view.sizes.rows or number >= _SIZE_COMMITS_MAX):
            break
        metadata = snapshot.commit(instant)
        if metadata.schema_json and not view.schema_at:
            view.schema_json, view.schema_at = metadata.schema_json, instant.requested
        if not view.sizes.rows:
            every = metadata.partition_to_write_stats.values()
            view.sizes.update((stat for stats in every for stat in stats), least_bytes)
    view.schema_id = schema_id_of(view.schema_json)
    return view


def _archived(store: ObjectStore) -> str:
    """Return the archive boundary of the current checkpoint.

    Must be read after the timeline: the archive moves the boundary before it deletes instants.
    """
    found = store.get(CHECKPOINT_KEY)
    if found is None:
        return ""
    return decode_checkpoint(found.body, where=f"{store.uri}/{CHECKPOINT_KEY}").state.archived


def replaced_groups(metadata: CommitMetadata) -> Iterator[GroupId]:
    """Yield the file groups that a commit replaced."""
    if isinstance(metadata, ReplaceCommitMetadata):
        for partition, file_ids in metadata.partition_to_replace_file_ids.items():
            yield from ((partition, file_id) for file_id in file_ids)


def _metadata(commit: Commit, store: ObjectStore) -> CommitMetadata:
    kind = ReplaceCommitMetadata if commit.action is Action.REPLACE_COMMIT else CommitMetadata
    where = f"{store.uri}: the ledger commit {commit.instant}"
    if isinstance(commit.content, InlineContent):
        return decode(kind, commit.content.data, where=where)
    found = store.get(commit.content.key)
    if found is None:
        raise DataCorrupt(
            f"{store.uri}/{commit.content.key}: the content of commit {commit.instant} is missing",
            hint="restore the file from a backup",
        )
    return decode(kind, found.body, where=where)


def _files(partition: str, stats: Iterable[WriteStat]) -> Iterator[BaseFile | LogFile]:
    for stat in stats:
        name = (stat.path or "").rpartition("/")[2]
        file = data_file(partition, name, stat.file_size_in_bytes or 0)
        if isinstance(file, LogFile):
            yield replace(file, committed_bytes=file.size_bytes)
        elif file is not None:
            yield file


def _add_file(before: FileSlice | None, file: BaseFile | LogFile) -> FileSlice:
    if isinstance(file, BaseFile):
        # The writer of a base file has read the whole slice, or its commit would have conflicted.
        return FileSlice(file.partition, file.file_id, file.instant, file)
    if before is None:
        return FileSlice(file.partition, file.file_id, file.instant, None, (file,))
    logs = (*before.logs, file)
    return replace(before, logs=tuple(sorted(logs, key=lambda log: log.order)))
