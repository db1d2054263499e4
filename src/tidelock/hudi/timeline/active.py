"""The active timeline: the recent instants of a table, one file for each state of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

from tidelock.core.errors import Conflict, DataCorrupt
from tidelock.hudi.timeline.instant import (
    Action,
    Instant,
    InstantState,
    format_time,
    latest_states,
    parse_instant,
)
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    RequestedReplaceMetadata,
    TimelineRecord,
    commit_type,
    decode,
)
from tidelock.storage.contract import ObjectMeta, ObjectStore

TIMELINE_FOLDER: Final = ".hoodie/timeline"

R = TypeVar("R", bound=TimelineRecord)


@dataclass(frozen=True)
class ActiveTimeline:
    """The instants that existed when the timeline was loaded, and access to their content.

    `files` has every state file; `instants` has each action once, in its latest state.
    """

    store: ObjectStore
    folder: str
    files: tuple[Instant, ...]
    # File names of old versions lack the completion time, so the original names are kept.
    legacy_names: tuple[tuple[Instant, str], ...] = ()

    @cached_property
    def instants(self) -> tuple[Instant, ...]:
        """Each action in its latest state, by request time."""
        return latest_states(self.files)

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the completed instants of these actions (default: all), by request time."""
        return tuple(i for i in self.instants if i.is_completed and _has_action(i, actions))

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the requested and inflight instants of these actions, by request time."""
        return tuple(i for i in self.instants if not i.is_completed and _has_action(i, actions))

    def writes(self) -> tuple[Instant, ...]:
        """Return the completed instants that wrote data files, by request time."""
        return tuple(i for i in self.instants if i.is_completed and i.action.writes_data)

    def without_completed(self, aborted: Collection[str]) -> ActiveTimeline:
        """Return the timeline on which completed writes in `aborted` count as pending.

        They were rolled back, but their completed files have not been deleted yet.
        """
        rolled_back = {i for i in self.writes() if i.requested in aborted} if aborted else set()
        if not rolled_back:
            return self
        return replace(self, files=tuple(each for each in self.files if each not in rolled_back))

    @property
    def latest_completion(self) -> str:
        """The largest completion time of any action; "" if none is complete."""
        return max((each.completion for each in self.files if each.is_completed), default="")

    def until(self, completion: str) -> ActiveTimeline:
        """Return the timeline on which actions completed after `completion` are still pending."""
        files = tuple(i for i in self.files if not i.is_completed or i.completion <= completion)
        return self if len(files) == len(self.files) else replace(self, files=files)

    def find(self, requested: str, *actions: Action) -> Instant | None:
        """Return the instant requested at that time, of these actions (default: any)."""
        for instant in self.instants:
            if instant.requested == requested and _has_action(instant, actions):
                return instant
        return None

    @cached_property
    def completions(self) -> dict[str, str]:
        """The completion time of each completed write, by its request time."""
        return {instant.requested: instant.completion for instant in self.writes()}

    @cached_property
    def pending_writes(self) -> frozenset[str]:
        """The request times of pending writes."""
        return frozenset(i.requested for i in self.pending() if i.action.writes_data)

    @cached_property
    def start(self) -> str | None:
        """The request time of the first write on the timeline; earlier writes have been archived.

        A savepoint keeps its commit on the timeline while later ones are archived, so savepointed
        commits do not count, unless there are no others (as after a restore). Cleans and rollbacks
        are archived independently and do not count either.
        """
        savepointed = {instant.requested for instant in self.completed(Action.SAVEPOINT)}
        writes = [instant.requested for instant in self.instants if instant.action.writes_data]
        others = [requested for requested in writes if requested not in savepointed]
        return next(iter([*others, *reversed(writes)]), None)

    def states(self, instant: Instant) -> tuple[Instant, ...]:
        """Return every state file of one action, in order."""
        return tuple(self._states.get(instant.identity, ()))

    @cached_property
    def _states(self) -> dict[tuple[str, Action], list[Instant]]:
        """The state files of each action; cached, because archiving reads all of them."""
        found: dict[tuple[str, Action], list[Instant]] = {}
        for each in sorted(self.files, key=lambda each: each.state):
            found.setdefault(each.identity, []).append(each)
        return found

    def key(self, instant: Instant) -> str:
        """Return the object that holds this state of an instant."""
        name = dict(self.legacy_names).get(instant, instant.file_name)
        return f"{self.folder}/{name}"

    def commit(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed write. Raises: `DataCorrupt`."""
        return self.read(commit_type(instant.action), instant)

    def compaction_plan(self, instant: Instant) -> CompactionPlan:
        """Return the plan of a compaction or log compaction, whatever its state."""
        return self.read(CompactionPlan, self._requested(instant))

    def compacting(self, since: str = "") -> Iterator[tuple[str, str, str]]:
        """Yield partition and file id of groups with a pending compaction, and its request time.

        Compactions requested before `since` are omitted; their plans are not read.
        """
        for instant in self.pending(Action.COMPACTION):
            if instant.requested < since:
                continue
            for operation in self.compaction_plan(instant).operations or ():
                if operation.file_id is not None:
                    yield operation.partition_path or "", operation.file_id, instant.requested

    def replace_request(self, instant: Instant) -> RequestedReplaceMetadata:
        """Return the request of a replacecommit or clustering, whatever its state."""
        return self.read(RequestedReplaceMetadata, self._requested(instant))

    def read(self, kind: type[R], instant: Instant) -> R:
        """Return the content of an instant's file.

        Raises: `DataCorrupt`, and `Conflict` if the file was deleted after the timeline was loaded.
        """
        key = self.key(instant)
        where = f"{self.store.uri}/{key}"
        found = self.store.get(key)
        if found is None:
            raise Conflict(
                f"{where} was deleted after the timeline was loaded",
                hint="open the table again: the instant may have been archived or rolled back",
            )
        return decode(kind, found.body, where=where)

    def _requested(self, instant: Instant) -> Instant:
        for each in self.states(instant):
            if each.state is InstantState.REQUESTED:
                return each
        raise DataCorrupt(
            f"{self.store.uri}/{self.folder}: {instant.file_name} has no requested file",
            hint="the plan is in the requested file: restore it, or roll back this instant",
        )


def load_timeline(store: ObjectStore, folder: str = TIMELINE_FOLDER) -> ActiveTimeline:
    """Load a consistent listing of the timeline. Files that are not instants are ignored.

    Raises: `DataCorrupt` for a completed instant of zero bytes, whose changes are unknown.
    """
    prefix = f"{folder}/"
    listed = consistent_listing(tuple(store.list(prefix)), tuple(store.list(prefix)), folder)
    files: list[Instant] = []
    legacy: list[tuple[Instant, str]] = []
    for instant, meta in instants_in_listing(listed, folder):
        name = meta.key.removeprefix(prefix)
        if instant.is_completed and meta.size_bytes == 0:
            raise DataCorrupt(
                f"{store.uri}/{folder}/{name}: the file of a completed instant is empty",
                hint="restore it from a copy: only this file records what the commit changed",
            )
        if instant.file_name != name:
            legacy.append((instant, name))
        files.append(instant)
    return ActiveTimeline(store, folder, tuple(sorted(files)), tuple(legacy))


def consistent_listing(
    first: Iterable[ObjectMeta], second: Iterable[ObjectMeta], folder: str
) -> tuple[ObjectMeta, ...]:
    """Return the timeline as of one point in time, from two consecutive listings.

    A listing is not atomic. It is paginated, or follows the order of a directory, so it may contain
    a completed instant and miss one that completed earlier. Completed instants are published in the
    order of their completion times (C29): whatever one listing contains, the next one contains
    together with everything before it. So the result is the second listing up to the last
    completion time in the first one.
    """
    until = max((each.completion for each, _ in instants_in_listing(first, folder)), default="")
    return tuple(
        meta for instant, meta in instants_in_listing(second, folder) if instant.completion <= until
    )


def instants_in_listing(
    listed: Iterable[ObjectMeta], folder: str
) -> Iterator[tuple[Instant, ObjectMeta]]:
    """Yield the instants in a listing of the timeline, with their files.

    Completed files of old versions do not name their completion time; the modification time is
    used.
    """
    prefix = f"{folder}/"
    for meta in listed:
        instant = parse_instant(meta.key.removeprefix(prefix))
        if instant is None:
            continue
        if instant.is_completed and not instant.completion:
            instant = replace(instant, completion=format_time(meta.modified_epoch_ms))
        yield instant, meta


def _has_action(instant: Instant, actions: tuple[Action, ...]) -> bool:
    return not actions or instant.action in actions
