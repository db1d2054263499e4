"""Snapshots of a table: its properties, its timeline and the file slices to read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

from tidelock.core.errors import Conflict, DataCorrupt, InvalidInput, NotFound, Unsupported
from tidelock.core.threads import worker_pool
from tidelock.hudi.clean_history import (
    CleanHistory,
    cleaned_error,
    is_savepointed,
    oldest_needed_instant,
)
from tidelock.hudi.file_groups import (
    BaseFile,
    DataFile,
    FileGroup,
    FileSlice,
    GroupId,
    LogFile,
    Visibility,
    data_file,
    duplicate_base_files,
    file_groups,
    visible_slices,
)
from tidelock.hudi.partitions import list_files
from tidelock.hudi.properties import TableProperties, load_properties
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.history import Archive, ArchivedInstant
from tidelock.hudi.timeline.instant import Action, Instant, query_time
from tidelock.hudi.timeline.metadata import CommitMetadata, OperationType, commit_type, decode
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import is_remote


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a completed write lists in its write stats."""

    completion: str
    partition: str
    file_id: str
    path: str

    @property
    def group_id(self) -> GroupId:
        """The file group of the file."""
        return self.partition, self.file_id


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The writes that completed in (`begin`, `end`], and the slices that hold their rows.

    Only rows whose commit time is in `instants` belong to the change.
    """

    begin: str
    end: str
    instants: frozenset[str]
    slices: tuple[FileSlice, ...]


def changed_slices(
    groups: Iterable[FileGroup], written: Iterable[WrittenFile], at_end: Visibility
) -> tuple[FileSlice, ...]:
    """Return the slices, at the end of a range, of the file groups written in the range.

    `written` must not contain file groups that were replaced by the end of the range.
    Raises: `NotFound` if a required file has been cleaned, because rows would silently be missing.
    """
    last: dict[GroupId, WrittenFile] = {}
    for file in sorted(written, key=lambda each: each.completion):
        last[file.group_id] = file
    slices = {
        each.group_id: each for each in visible_slices(groups, at_end) if each.group_id in last
    }
    for group, file in last.items():
        found = slices.get(group)
        if found is None or file.path not in {each.key for each in found.files}:
            raise NotFound(
                f"{file.path}, written at {file.completion}, has been deleted by a clean",
                hint="start from a later time, or read a snapshot and continue from its time",
            )
    return tuple(slices[group] for group in sorted(slices))


CommittedFiles = dict[Instant, tuple[DataFile, ...]]
"""The files listed by completed writes, with their recorded sizes. A cache: filled on demand."""

_READS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A file that a completed write lists and a reader needs, but that does not exist."""

    file: DataFile
    instant: Instant


def committed_files(
    timeline: ActiveTimeline,
    known: CommittedFiles,
    read: Callable[[Instant], CommitMetadata],
    partitions: Collection[str] | None = None,
) -> Iterator[tuple[DataFile, Instant]]:
    """Yield the data files that the completed writes of a timeline list.

    Reads only commits that are not in `known`, and adds them to it.
    Raises: whatever `read` raises.
    """
    writes = timeline.writes()
    unread = [instant for instant in writes if instant not in known]
    if len(unread) > 1 and is_remote(timeline.store):
        with worker_pool("commits", min(_READS_MAX, len(unread))) as pool:
            commits = list(pool.map(read, unread))
    else:
        commits = [read(instant) for instant in unread]
    known.update(
        (each, files_in_commit(metadata)) for each, metadata in zip(unread, commits, strict=True)
    )
    for instant in writes:
        for file in known[instant]:
            if partitions is None or file.partition in partitions:
                yield file, instant


def files_in_commit(metadata: CommitMetadata) -> tuple[DataFile, ...]:
    """Return the data files in the write stats of a commit, with their recorded sizes."""
    found = (
        data_file(partition, (stat.path or "").rpartition("/")[2], stat.file_size_in_bytes or 0)
        for partition, stats in metadata.partition_to_write_stats.items()
        for stat in stats
    )
    return tuple(file for file in found if file is not None)


def missing_files(
    listed: Collection[DataFile],
    committed: Iterable[tuple[DataFile, Instant]],
    visibility: Visibility,
    *,
    as_of: str | None = None,
    read_optimized: bool = False,
) -> tuple[MissingFile, ...]:
    """Return the files that are committed, not listed, and would be visible if they existed.

    Most absent files were superseded and cleaned, so they are not visible.
    """
    listed_keys = {file.key for file in listed}
    absent = {
        file.key: (file, instant) for file, instant in committed if file.key not in listed_keys
    }
    if not absent:
        return ()
    ids = {file.group_id for file, _ in absent.values()}
    present = [file for file in listed if file.group_id in ids]
    groups = file_groups([*present, *(file for file, _ in absent.values())], visibility)
    slices = visible_slices(groups, visibility, as_of=as_of, read_optimized=read_optimized)
    return tuple(
        MissingFile(*absent[file.key])
        for file_slice in slices
        for file in file_slice.files
        if file.key in absent
    )


def check_sizes(
    slices: Iterable[FileSlice], committed: Iterable[tuple[DataFile, Instant]], *, where: str
) -> tuple[FileSlice, ...]:
    """Check file sizes against commits; return the slices with `committed_bytes` of log files set.

    Raises: `DataCorrupt` for a file whose size differs from the one its commit recorded.
    """
    recorded = {file.key: (file.size_bytes, by.requested) for file, by in committed}
    return tuple(_check_slice(file_slice, recorded, where) for file_slice in slices)


def _check_slice(
    file_slice: FileSlice, recorded: Mapping[str, tuple[int, str]], where: str
) -> FileSlice:
    for file in file_slice.files:
        size_bytes, commit = recorded.get(file.key, (0, ""))
        # A Java writer may append to a log file after recording its size.
        grown = isinstance(file, LogFile) and file.size_bytes > size_bytes
        if size_bytes and file.size_bytes != size_bytes and not grown:
            raise DataCorrupt(
                f"{where}/{file.key}: expected {size_bytes:,} bytes as recorded by commit"
                f" {commit}, found {file.size_bytes:,}",
                hint="the file was truncated or overwritten: restore it from a copy, or restore the"
                " table to an earlier commit",
            )
    logs = tuple(
        replace(log, committed_bytes=recorded.get(log.key, (0, ""))[0]) for log in file_slice.logs
    )
    return replace(file_slice, logs=logs)


def missing_error(missing: MissingFile, *, where: str) -> DataCorrupt:
    """Return the error for a committed file that does not exist."""
    return DataCorrupt(
        f"{where}/{missing.file.key} is missing: commit {missing.instant.requested} wrote it, and"
        " no clean deleted it",
        hint="restore it from a copy, or restore the table to an earlier commit",
    )


EVOLVED_SCHEMA_KEY = "latest_schema"
_FIRST = ""
_NO_PATHS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class TableSnapshot:
    """A table as of the moment it was opened: it contains every write that had completed by then.

    `aborted` writes were rolled back. Files that they left behind, or still write, are never rows
    of the table, even if they look older than the timeline.
    Between the two times of `forgotten` not all aborted writes are known; there, only writes in the
    archived timeline count as completed.
    Every instant requested before `archived` is resolved and archived, whatever a listing shows: an
    archive deletes file by file, so a listing may contain an instant and miss a later one.
    No archived write completed after `archived_completion`; None if that is unknown.
    Guarantees: later writes never become visible, however long the snapshot is used.
    Does not guarantee: that its files remain; a clean may delete old versions.
    """

    store: ObjectStore
    properties: TableProperties
    timeline: ActiveTimeline
    aborted: frozenset[str] = frozenset()
    archived: str = ""
    archived_completion: str | None = None
    forgotten: tuple[str, str] | None = None
    committed_files: CommittedFiles = field(default_factory=dict, compare=False, repr=False)
    """The files listed by commits read so far; later snapshots may share the cache."""

    @property
    def start(self) -> str | None:
        """The request time from which the timeline is complete; None for an empty timeline."""
        start = self.timeline.start
        return None if start is None else max(start, self.archived)

    @property
    def latest(self) -> Instant | None:
        """The completed write with the largest request time; None for an empty table."""
        writes = self.timeline.writes()
        return writes[-1] if writes else None

    @property
    def latest_completion(self) -> str | None:
        """The largest completion time, where an incremental reader continues; None if empty."""
        return max((instant.completion for instant in self.timeline.writes()), default=None)

    def slices(
        self,
        as_of: str | None = None,
        partitions: Collection[str] | None = None,
        *,
        read_optimized: bool = False,
    ) -> tuple[FileSlice, ...]:
        """Return the file slices that hold the table's rows, by partition and file id.

        `as_of` selects an earlier version, see `as_of_completion`. `read_optimized` omits log
        files.
        Raises: `DataCorrupt`, `InvalidInput`.
        """
        files = self._listed(partitions)
        visibility, as_of_request = self._visibility_at(as_of, files)
        groups = file_groups(self._without_strays(files, visibility), visibility)
        return visible_slices(
            groups, visibility, as_of=as_of_request, read_optimized=read_optimized
        )

    def _visibility_at(
        self, as_of: str | None, files: Collection[DataFile]
    ) -> tuple[Visibility, str | None]:
        """Return the visibility of files as of a time, and the latest request time to include.

        Only tables of an old version need the latter.
        """
        if as_of is None:
            return self._with_history(files), None
        until = self.as_of_completion(as_of)
        if self.timeline.legacy_names:
            return self._with_history(files), until
        return self._with_history(files, all_writes=True).until(until), None

    def as_of_completion(self, as_of: str) -> str:
        """Return the latest completion time that a read as of `as_of` includes.

        The request time of a write selects the table as that write left it; any other time selects
        the writes completed by then. The same `as_of` therefore always shows the same writes.
        Tables of an old version have only request times. Raises: `InvalidInput`.
        """
        time = query_time(as_of)
        if self.timeline.legacy_names:
            return time
        if known := self.timeline.completions.get(time):
            return known
        if self.start is not None and time < self.start:
            return self.archive.completions({time}).get(time, time)
        return time

    def verified_slices(
        self,
        as_of: str | None = None,
        partitions: Collection[str] | None = None,
        *,
        read_optimized: bool = False,
    ) -> tuple[FileSlice, ...]:
        """Return the same as `slices`, after checking that all files exist with the expected size.

        Raises: `DataCorrupt` naming a file that a commit lists and that is missing or has another
        size; `NotFound` if it was cleaned; `InvalidInput`.
        """
        files = self._listed(partitions)
        # Read after the listing: a clean writes its plan before it deletes any file.
        deleted = self._cleaned_files(as_of, partitions)
        listed_keys = {file.key for file in files}
        absent = (file for key, (file, _) in deleted.items() if key not in listed_keys)
        candidates = [*files, *absent]
        visibility, as_of_request = self._visibility_at(as_of, candidates)
        retained = self._without_strays(candidates, visibility)
        listed = [file for file in retained if file.key in listed_keys]
        slices = visible_slices(
            file_groups(listed, visibility),
            visibility,
            as_of=as_of_request,
            read_optimized=read_optimized,
        )
        find_missing = partial(
            missing_files,
            listed,
            visibility=visibility,
            as_of=as_of_request,
            read_optimized=read_optimized,
        )
        missing = find_missing(
            [deleted[file.key] for file in retained if file.key not in listed_keys]
        )
        if missing and not (
            as_of and is_savepointed(self.timeline, slices, query_time(as_of), partitions)
        ):
            raise cleaned_error(
                f"{self.store.uri}/{missing[0].file.key}", missing[0].instant, as_of
            )
        committed = [
            (file, by)
            for file, by in self._committed(partitions)
            if visibility.completion(by.requested)
        ]
        missing = find_missing(committed)
        if missing:
            self._raise_missing(missing[0], as_of)
        return check_sizes(slices, committed, where=self.store.uri)

    def _cleaned_files(
        self, as_of: str | None, partitions: Collection[str] | None
    ) -> dict[str, tuple[DataFile, Instant]]:
        """Return the files deleted by cleans that a reader of this version may need.

        After a clean only newer versions are listed, which this snapshot does not see.
        """
        until = self.timeline.latest_completion if as_of is None else self.as_of_completion(as_of)
        if as_of is None and self.timeline.legacy_names:
            until = oldest_needed_instant(self.timeline)
        return CleanHistory(self.timeline, self.archive, until, as_of, partitions).deleted_files()

    def missing(self, partitions: Collection[str] | None = None) -> tuple[MissingFile, ...]:
        """Return the files that commits list, that rows need, and that do not exist."""
        files = self._listed(partitions)
        return missing_files(files, self._committed(partitions), self._with_history(files))

    def _raise_missing(self, missing: MissingFile, as_of: str | None) -> None:
        """Raise for a missing file: `NotFound` if the table has changed since it was opened."""
        if as_of is None:
            now = load_timeline(self.store, self.timeline.folder).without_completed(self.aborted)
            still = replace(self, timeline=now).missing([missing.file.partition])
            if any(each.file.key == missing.file.key for each in still):
                raise missing_error(missing, where=self.store.uri)
        raise NotFound(
            f"{self.store.uri}/{missing.file.key} no longer exists: it belongs to the table as of"
            f" {as_of or 'the time it was opened'}",
            hint="it was cleaned or rolled back since: refresh the table, or read it as of a later"
            " time",
        )

    def slices_until(
        self, completion: str, *, deleted: Collection[DataFile] = ()
    ) -> tuple[FileSlice, ...]:
        """Return the slices as of `completion`, as if the files in `deleted` still existed."""
        groups, visibility = self._groups(None, until=completion, deleted=deleted)
        return visible_slices(groups, visibility)

    def verified_slices_until(self, completion: str) -> tuple[FileSlice, ...]:
        """Return the same as `slices_until`, after checking that all files exist, with their size.

        Raises: `DataCorrupt` as `verified_slices`.
        """
        files = self._listed(None)
        groups, visibility = self._groups(None, until=completion, files=files)
        completed = [(file, by) for file, by in self._committed() if by.completion <= completion]
        missing = missing_files(files, completed, visibility)
        if missing:
            raise missing_error(missing[0], where=self.store.uri)
        return check_sizes(visible_slices(groups, visibility), completed, where=self.store.uri)

    def _committed(
        self, partitions: Collection[str] | None = None
    ) -> Iterator[tuple[DataFile, Instant]]:
        return committed_files(self.timeline, self.committed_files, self.commit, partitions)

    @property
    def replaced(self) -> Mapping[GroupId, str]:
        """The replaced file groups, as far as the timeline knows, with the time of their write."""
        return self._visibility.replaced

    def groups(
        self,
        partitions: Collection[str] | None = None,
        *,
        with_replaced: bool = False,
        files: Collection[DataFile] | None = None,
    ) -> tuple[FileGroup, ...]:
        """Return the file groups with all their slices; replaced ones only `with_replaced`.

        `files` replaces the listing of the table's folders.
        """
        groups, visibility = self._groups(partitions, files=files)
        return tuple(g for g in groups if with_replaced or not visibility.hides(g.group_id, None))

    def slices_between(
        self,
        begin: str | None = None,
        end: str | None = None,
        partitions: Collection[str] | None = None,
    ) -> ChangeSet:
        """Return the changes that completed in the range (`begin`, `end`], by completion time.

        Defaults: from the first write, up to the latest one.
        Raises: `NotFound` if files of the range have been cleaned, `DataCorrupt`, `InvalidInput`.
        """
        first = _FIRST if begin is None else query_time(begin)
        last = (self.latest_completion or first) if end is None else query_time(end)
        if last < first:
            raise InvalidInput(f"invalid range: end {last} is before begin {first}")
        instants, written = self._written(first, last)
        if partitions is not None:
            written = [file for file in written if file.partition in partitions]
        if not written:
            return ChangeSet(first, last, instants, ())
        partitions_written = sorted({file.partition for file in written})
        groups, at_end = self._groups(partitions_written, until=last)
        return ChangeSet(first, last, instants, changed_slices(groups, written, at_end))

    def schema_json(self, as_of: str | None = None) -> str | None:
        """Return the latest schema recorded by a completed write, as Avro JSON.

        Falls back to the schema the table was created with; None if there is none.
        """
        until = None if as_of is None else self.as_of_completion(as_of)
        by_request = bool(self.timeline.legacy_names)
        for instant in reversed(self.timeline.writes()):
            time = instant.requested if by_request else instant.completion
            if until is None or time <= until:
                commit = self.commit(instant)
                if commit.extra_metadata.get(EVOLVED_SCHEMA_KEY):
                    # Columns have ids in these schemas: by name, a renamed one would read as null.
                    raise Unsupported(
                        f"{self.store.uri}: schema evolution on read is not supported"
                        f" (hoodie.schema.on.read.enable, commit {instant.requested})",
                        hint="read the table with Hudi, or rewrite it without that setting",
                    )
                if commit.schema_json:
                    return commit.schema_json
        archived = None if until is None else self._archived_schema(until)
        return archived or self.properties.create_schema or None

    def _archived_schema(self, until: str) -> str | None:
        """Return the latest schema recorded by an archived write that completed by then."""
        for instant in reversed(self.archive.instants(until=until)):
            if instant.action.writes_data and (found := self._archived_commit(instant).schema_json):
                return found
        return None

    def commit(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of a write on this timeline, even if it has been archived since.

        Raises: `Conflict` if it is neither on the timeline nor archived, `DataCorrupt`.
        """
        try:
            return self.timeline.commit(instant)
        except Conflict:
            # Archiving writes the history first; this snapshot's archive may predate that.
            archived = Archive(self.store, self.properties.history_folder).write(instant.requested)
            if archived is None:
                raise
            return self._archived_commit(archived)

    def commit_of(self, requested: str) -> CommitMetadata | None:
        """Return the metadata of a completed write; None if unknown. Raises: `DataCorrupt`."""
        for instant in self.timeline.writes():
            if instant.requested == requested:
                return self.commit(instant)
        archived = self.archive.write(requested)
        return None if archived is None else self._archived_commit(archived)

    def commits_of(self, requested: Collection[str]) -> Iterator[tuple[str, CommitMetadata]]:
        """Yield request time and metadata of completed writes. Raises: `DataCorrupt`."""
        remaining = set(requested)
        for instant in self.timeline.writes():
            if instant.requested in remaining:
                with suppress(Conflict):  # archived since the timeline was read
                    yield instant.requested, self.timeline.commit(instant)
                    remaining.discard(instant.requested)
        for archived in self.archive.writes(remaining) if remaining else ():
            yield archived.requested, self._archived_commit(archived)

    @cached_property
    def archive(self) -> Archive:
        """The archived timeline."""
        return Archive(self.store, self.properties.history_folder)

    @cached_property
    def _visibility(self) -> Visibility:
        timeline = self.timeline
        known = timeline.completions
        return Visibility(
            completions={r: done for r, done in known.items() if r not in self.aborted},
            start=self.start,
            # Earlier instants are resolved: a file that suggests otherwise arrived late.
            pending=frozenset(p for p in timeline.pending_writes if p >= self.archived)
            | self.aborted,
            compacting={
                (partition, file_id): requested
                for partition, file_id, requested in timeline.compacting(since=self.archived)
            },
            # The first replacecommit of a file group counts.
            replaced={
                group: requested
                for requested, groups, _ in reversed(self._replacements)
                for group in groups
            },
        )

    @cached_property
    def _replacements(self) -> tuple[tuple[str, tuple[GroupId, ...], frozenset[str]], ...]:
        """Request time, replaced groups and, for a clustering, the files of each replacecommit."""
        found = []
        for instant in self.timeline.completed(Action.REPLACE_COMMIT):
            commit = self.commit(instant)
            clusters = commit.operation_type == OperationType.CLUSTER
            paths = frozenset(path.lstrip("/") for path in commit.paths) if clusters else _NO_PATHS
            found.append((instant.requested, commit.replaced_groups, paths))
        return tuple(found)

    def _groups(
        self,
        partitions: Collection[str] | None,
        *,
        until: str | None = None,
        deleted: Collection[DataFile] = (),
        files: Collection[DataFile] | None = None,
    ) -> tuple[tuple[FileGroup, ...], Visibility]:
        """Return the file groups and their visibility, as of the completion time `until`."""
        files = self._listed(partitions) if files is None else files
        if deleted:
            listed_keys = {file.key for file in files}
            files = (*files, *(file for file in deleted if file.key not in listed_keys))
        visibility = self._with_history(files)
        if until is not None:
            visibility = visibility.until(until)
        return file_groups(self._without_strays(files, visibility), visibility), visibility

    def _listed(self, partitions: Collection[str] | None) -> tuple[DataFile, ...]:
        return list_files(
            self.store, partitioned=self.properties.is_partitioned, partitions=partitions
        )

    def _with_history(self, files: Collection[DataFile], *, all_writes: bool = False) -> Visibility:
        """Return the visibility, with what the archive knows of archived writes where it is needed.

        Completion times are needed for log files, whose slice depends on them, or for `all_writes`.
        Whether a write completed at all is needed where rollbacks are no longer known.
        """
        visibility = self._visibility
        if visibility.start is None:
            return visibility
        first, end = self.forgotten or ("", "")
        archived = {
            file.instant
            for file in files
            if file.instant < visibility.start
            and file.instant not in visibility.completions
            and (all_writes or isinstance(file, LogFile) or first <= file.instant < end)
        } - self.aborted
        if not archived:
            return visibility
        known = self.archive.completions(archived)
        not_completed = {instant for instant in archived - known.keys() if first <= instant < end}
        return replace(
            visibility,
            completions={**known, **visibility.completions},
            pending=visibility.pending | not_completed,
        )

    def _without_strays(
        self, files: Collection[DataFile], visibility: Visibility
    ) -> Collection[DataFile]:
        """Drop base files of retried tasks: the commit lists the valid one.

        A clustering that was retried may have left file groups that no commit lists (C106).
        """
        done = [f for f in files if isinstance(f, BaseFile) and visibility.completion(f.instant)]
        paths_of = {requested: paths for requested, _, paths in self._replacements if paths}
        strays: set[DataFile] = {
            file for file in done if file.key not in paths_of.get(file.instant, (file.key,))
        }
        for duplicates in duplicate_base_files(done):
            commit = self.commit_of(duplicates[0].instant)
            if commit is None:
                continue
            stats = commit.partition_to_write_stats
            named = {stat.path for stat in stats.get(duplicates[0].partition, ())}
            strays.update(file for file in duplicates if file.key not in named)
        return [file for file in files if file not in strays] if strays else files

    def _archived_commit(self, instant: ArchivedInstant) -> CommitMetadata:
        where = f"{self.store.uri}/{self.properties.history_folder} {instant.requested}"
        return decode(commit_type(instant.action), instant.metadata, where=where)

    def _written(self, begin: str, end: str) -> tuple[frozenset[str], list[WrittenFile]]:
        """Return the request times of writes in the range, and the files they wrote that remain."""
        instants: set[str] = set()
        written: list[WrittenFile] = []
        replaced: set[GroupId] = set()
        for requested, completion, metadata in self._commits(begin, end):
            instants.add(requested)
            replaced.update(metadata.replaced_groups)
            for partition, stats in metadata.partition_to_write_stats.items():
                written += [
                    WrittenFile(completion, partition, stat.file_id, stat.path)
                    for stat in stats
                    if stat.file_id and stat.path
                ]
        return frozenset(instants), [file for file in written if file.group_id not in replaced]

    def _commits(self, begin: str, end: str) -> Iterator[tuple[str, str, CommitMetadata]]:
        """Yield request time, completion time and metadata of writes completed in the range."""
        yielded = set[str]()
        if self.archived_completion is None or begin < self.archived_completion:
            # A long-running write may be archived although it has just completed: instants leave
            # the timeline by request time.
            for archived in self.archive.instants(after=begin, until=end):
                if archived.action.writes_data:
                    yielded.add(archived.requested)
                    yield archived.requested, archived.completion, self._archived_commit(archived)
        for instant in self.timeline.writes():
            if begin < instant.completion <= end and instant.requested not in yielded:
                yield instant.requested, instant.completion, self.commit(instant)


def open_table(store: ObjectStore) -> TableSnapshot:
    """Open the current version of the table whose base path is the root of `store`.

    Raises: `NotFound` if there is no table, `DataCorrupt`, `Unsupported`.
    """
    properties = load_properties(store)
    if properties.base_format != "PARQUET":
        raise Unsupported(
            f"{store.uri}: expected base files in Parquet, found {properties.base_format}"
        )
    if properties.drops_partition_columns:
        raise Unsupported(
            f"{store.uri}: the data files have no partition columns",
            hint="set hoodie.datasource.write.drop.partition.columns=false and rewrite the table",
        )
    if properties.bootstrap_path:
        raise Unsupported(
            f"{store.uri}: bootstrapped tables are not supported; rows are also in"
            f" {properties.bootstrap_path}",
            hint="rewrite the table with Apache Hudi, for example by clustering it",
        )
    return TableSnapshot(store, properties, load_timeline(store, properties.timeline_folder))
