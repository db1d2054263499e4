"""The file slices of a table at a place of its ledger: listed once, then moved on by commits.

A writer that commits often would otherwise list the table for every commit. What it cannot follow
(a table service, a restore, somebody who knows no ledger) makes it list again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.base.errors import Conflict, DataCorrupt
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile
from tidelock.table.filegroup.view import GroupId
from tidelock.table.naming import data_file
from tidelock.table.properties import TableProperties
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import (
    CommitMetadata,
    OperationType,
    ReplaceCommitMetadata,
    WriteStat,
)
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.checkpoint import decode as decode_checkpoint
from tidelock.txn.content import Inline
from tidelock.txn.draft import schema_id_of
from tidelock.txn.entry import (
    Adopt,
    Boundary,
    Claim,
    Commit,
    Entry,
    Plan,
    Release,
    Rollback,
    Turn,
    Undo,
)
from tidelock.txn.fold import Fold
from tidelock.txn.footprint import Deed
from tidelock.txn.published import check_published

_FOLLOWED: Final = frozenset(
    {
        Deed.UPSERT,
        Deed.DELETE,
        Deed.INSERT,
        Deed.BULK_INSERT,
        Deed.READ_WRITE,
        Deed.OVERWRITE,
        Deed.OVERWRITE_TABLE,
        Deed.DELETE_PARTITION,
    }
)
"""Commits that only add slices, add logs to slices, and take groups away."""

_UNSEEN: Final = frozenset({Deed.CLEAN, Deed.ROLLBACK, Deed.SAVEPOINT})
"""Commits that change nothing of what is there now."""

_LOADS_MAX: Final = 8
"""How often a table is listed again because its timeline was archived meanwhile."""


_UNREAD_MAX: Final = 1_024
"""So many commits are kept for a time when somebody asks; more would be kept for ever."""

_LOOKED_BACK_MAX: Final = 30
"""Commits that are read for the size of rows. Hudi keeps about as many on the timeline."""


@dataclass(slots=True)
class Sizes:
    """What commits told of the size of rows in base files, the newest large one first."""

    size_bytes: int = 0
    rows: int = 0

    def told(self, stats: Iterable[WriteStat], least_bytes: float) -> bool:
        """Take over what a commit says, if it wrote enough to say something."""
        bases = [stat for stat in stats if (stat.path or "").endswith(".parquet")]
        size_bytes = sum(stat.total_write_bytes or 0 for stat in bases)
        rows = sum(stat.num_writes or 0 for stat in bases)
        if not rows or size_bytes <= least_bytes:
            return False
        self.size_bytes, self.rows = size_bytes, rows
        return True

    def record_bytes(self, default: int) -> int:
        """Return how many bytes a row takes."""
        return max(1, self.size_bytes // self.rows) if self.rows else default


@dataclass(slots=True)
class TableView:
    """What a writer must know of the table at `fold`.

    Commits of others are read when something of theirs is asked for: who only adds rows has no use
    for the files of fifteen others. `peopled` are partitions that are known to have files.

    Guarantees: it stays at `fold`, whatever is followed from it, so that several threads may each
    go on from the view that they have. What views share is never changed in place.
    """

    fold: Fold
    store: ObjectStore
    slices: dict[str, dict[str, FileSlice]] = field(default_factory=dict)
    replaced: frozenset[GroupId] = frozenset()
    schema_json: str = ""
    schema_at: str = ""
    sizes: Sizes = field(default_factory=Sizes)
    least_bytes: float = 0.0
    has_writes: bool = False
    schema_id: str = ""
    unread: list[Commit] = field(default_factory=list)
    peopled: frozenset[str] = frozenset()
    snapshot: TableSnapshot | None = None
    _evolves: bool = False
    """Whether something unread has another schema."""

    _below: dict[str, str] = field(default_factory=dict)
    """The base file that has all keys of a log file, by the log file's key; "" if none may."""

    _deletes: set[str] = field(default_factory=set)
    """The log files that may delete keys."""

    _reading: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def busy(self) -> frozenset[GroupId]:
        """File groups that wait for a table service."""
        plans = self.fold.plans.values()
        return frozenset(group for plan in plans for group in plan.targets)

    def of(self, partitions: Iterable[str] | None = None) -> dict[GroupId, FileSlice]:
        """Return the slices of some partitions, or of all, by group."""
        self.catch_up()
        slices = self.slices
        chosen = slices if partitions is None else set(partitions)
        return {
            (partition, file_id): piece
            for partition in sorted(chosen)
            for file_id, piece in sorted(slices.get(partition, {}).items())
        }

    def searched(self, pieces: Iterable[FileSlice]) -> tuple[FileSlice, ...]:
        """Return slices with those log files alone that may have keys that the base file lacks.

        New keys go to base files, so a log file has none but those of the base file that its
        writer saw. A compaction drops deleted keys, and one of them may come again in a log file
        that was written beside it: then only that one has it. Raises: `DataCorrupt`.
        """
        chosen = tuple(pieces)
        logs = [log for piece in chosen if piece.base for log in piece.logs]
        self._look_below(log for log in logs if log.key not in self._below)
        return tuple(
            piece
            if (base := piece.base) is None or not piece.logs
            else replace(
                piece,
                logs=tuple(log for log in piece.logs if self._below[log.key] != base.name),
            )
            for piece in chosen
        )

    def deleting(self, pieces: Iterable[FileSlice]) -> frozenset[GroupId]:
        """Return the groups whose log files may delete keys of the base file below them.

        Raises: `DataCorrupt`.
        """
        chosen = [piece for piece in pieces if piece.base and piece.logs]
        logs = [log for piece in chosen for log in piece.logs]
        self._look_below(log for log in logs if log.key not in self._below)
        return frozenset(
            (piece.partition, piece.file_id)
            for piece in chosen
            if any(log.key in self._deletes for log in piece.logs)
        )

    def _look_below(self, unknown: Iterable[LogFile]) -> None:
        """Learn from the commits of log files which base files their writers saw."""
        logs = list(unknown)
        if logs and self.snapshot is not None:
            for _, metadata in self.snapshot.commits_of({log.instant for log in logs}):
                self._take_in_logs(metadata)
        for log in logs:
            if log.key not in self._below:
                self._below[log.key] = ""
                self._deletes.add(log.key)

    def _take_in_logs(self, metadata: CommitMetadata) -> None:
        merges = metadata.operation_type == OperationType.LOG_COMPACT
        for stats in metadata.partition_to_write_stats.values():
            for stat in stats:
                if not stat.path or stat.path.endswith(".parquet"):
                    continue
                new = merges or stat.num_inserts
                self._below[stat.path] = "" if new else stat.base_file or ""
                if merges or stat.num_deletes:
                    self._deletes.add(stat.path)

    def follow(self, entries: Iterable[Entry], fold: Fold) -> TableView | None:
        """Return the view at `fold`, which `entries` lead to; None if they cannot be followed."""
        with self._reading:
            known, evolves = replace(self, sizes=replace(self.sizes)), self._evolves
        unread, peopled, large = [*known.unread], set(known.peopled), False
        for entry in entries:
            match entry.fact:
                case Commit() as commit if commit.footprint.deed in _FOLLOWED:
                    unread.append(commit)
                    peopled.update(partition for partition, _ in commit.footprint.created)
                    evolves |= commit.schema_id not in ("", known.schema_id)
                    large |= not isinstance(commit.content, Inline)
                case Adopt() | Claim() | Turn() | Boundary() | Rollback() | Plan() | Release():
                    pass
                case Undo(complete=False):
                    pass
                case Commit() as commit if commit.footprint.deed in _UNSEEN:
                    pass
                case _:
                    return None
        found = replace(
            known,
            fold=fold,
            has_writes=known.has_writes or bool(unread),
            unread=unread,
            peopled=frozenset(peopled),
            _evolves=evolves,
            _reading=threading.Lock(),
        )
        # What lies beside the ledger is deleted once it is archived (C96), so it is read while it
        # is there.
        try:
            if large or len(unread) > _UNREAD_MAX:
                found.catch_up()
        except DataCorrupt:
            return None
        return found

    def catch_up(self) -> None:
        """Take in the commits that were followed and not read."""
        with self._reading:
            if not self.unread:
                return
            slices = dict(self.slices)
            own: set[str] = set()
            for commit in self.unread:
                self._apply(commit.instant, _metadata(commit, self.store), slices, own)
                self.schema_id = commit.schema_id or self.schema_id
            self.slices = slices
            self.unread, self._evolves = [], False

    def known_schema(self) -> str:
        """Return the table's schema as Avro JSON, up to date."""
        if self._evolves:
            self.catch_up()
        return self.schema_json

    def _apply(
        self,
        instant: str,
        metadata: CommitMetadata,
        slices: dict[str, dict[str, FileSlice]],
        own: set[str],
    ) -> None:
        """Take in one commit. `own` are the partitions of `slices` that no other view has."""

        def groups_of(partition: str) -> dict[str, FileSlice]:
            if partition not in own:
                own.add(partition)
                slices[partition] = dict(slices.get(partition, {}))
            return slices[partition]

        gone = frozenset(replaced_groups(metadata))
        if gone:
            self.replaced |= gone
        for partition, file_id in gone:
            if partition in slices:
                groups_of(partition).pop(file_id, None)
        every: list[WriteStat] = []
        self._take_in_logs(metadata)
        for partition, stats in metadata.partition_to_write_stats.items():
            every += stats
            groups = groups_of(partition)
            for file in _files(partition, stats):
                groups[file.file_id] = _advanced(groups.get(file.file_id), file)
        if metadata.schema_json and instant >= self.schema_at:
            self.schema_json, self.schema_at = metadata.schema_json, instant
        self.sizes.told(every, self.least_bytes)


def load_view(
    store: ObjectStore, properties: TableProperties, fold: Fold, *, least_bytes: float
) -> TableView:
    """List the table as it was at `fold`. Raises: `DataCorrupt`, `Unsupported`."""
    for _ in range(_LOADS_MAX):
        try:
            return _loaded(store, properties, fold, least_bytes)
        except Conflict:
            # An instant was archived between the listing of the timeline and the look at it.
            continue
    return _loaded(store, properties, fold, least_bytes)


def _loaded(
    store: ObjectStore, properties: TableProperties, fold: Fold, least_bytes: float
) -> TableView:
    void = frozenset(fold.void)
    timeline = load_timeline(store, properties.timeline_folder)
    history = properties.history_folder
    timeline = check_published(store, fold, timeline, history=history).without_completed(void)
    snapshot = TableSnapshot(
        store, properties, timeline, void, _archived(store), forgotten=fold.forgotten
    )
    view = TableView(fold, store, least_bytes=least_bytes, snapshot=snapshot)
    for piece in snapshot.whole_slices_until(fold.time):
        view.slices.setdefault(piece.partition, {})[piece.file_id] = piece
    view.peopled = frozenset(view.slices)
    view.replaced = frozenset(snapshot.replaced_groups)
    done = [instant for instant in timeline.writes() if instant.completion <= fold.time]
    view.has_writes = bool(done)
    view.schema_json = properties.create_schema
    for number, instant in enumerate(reversed(done)):
        if view.schema_at and (view.sizes.rows or number >= _LOOKED_BACK_MAX):
            break
        metadata = snapshot.commit(instant)
        if metadata.schema_json and not view.schema_at:
            view.schema_json, view.schema_at = metadata.schema_json, instant.requested
        if not view.sizes.rows:
            every = metadata.partition_to_write_stats.values()
            view.sizes.told((stat for stats in every for stat in stats), least_bytes)
    view.schema_id = schema_id_of(view.schema_json)
    return view


def _archived(store: ObjectStore) -> str:
    """Return before which request time everything is in the history, by the checkpoint as it is.

    To be read after the timeline: what the archive takes off that is in the checkpoint before.
    """
    found = store.get(CHECKPOINT_KEY)
    if found is None:
        return ""
    return decode_checkpoint(found.body, where=f"{store.uri}/{CHECKPOINT_KEY}").fold.archived


def replaced_groups(metadata: CommitMetadata) -> Iterator[GroupId]:
    """Yield the file groups that a commit replaced."""
    if isinstance(metadata, ReplaceCommitMetadata):
        for partition, file_ids in metadata.partition_to_replace_file_ids.items():
            yield from ((partition, file_id) for file_id in file_ids)


def _metadata(commit: Commit, store: ObjectStore) -> CommitMetadata:
    kind = ReplaceCommitMetadata if commit.action is Action.REPLACE_COMMIT else CommitMetadata
    where = f"{store.uri}: the ledger's commit {commit.instant}"
    if isinstance(commit.content, Inline):
        return decode(kind, commit.content.data, where=where)
    found = store.get(commit.content.key)
    if found is None:
        raise DataCorrupt(f"{store.uri}/{commit.content.key} is gone", hint="restore it")
    return decode(kind, found.body, where=where)


def _files(partition: str, stats: Iterable[WriteStat]) -> Iterator[BaseFile | LogFile]:
    for stat in stats:
        name = (stat.path or "").rpartition("/")[2]
        file = data_file(partition, name, stat.file_size_in_bytes or 0)
        if isinstance(file, LogFile):
            yield replace(file, committed_bytes=file.size_bytes)
        elif file is not None:
            yield file


def _advanced(before: FileSlice | None, file: BaseFile | LogFile) -> FileSlice:
    if isinstance(file, BaseFile):
        # Who writes a base file has read all there was, or the ledger would not have let it in.
        return FileSlice(file.partition, file.file_id, file.instant, file)
    if before is None:
        return FileSlice(file.partition, file.file_id, file.instant, None, (file,))
    logs = (*before.logs, file)
    return replace(before, logs=tuple(sorted(logs, key=lambda log: log.order)))
