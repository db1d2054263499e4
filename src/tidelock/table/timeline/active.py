"""The active timeline: the recent instants of a table, one file for each state of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

from tidelock.base.errors import Conflict, DataCorrupt
from tidelock.store.contract import ObjectMeta, ObjectStore
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import (
    Action,
    Instant,
    State,
    format_time,
    furthest,
    parse_instant,
)
from tidelock.table.timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
    TimelineRecord,
)

TIMELINE_FOLDER: Final = ".hoodie/timeline"

R = TypeVar("R", bound=TimelineRecord)


@dataclass(frozen=True)
class ActiveTimeline:
    """The instants that were there when the timeline was loaded, and a way to read what they say.

    `files` has every state file; `instants` has each action once, in its furthest state.
    """

    store: ObjectStore
    folder: str
    files: tuple[Instant, ...]
    # Files of old versions have no completion time in their name, so the name is kept beside.
    legacy_names: tuple[tuple[Instant, str], ...] = ()

    @cached_property
    def instants(self) -> tuple[Instant, ...]:
        """Each action in its furthest state, by request time."""
        return furthest(self.files)

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the completed instants of these actions (all without any), by request time."""
        return tuple(i for i in self.instants if i.is_completed and _among(i, actions))

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the requested and inflight instants of these actions, by request time."""
        return tuple(i for i in self.instants if not i.is_completed and _among(i, actions))

    def writes(self) -> tuple[Instant, ...]:
        """Return the completed instants that wrote data files, by request time."""
        return tuple(i for i in self.instants if i.is_completed and i.action.writes_data)

    def without_completed(self, void: Collection[str]) -> ActiveTimeline:
        """Return the timeline on which the completed writes in `void` are not complete.

        They were taken back, and whoever does that has not removed their files yet.
        """
        ghosts = {i for i in self.writes() if i.requested in void} if void else set()
        if not ghosts:
            return self
        return replace(self, files=tuple(each for each in self.files if each not in ghosts))

    @property
    def latest_completion(self) -> str:
        """The largest completion time of any action; "" if none is complete."""
        return max((each.completion for each in self.files if each.is_completed), default="")

    def until(self, completion: str) -> ActiveTimeline:
        """Return the timeline on which what completed after `completion` is not complete yet."""
        kept = tuple(i for i in self.files if not i.is_completed or i.completion <= completion)
        return self if len(kept) == len(self.files) else replace(self, files=kept)

    def find(self, requested: str, *actions: Action) -> Instant | None:
        """Return the instant requested at that time, of these actions if any are given."""
        for instant in self.instants:
            if instant.requested == requested and _among(instant, actions):
                return instant
        return None

    @cached_property
    def completions(self) -> dict[str, str]:
        """The completion time of each completed write, by its request time."""
        return {instant.requested: instant.completion for instant in self.writes()}

    @cached_property
    def pending_writes(self) -> frozenset[str]:
        """The request times of writes that have not completed."""
        return frozenset(i.requested for i in self.pending() if i.action.writes_data)

    @cached_property
    def start(self) -> str | None:
        """The first write of the timeline: what is older has been archived.

        A savepoint keeps its commit on the timeline while later ones are archived, so commits with
        savepoints do not count, unless there are no others: a restore leaves no later ones. Cleans
        and rollbacks are archived at a pace of their own and do not count either.
        """
        kept = {instant.requested for instant in self.completed(Action.SAVEPOINT)}
        writes = [instant.requested for instant in self.instants if instant.action.writes_data]
        others = [requested for requested in writes if requested not in kept]
        return next(iter([*others, *reversed(writes)]), None)

    def states(self, instant: Instant) -> tuple[Instant, ...]:
        """Return every state file of one action, in order."""
        return tuple(self._states.get(instant.identity, ()))

    @cached_property
    def _states(self) -> dict[tuple[str, Action], list[Instant]]:
        """The state files by action: whoever archives asks for those of every instant."""
        found: dict[tuple[str, Action], list[Instant]] = {}
        for each in sorted(self.files, key=lambda each: each.state):
            found.setdefault(each.identity, []).append(each)
        return found

    def key(self, instant: Instant) -> str:
        """Return the object that holds this state of an instant."""
        name = dict(self.legacy_names).get(instant, instant.file_name)
        return f"{self.folder}/{name}"

    def commit(self, instant: Instant) -> CommitMetadata:
        """Return what a completed write did. Raises: `DataCorrupt`."""
        if instant.action is Action.REPLACE_COMMIT:
            return self.read(ReplaceCommitMetadata, instant)
        return self.read(CommitMetadata, instant)

    def compaction_plan(self, instant: Instant) -> CompactionPlan:
        """Return the plan of a compaction or log compaction, whatever its state by now."""
        return self.read(CompactionPlan, self._requested(instant))

    def replace_request(self, instant: Instant) -> RequestedReplaceMetadata:
        """Return the request of a replacecommit or clustering, whatever its state by now."""
        return self.read(RequestedReplaceMetadata, self._requested(instant))

    def read(self, kind: type[R], instant: Instant) -> R:
        """Return the content of the file of an instant.

        Raises: `DataCorrupt`, and `Conflict` if the file is gone since the timeline was loaded.
        """
        key = self.key(instant)
        where = f"{self.store.uri}/{key}"
        found = self.store.get(key)
        if found is None:
            raise Conflict(
                f"{where} is gone since the timeline was read",
                hint="open the table again: it may have been archived or rolled back meanwhile",
            )
        return decode(kind, found.body, where=where)

    def _requested(self, instant: Instant) -> Instant:
        for each in self.states(instant):
            if each.state is State.REQUESTED:
                return each
        raise DataCorrupt(
            f"{self.store.uri}/{self.folder} has {instant.file_name} but not the request before it",
            hint="the plan is in the request: restore that file, or roll this instant back",
        )


def load_timeline(store: ObjectStore, folder: str = TIMELINE_FOLDER) -> ActiveTimeline:
    """List the timeline as it was at one moment. Names that are no instant's are not looked at.

    Raises: `DataCorrupt` for a completed instant of zero bytes, whose changes are unknown.
    """
    prefix = f"{folder}/"
    listed = at_one_moment(tuple(store.list(prefix)), tuple(store.list(prefix)), folder)
    files: list[Instant] = []
    legacy: list[tuple[Instant, str]] = []
    for instant, meta in instants_in(listed, folder):
        name = meta.key.removeprefix(prefix)
        if instant.is_completed and meta.size_bytes == 0:
            raise DataCorrupt(
                f"{store.uri}/{folder}/{name} is a completed instant of zero bytes",
                hint="restore this file from a copy; what the commit changed is only written there",
            )
        if instant.file_name != name:
            legacy.append((instant, name))
        files.append(instant)
    return ActiveTimeline(store, folder, tuple(sorted(files)), tuple(legacy))


def at_one_moment(
    first: Iterable[ObjectMeta], second: Iterable[ObjectMeta], folder: str
) -> tuple[ObjectMeta, ...]:
    """Return what the timeline had at one moment, from two listings, one after the other.

    A listing is no snapshot: it comes in pages, or in the order of a directory, and may show a
    completed instant without one that completed before it, if both appear meanwhile. Completed
    instants are published in the order of their completion times (C29), so what one listing has
    shown, the next one shows with everything before it. Hence two, and of the second what completed
    by the last completion time of the first.
    """
    until = max((instant.completion for instant, _ in instants_in(first, folder)), default="")
    return tuple(
        meta for instant, meta in instants_in(second, folder) if instant.completion <= until
    )


def instants_in(listed: Iterable[ObjectMeta], folder: str) -> Iterator[tuple[Instant, ObjectMeta]]:
    """Yield the instants of a listing of the timeline, with their files.

    Completed files of old versions do not name their completion time: it is when they were written.
    """
    prefix = f"{folder}/"
    for meta in listed:
        instant = parse_instant(meta.key.removeprefix(prefix))
        if instant is None:
            continue
        if instant.is_completed and not instant.completion:
            instant = replace(instant, completion=format_time(meta.modified_epoch_ms))
        yield instant, meta


def _among(instant: Instant, actions: tuple[Action, ...]) -> bool:
    return not actions or instant.action in actions
