"""A table as it was when it was opened: its properties, its timeline, and the files to read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

from tidelock.base.errors import Conflict, InvalidInput, NotFound, Unsupported
from tidelock.store.contract import ObjectStore
from tidelock.table.changes import Changes, WrittenFile, changed_slices
from tidelock.table.cleaned import Cleaned, gone, is_kept, needed_since
from tidelock.table.committed import (
    Lost,
    NamedBy,
    checked_sizes,
    lost_files,
    missing_error,
    named_files,
)
from tidelock.table.filegroup.listing import list_files
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile
from tidelock.table.filegroup.view import (
    DataFile,
    FileGroup,
    GroupId,
    Visibility,
    file_groups,
    twins,
    visible_slices,
)
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import load_properties
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.archive import Archive, ArchivedInstant
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, query_time
from tidelock.table.timeline.metadata import CommitMetadata, OperationType, ReplaceCommitMetadata

EVOLVED_SCHEMA_KEY = "latest_schema"
_BEFORE_ALL = ""
_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class TableSnapshot:
    """What a reader sees of a table: every write that had completed when it was opened.

    `void` are writes that were rolled back for ever: a file that one of them left, or writes late,
    is no row of the table, even when it looks older than the timeline. Between the two times of
    `forgotten` they are not all known; there, only what the history has is complete. Everything
    requested before `archived` is decided and in the history, whatever the listing found of it: an
    archive deletes file by file, so one may find an instant and miss a younger one. No write in the
    history completed after `settled`; None if that is not known.
    Guarantees: later writes do not show, however long the snapshot is used.
    Does not guarantee: that its files stay; a clean may remove old versions meanwhile.
    """

    store: ObjectStore
    properties: TableProperties
    timeline: ActiveTimeline
    void: frozenset[str] = frozenset()
    archived: str = ""
    settled: str | None = None
    forgotten: tuple[str, str] | None = None
    named_by: NamedBy = field(default_factory=dict, compare=False, repr=False)
    """The files that commits name, as far as they were read; later snapshots may share it."""

    @property
    def start(self) -> str | None:
        """The request time from which on the timeline tells everything; None if it is empty."""
        start = self.timeline.start
        return None if start is None else max(start, self.archived)

    @property
    def latest(self) -> Instant | None:
        """The completed write with the largest request time; None for an empty table."""
        writes = self.timeline.writes()
        return writes[-1] if writes else None

    @property
    def latest_completion(self) -> str | None:
        """Where an incremental reader goes on from: the largest completion time; None if empty."""
        return max((instant.completion for instant in self.timeline.writes()), default=None)

    def slices(
        self,
        as_of: str | None = None,
        partitions: Collection[str] | None = None,
        *,
        read_optimized: bool = False,
    ) -> tuple[FileSlice, ...]:
        """Return the file slices that hold the table's rows, by partition and file id.

        `as_of` looks back, see `moment`. `read_optimized` leaves out log files.
        Raises: `DataCorrupt`, `InvalidInput`.
        """
        files = self._listed(partitions)
        seen, moment = self._seen_at(as_of, files)
        groups = file_groups(self._without_strays(files, seen), seen)
        return visible_slices(groups, seen, as_of=moment, read_optimized=read_optimized)

    def _seen_at(
        self, as_of: str | None, files: Collection[DataFile]
    ) -> tuple[Visibility, str | None]:
        """Return what is seen of files when looking back, and a request time not to look beyond.

        Only a table of an old version needs the latter.
        """
        if as_of is None:
            return self._with_history(files), None
        moment = self.moment(as_of)
        if self.timeline.legacy_names:
            return self._with_history(files), moment
        return self._with_history(files, every=True).until(moment), None

    def moment(self, as_of: str) -> str:
        """Return the completion time up to which writes count that looks back to `as_of`.

        The request time of a write stands for the table as that write left it; any other time for
        itself. So the same `as_of` shows the same writes, whatever completes later. A table of an
        old version has no completion times, only request times to go by. Raises: `InvalidInput`.
        """
        asked = query_time(as_of)
        if self.timeline.legacy_names:
            return asked
        if known := self.timeline.completions.get(asked):
            return known
        if self.start is not None and asked < self.start:
            return self.archive.completions({asked}).get(asked, asked)
        return asked

    def whole_slices(
        self,
        as_of: str | None = None,
        partitions: Collection[str] | None = None,
        *,
        read_optimized: bool = False,
    ) -> tuple[FileSlice, ...]:
        """Return what `slices` returns, after a look whether all files are there, and whole.

        Raises: `DataCorrupt` naming a file that a commit on the timeline names, and that is missing
        or has another size; `NotFound` if it was cleaned, `InvalidInput`.
        """
        files = self._listed(partitions)
        # Looked at after the files: the plan of a clean is there before it deletes any.
        deleted = self._cleaned(as_of, partitions)
        there = {file.key for file in files}
        whole = [*files, *(file for key, (file, _) in deleted.items() if key not in there)]
        seen, moment = self._seen_at(as_of, whole)
        kept = self._without_strays(whole, seen)
        listed = [file for file in kept if file.key in there]
        found = visible_slices(
            file_groups(listed, seen), seen, as_of=moment, read_optimized=read_optimized
        )
        lost_of = partial(
            lost_files, listed, seen=seen, as_of=moment, read_optimized=read_optimized
        )
        lost = lost_of([deleted[file.key] for file in kept if file.key not in there])
        if lost and not (as_of and is_kept(self.timeline, found, query_time(as_of), partitions)):
            raise gone(f"{self.store.uri}/{lost[0].file.key}", lost[0].instant, as_of)
        all_named = named_files(self.timeline, self.named_by, self.commit, partitions)
        named = [(file, by) for file, by in all_named if seen.completion(by.requested)]
        lost = lost_of(named)
        if lost:
            self._refuse(lost[0], as_of)
        where = self.store.uri
        return checked_sizes(found, {file.key: (file, by) for file, by in named}, where=where)

    def _cleaned(
        self, as_of: str | None, partitions: Collection[str] | None
    ) -> dict[str, tuple[DataFile, Instant]]:
        """Return the files that cleans delete and that a look back, or at the last state, may need.

        Where they are gone only newer ones are listed, which this snapshot does not see.
        """
        moment = self.timeline.latest_completion if as_of is None else self.moment(as_of)
        if as_of is None and self.timeline.legacy_names:
            moment = needed_since(self.timeline)
        return Cleaned(self.timeline, self.archive, moment, as_of, partitions).deleted()

    def lost(self, partitions: Collection[str] | None = None) -> tuple[Lost, ...]:
        """Return the files that commits on the timeline name, that rows need, and that are gone."""
        files = self._listed(partitions)
        named = named_files(self.timeline, self.named_by, self.commit, partitions)
        return lost_files(files, named, self._with_history(files))

    def _refuse(self, lost: Lost, as_of: str | None) -> None:
        """Raise for a file that is lost: the table may have moved on since it was opened."""
        if as_of is None:
            now = load_timeline(self.store, self.timeline.folder).without_completed(self.void)
            gone = replace(self, timeline=now).lost([lost.file.partition])
            if any(each.file.key == lost.file.key for each in gone):
                raise missing_error(lost, where=self.store.uri)
        raise NotFound(
            f"{self.store.uri}/{lost.file.key} is gone: it belongs to the table as of"
            f" {as_of or 'the moment that it was opened at'}",
            hint="it was cleaned or taken back since: refresh the table, or read it as of a later"
            " time",
        )

    def slices_until(
        self, completion: str, *, deleted: Collection[DataFile] = ()
    ) -> tuple[FileSlice, ...]:
        """Return the file slices as they were when the last write up to `completion` completed.

        `deleted` are files that count as if they were still there.
        """
        groups, seen = self._groups(None, until=completion, deleted=deleted)
        return visible_slices(groups, seen)

    def whole_slices_until(self, completion: str) -> tuple[FileSlice, ...]:
        """Return what `slices_until` returns, after a look whether all files are there, and whole.

        Raises: `DataCorrupt` as `whole_slices`.
        """
        files = self._listed(None)
        seen = self._with_history(files).until(completion)
        found = visible_slices(file_groups(self._without_strays(files, seen), seen), seen)
        named = list(named_files(self.timeline, self.named_by, self.commit))
        done = [(file, by) for file, by in named if by.completion <= completion]
        lost = lost_files(files, done, seen)
        if lost:
            raise missing_error(lost[0], where=self.store.uri)
        where = self.store.uri
        return checked_sizes(found, {file.key: (file, by) for file, by in done}, where=where)

    @property
    def replaced_groups(self) -> frozenset[GroupId]:
        """The file groups that nobody sees any more, as far as the timeline knows."""
        return frozenset(self._visibility.replaced)

    @property
    def replaced(self) -> Mapping[GroupId, str]:
        """The file groups that were replaced, and the request time of the write that did it."""
        return self._visibility.replaced

    def groups(
        self,
        partitions: Collection[str] | None = None,
        *,
        with_replaced: bool = False,
        files: Collection[DataFile] | None = None,
    ) -> tuple[FileGroup, ...]:
        """Return the file groups with all their slices; replaced ones only if asked for.

        `files` are taken for those of the table instead of what its folders have.
        """
        groups, seen = self._groups(partitions, files=files)
        return tuple(g for g in groups if with_replaced or not seen.hides(g.group_id, None))

    def slices_between(
        self,
        begin: str | None = None,
        end: str | None = None,
        partitions: Collection[str] | None = None,
    ) -> Changes:
        """Return what completed after `begin`, up to and with `end`, by completion time.

        Without `begin` from the first write, without `end` up to now.
        Raises: `NotFound` if files of the range have been cleaned, `DataCorrupt`, `InvalidInput`.
        """
        first = _BEFORE_ALL if begin is None else query_time(begin)
        last = (self.latest_completion or first) if end is None else query_time(end)
        if last < first:
            raise InvalidInput(f"the range from {first} to {last} ends before it begins")
        instants, written = self._written(first, last)
        if partitions is not None:
            written = [file for file in written if file.partition in partitions]
        if not written:
            return Changes(first, last, instants, ())
        touched = sorted({file.partition for file in written})
        groups, at_end = self._groups(touched, until=last)
        return Changes(first, last, instants, changed_slices(groups, written, at_end))

    def schema_json(self, as_of: str | None = None) -> str | None:
        """Return the newest schema that a completed write recorded, as Avro JSON.

        A table without writes has the one it was created with; None if it does not say.
        """
        moment = None if as_of is None else self.moment(as_of)
        by_request = bool(self.timeline.legacy_names)
        for instant in reversed(self.timeline.writes()):
            time = instant.requested if by_request else instant.completion
            if moment is None or time <= moment:
                commit = self.commit(instant)
                if commit.extra_metadata.get(EVOLVED_SCHEMA_KEY):
                    # Columns are told apart by ids there; by name a renamed one would read as null.
                    raise Unsupported(
                        f"{self.store.uri} evolves its schema on read"
                        f" (hoodie.schema.on.read.enable, commit {instant.requested})",
                        hint="read it with Hudi, or rewrite it without that setting",
                    )
                if commit.schema_json:
                    return commit.schema_json
        archived = None if moment is None else self._archived_schema(moment)
        return archived or self.properties.create_schema or None

    def _archived_schema(self, moment: str) -> str | None:
        """Return the newest schema that an archived write recorded which was complete by then."""
        for old in reversed(self.archive.instants(until=moment)):
            if old.action.writes_data and (found := self._archived_commit(old).schema_json):
                return found
        return None

    def commit(self, instant: Instant) -> CommitMetadata:
        """Return what a write of this timeline did, also if it has been archived since.

        Raises: `Conflict` if it is neither there nor in the history, `DataCorrupt`.
        """
        try:
            return self.timeline.commit(instant)
        except Conflict:
            # The archive writes the history first, and this snapshot may have read it before.
            old = Archive(self.store, self.properties.history_folder).write(instant.requested)
            if old is None:
                raise
            return self._archived_commit(old)

    def commit_of(self, requested: str) -> CommitMetadata | None:
        """Return what a completed write recorded, on the timeline or in the history.

        None if neither knows it. Raises: `DataCorrupt`.
        """
        for instant in self.timeline.writes():
            if instant.requested == requested:
                return self.commit(instant)
        old = self.archive.write(requested)
        return None if old is None else self._archived_commit(old)

    def commits_of(self, requested: Collection[str]) -> Iterator[tuple[str, CommitMetadata]]:
        """Yield request time and record of completed writes, of those that somebody still knows.

        Raises: `DataCorrupt`.
        """
        left = set(requested)
        for instant in self.timeline.writes():
            if instant.requested in left:
                with suppress(Conflict):  # archived since the timeline was read
                    yield instant.requested, self.timeline.commit(instant)
                    left.discard(instant.requested)
        for old in self.archive.writes(left) if left else ():
            yield old.requested, self._archived_commit(old)

    @cached_property
    def archive(self) -> Archive:
        """The part of the timeline that was archived."""
        return Archive(self.store, self.properties.history_folder)

    @cached_property
    def _visibility(self) -> Visibility:
        timeline = self.timeline
        known = timeline.completions
        return Visibility(
            completions={r: done for r, done in known.items() if r not in self.void},
            start=self.start,
            # What is older is decided: a file that says else has landed late.
            pending=frozenset(p for p in timeline.pending_writes if p >= self.archived) | self.void,
            compacting=dict(self._compacting()),
            replaced=self._replaced(),
        )

    def _compacting(self) -> Iterator[tuple[GroupId, str]]:
        for instant in self.timeline.pending(Action.COMPACTION):
            if instant.requested < self.archived:
                continue
            for operation in self.timeline.compaction_plan(instant).operations or ():
                if operation.file_id is not None:
                    group = (operation.partition_path or "", operation.file_id)
                    yield group, instant.requested

    def _replaced(self) -> dict[GroupId, str]:
        replaced: dict[GroupId, str] = {}
        for requested, groups, _ in self._replacements:
            for group in groups:
                replaced.setdefault(group, requested)
        return replaced

    @cached_property
    def _replacements(self) -> tuple[tuple[str, tuple[GroupId, ...], frozenset[str]], ...]:
        """Request time, replaced groups and, of a clustering, the files of each replacecommit."""
        found = []
        for instant in self.timeline.completed(Action.REPLACE_COMMIT):
            commit = self.commit(instant)
            clusters = commit.operation_type == OperationType.CLUSTER
            paths = frozenset(path.lstrip("/") for path in commit.paths) if clusters else _NOTHING
            found.append((instant.requested, tuple(_replaced_by(commit)), paths))
        return tuple(found)

    def _groups(
        self,
        partitions: Collection[str] | None,
        *,
        until: str | None = None,
        deleted: Collection[DataFile] = (),
        files: Collection[DataFile] | None = None,
    ) -> tuple[tuple[FileGroup, ...], Visibility]:
        """Return the file groups, and what is seen of them, by the completion time `until`."""
        files = self._listed(partitions) if files is None else files
        if deleted:
            there = {file.key for file in files}
            files = (*files, *(file for file in deleted if file.key not in there))
        seen = self._with_history(files)
        if until is not None:
            seen = seen.until(until)
        return file_groups(self._without_strays(files, seen), seen), seen

    def _listed(self, partitions: Collection[str] | None) -> tuple[DataFile, ...]:
        return list_files(
            self.store, partitioned=self.properties.is_partitioned, partitions=partitions
        )

    def _with_history(self, files: Collection[DataFile], *, every: bool = False) -> Visibility:
        """Add what the history knows of archived writes, where that is needed.

        That is the completion time, where a log file's place depends on it, or of `every` write,
        and whether a write completed at all, where roll-backs are not remembered.
        """
        seen = self._visibility
        if seen.start is None:
            return seen
        first, end = self.forgotten or ("", "")
        old = {
            file.instant
            for file in files
            if file.instant < seen.start
            and file.instant not in seen.completions
            and (every or isinstance(file, LogFile) or first <= file.instant < end)
        } - self.void
        if not old:
            return seen
        known = self.archive.completions(old)
        never = {instant for instant in old - known.keys() if first <= instant < end}
        return replace(
            seen, completions={**known, **seen.completions}, pending=seen.pending | never
        )

    def _without_strays(
        self, files: Collection[DataFile], seen: Visibility
    ) -> Collection[DataFile]:
        """Leave out base files of retried tasks: the commit names the one that counts.

        A clustering that was tried again may have left file groups that nobody else has (C106).
        """
        done = [f for f in files if isinstance(f, BaseFile) and seen.completion(f.instant)]
        named_by = {requested: paths for requested, _, paths in self._replacements if paths}
        strays: set[DataFile] = {
            file for file in done if file.key not in named_by.get(file.instant, (file.key,))
        }
        for same in twins(done):
            commit = self.commit_of(same[0].instant)
            if commit is None:
                continue
            stats = commit.partition_to_write_stats
            named = {stat.path for stat in stats.get(same[0].partition, ())}
            strays.update(file for file in same if file.key not in named)
        return [file for file in files if file not in strays] if strays else files

    def _archived_commit(self, old: ArchivedInstant) -> CommitMetadata:
        where = f"{self.store.uri}/{self.properties.history_folder} {old.requested}"
        return decode(_kind(old.action), old.metadata, where=where)

    def _written(self, begin: str, end: str) -> tuple[frozenset[str], list[WrittenFile]]:
        """Return the request times of the writes in the range, and what they wrote and kept."""
        instants: set[str] = set()
        written: list[WrittenFile] = []
        replaced: set[GroupId] = set()
        for requested, completion, metadata in self._commits(begin, end):
            instants.add(requested)
            replaced.update(_replaced_by(metadata))
            for partition, stats in metadata.partition_to_write_stats.items():
                written += [
                    WrittenFile(completion, partition, stat.file_id, stat.path)
                    for stat in stats
                    if stat.file_id and stat.path
                ]
        return frozenset(instants), [file for file in written if file.group_id not in replaced]

    def _commits(self, begin: str, end: str) -> Iterator[tuple[str, str, CommitMetadata]]:
        """Yield request time, completion time and metadata of writes completed in the range."""
        told = set[str]()
        if self.settled is None or begin < self.settled:
            # A write that took long may be archived although it completed a moment ago: instants
            # leave the timeline by request time.
            for old in self.archive.instants(after=begin, until=end):
                if old.action.writes_data:
                    told.add(old.requested)
                    yield old.requested, old.completion, self._archived_commit(old)
        for instant in self.timeline.writes():
            if begin < instant.completion <= end and instant.requested not in told:
                yield instant.requested, instant.completion, self.commit(instant)


def open_table(store: ObjectStore) -> TableSnapshot:
    """Open the table whose base path is the root of `store`, as it is now.

    Raises: `NotFound` if there is none, `DataCorrupt`, `Unsupported`.
    """
    properties = load_properties(store)
    if properties.base_format != "PARQUET":
        raise Unsupported(f"{store.uri} has base files in {properties.base_format}, not in Parquet")
    if properties.drops_partition_columns:
        raise Unsupported(
            f"{store.uri} has no partition columns in its files",
            hint="only tables with hoodie.datasource.write.drop.partition.columns=false are read",
        )
    if properties.bootstrap_path:
        raise Unsupported(
            f"{store.uri} was bootstrapped: its rows are partly in {properties.bootstrap_path}",
            hint="rewrite it with Apache Hudi, for example by clustering, into a table of its own",
        )
    return TableSnapshot(store, properties, load_timeline(store, properties.timeline_folder))


def _kind(action: Action) -> type[CommitMetadata]:
    return ReplaceCommitMetadata if action is Action.REPLACE_COMMIT else CommitMetadata


def _replaced_by(metadata: CommitMetadata) -> Iterator[GroupId]:
    if isinstance(metadata, ReplaceCommitMetadata):
        for partition, file_ids in metadata.partition_to_replace_file_ids.items():
            yield from ((partition, file_id) for file_id in file_ids)
