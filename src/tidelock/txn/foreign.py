"""Commits of writers that know no ledger, taken into the order (C34-C37)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.base.errors import InvalidInput, Unsupported
from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.active import at_one_moment, instants_in
from tidelock.table.timeline.archive import ArchivedInstant
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import (
    Action,
    Instant,
    State,
    format_time,
    parse_time,
)
from tidelock.table.timeline.metadata import (
    NO_COMMIT,
    CommitMetadata,
    ReplaceCommitMetadata,
    RestoreMetadata,
    RollbackMetadata,
    WriteStat,
)
from tidelock.txn.appending import No, append
from tidelock.txn.config import TIMEZONE_POLICY
from tidelock.txn.draft import deed_of, has_deletes, schema_id_of
from tidelock.txn.effects import Get, List, ReadHistory, Steps
from tidelock.txn.entry import Commit, Fact, Foreign
from tidelock.txn.fold import Fold, lawful
from tidelock.txn.footprint import Deed, Footprint, NewKeys
from tidelock.txn.foreignplans import ADOPTED
from tidelock.txn.publishing import Publisher
from tidelock.txn.reading import forward
from tidelock.txn.undoing import marks_left, newest_schema
from tidelock.txn.view import View

logger = logging.getLogger(__name__)

_PLAIN: Final = {
    Action.CLEAN: Deed.CLEAN,
    Action.ROLLBACK: Deed.ROLLBACK,
    Action.RESTORE: Deed.RESTORE,
}
_UNDOING: Final = (Action.ROLLBACK, Action.RESTORE)
_WRITES: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_QUARTER_MS: Final = 900_000
_CLOCK_MS: Final = 180_000
_ZONE_MAX_MS: Final = 15 * 3_600_000
_CLOCKS_MS: Final = 86_400_000
"""How far the clock of a writer without a ledger may be behind when it is looked for by time."""
_OVERWRITES: Final = (Deed.OVERWRITE, Deed.OVERWRITE_TABLE, Deed.DELETE_PARTITION)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the timeline found missing, and up to where the ledger reached then.

    `gone` are commits of the ledger that somebody without one has archived. `begun` are writes that
    are not decided, whoever began them: the furthest state of each, and when it was written.
    """

    gone: frozenset[str]
    time: str
    begun: Mapping[str, tuple[State, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Importer:
    """Looks for instants that were completed by somebody who knows no ledger."""

    folder: str
    history_folder: str
    owner: str
    publisher: Publisher
    checks_zones: bool = True

    def look(self, view: View, last: Look | None) -> Steps[tuple[View, Look]]:
        """Give every completed instant that has no entry one, by completion time.

        `last` is what the look before found; None for the first look, after which the table is
        read as it is. What was completed and archived since is looked for in the history.
        Raises: `Unsupported` for a commit since `last` with times of another zone than UTC.
        """
        listed: tuple[ObjectMeta, ...] = yield List(f"{self.folder}/")
        gone, found = self._differences(view, listed)
        if found or (last is not None and not gone <= last.gone):
            # What other processes of ours have completed or archived has an entry by now.
            view = yield from forward(view)
            gone, found = self._differences(view, listed)
        if found or (last is not None and not gone <= last.gone):
            # C104: what completed before that may have been left out of the listing. Where nothing
            # differs, what completed meanwhile may as well have completed after it.
            again: tuple[ObjectMeta, ...] = yield List(f"{self.folder}/")
            listed = at_one_moment(listed, again, self.folder)
            view = yield from forward(view)
            gone, found = self._differences(view, listed)
        view = _with_plans(view, listed, self.folder)
        if last is not None and not gone <= last.gone:
            history = yield ReadHistory(self.history_folder, _before(last.time))
            archived = _archived(view, history, self.history_folder)
            gone, found = gone | archived.keys(), {**archived, **found}
        if last is not None and self.checks_zones:
            for each in found.values():
                _check_zone(each)
        # C36: whoever has read nothing of this ledger has nothing to judge, so an adopted table's
        # past needs no details.
        adopted = view.position == 0
        for each in sorted(found.values(), key=lambda done: done.instant.completion):
            if each.instant.requested not in view.fold.committed:
                view = yield from self._import(view, each, adopted=adopted)
        if found:
            view = yield from self.publisher.publish(view)
        return view, Look(gone, view.fold.time, _begun(view, listed, self.folder))

    def _differences(
        self, view: View, listed: Sequence[ObjectMeta]
    ) -> tuple[frozenset[str], dict[str, _Done]]:
        """Return the commits that are missing from the timeline, and those without an entry."""
        return _gone(view, listed, self.folder), _unknown(view, listed, self.folder)

    def _import(self, view: View, done: _Done, *, adopted: bool) -> Steps[View]:
        instant, body = done.instant, done.body
        needed = instant.action.writes_data or instant.action in _UNDOING
        if not body and needed and not adopted:
            held: StoredObject | None = yield Get(done.key)
            body = b"" if held is None else held.body
        fact = _fact(instant, body, done.key)
        if instant.action in _UNDOING and body:
            fact = yield from _with_undone(view, fact, body, done.key, self.folder)
        return (yield from _append(view, fact, self.owner))


@dataclass(frozen=True, slots=True)
class _Done:
    """A completed instant, where it lies, and what it says if that was read with it."""

    instant: Instant
    key: str
    body: bytes = b""
    written_epoch_ms: int | None = None


def _with_plans(view: View, listed: Sequence[ObjectMeta], folder: str) -> View:
    for instant, _ in instants_in(listed, folder):
        if instant.action in ADOPTED and not instant.is_completed:
            view = replace(view, planned=max(view.planned, instant.requested))
    return view


def _gone(view: View, listed: Sequence[ObjectMeta], folder: str) -> frozenset[str]:
    """Return the commits of the ledger that should be on the timeline, and are not."""
    there = {instant.requested for instant, _ in instants_in(listed, folder)}
    facts = (entry.fact for entry in view.unpublished())
    there |= {fact.instant for fact in facts if isinstance(fact, Commit)}
    fold = view.fold
    return frozenset(
        each
        for each in fold.committed
        if each not in there and each >= fold.archived and each not in fold.void
    )


def _begun(view: View, listed: Sequence[ObjectMeta], folder: str) -> dict[str, tuple[State, int]]:
    """Return the writes on the timeline that have begun and not ended, and are in no plan."""
    fold, found = view.fold, tuple(instants_in(listed, folder))
    done = {instant.requested for instant, _ in found if instant.is_completed}
    begun: dict[str, tuple[State, int]] = {}
    for each, meta in found:
        known = each.requested in done or each.requested in fold.plans
        if each.action in _WRITES and not known and not fold.is_settled(each.requested):
            state = (each.state, meta.modified_epoch_ms)
            begun[each.requested] = max(state, begun.get(each.requested, state))
    return begun


def _unknown(view: View, listed: Sequence[ObjectMeta], folder: str) -> dict[str, _Done]:
    """Return the completed instants on the timeline that have no entry, by request time."""
    found: dict[str, _Done] = {}
    for instant, meta in instants_in(listed, folder):
        if instant.is_completed and _counts(instant.action, instant.requested, view.fold):
            done = _Done(instant, meta.key, b"", meta.modified_epoch_ms)
            found.setdefault(instant.requested, done)
    return found


def _archived(view: View, history: Sequence[ArchivedInstant], folder: str) -> dict[str, _Done]:
    """Return the archived instants that have no entry, by request time."""
    return {
        each.requested: _Done(
            Instant(each.requested, each.action, State.COMPLETED, each.completion),
            f"{folder}: {each.requested}",
            each.metadata,
        )
        for each in history
        if _counts(each.action, each.requested, view.fold)
    }


def _check_zone(done: _Done) -> None:
    """Refuse to go on from a commit whose file is hours older, or younger, than its name says.

    Its writer stamps times in its own zone, though the table is one in UTC (C112): what it wrote
    may be hidden by what was there, and would be lost for good by the next write.
    """
    completion = done.instant.completion
    if done.written_epoch_ms is None:
        return
    ahead_ms = off_utc_ms(completion, done.written_epoch_ms)
    if ahead_ms:
        way = "ahead of" if ahead_ms > 0 else "behind"
        raise Unsupported(
            f"{done.key} was completed {abs(ahead_ms) / 3_600_000:.1f} h {way} UTC by its name: its"
            " writer is in another time zone, and rows of it may be hidden by older ones",
            hint="run that writer with -Duser.timezone=UTC; when its rows are there, set"
            f" {TIMEZONE_POLICY.key}=utc to go on from its commits as they are",
        )


def off_utc_ms(time: str, written_epoch_ms: int) -> int:
    """Return by how much a time is off UTC if that is by a time zone; 0 if it is not.

    Clocks differ by less, and are not off by quarters of an hour.
    """
    try:
        off_ms = parse_time(time) - written_epoch_ms
    except InvalidInput:
        return 0
    quarter = round(off_ms / _QUARTER_MS)
    near = abs(off_ms - quarter * _QUARTER_MS) < _CLOCK_MS
    return off_ms if quarter and near and abs(off_ms) < _ZONE_MAX_MS else 0


def _counts(action: Action, requested: str, fold: Fold) -> bool:
    return (action.writes_data or action in _PLAIN) and not fold.is_settled(requested)


def _before(time: str) -> str:
    """Return a time that nothing was completed before which was not there at `time`."""
    return format_time(max(0, parse_time(time) - _CLOCKS_MS))


def _append(view: View, fact: Foreign, owner: str) -> Steps[View]:
    def propose(seen: View) -> Fact | No[str]:
        undoes = tuple(each for each in fact.undoes if not seen.fold.is_over(each))
        ends = tuple(each for each in fact.ends if each in seen.fold.plans)
        now = replace(fact, undoes=undoes, ends=ends)
        problem = lawful(now, seen.fold)
        return now if problem is None else No(problem)

    # Doubt does no harm here: the next one to look finds the instant with or without an entry.
    return (yield from append(view, propose, owner=owner)).view


def _fact(instant: Instant, body: bytes, where: str) -> Foreign:
    footprint = Footprint(_PLAIN.get(instant.action, Deed.UPSERT), everything=True)
    schema = ""
    if body and instant.action.writes_data:
        replaces = instant.action is Action.REPLACE_COMMIT
        metadata = decode(ReplaceCommitMetadata if replaces else CommitMetadata, body, where=where)
        footprint, schema = footprint_of(metadata), schema_id_of(metadata.schema_json)
    return Foreign(instant.requested, instant.action, instant.completion, footprint, schema)


def _with_undone(view: View, fact: Foreign, body: bytes, where: str, folder: str) -> Steps[Foreign]:
    """Return a rollback or restore with what it undid (C100).

    Java's executors take an attempt back by a rollback of the plan's instant, and leave the plan
    on the timeline; what is gone from there is undone, complete or not: its files are gone, too.
    """
    fold = view.fold
    undoes: list[str] = []
    ends: list[str] = []
    for instant in (each for each in _named_by(fact.action, body, where) if not fold.is_over(each)):
        listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
        if not any(left.requested == instant for left, _ in instants_in(listed, folder)):
            undoes.append(instant)
        elif instant in fold.plans:
            ends.append(instant)
    fact = replace(fact, undoes=tuple(undoes), ends=tuple(ends))
    complete = [instant for instant in undoes if instant in fold.committed]
    if not complete:
        return fact
    logger.warning(
        "the %s %s of a writer that keeps no ledger took back completed commits: %s",
        fact.action.value,
        fact.instant,
        ", ".join(complete),
    )
    # Whoever has read what is gone must read the table again, as after a restore of ours.
    schema = yield from newest_schema(folder, complete)
    marks = yield from marks_left(view, complete)
    footprint = replace(fact.footprint, deed=Deed.RESTORE)
    return replace(fact, footprint=footprint, schema_id=schema, marks=marks)


def _named_by(action: Action, body: bytes, where: str) -> tuple[str, ...]:
    """Return the instants that a rollback or restore says it took back."""
    if action is Action.ROLLBACK:
        return tuple(decode(RollbackMetadata, body, where=where).commits_rollback)
    said = decode(RestoreMetadata, body, where=where)
    told = (info.commit_time for info in said.restore_instant_info)
    return tuple(dict.fromkeys((*said.instants_to_rollback, *told)))


def footprint_of(metadata: CommitMetadata) -> Footprint:
    """Return what a commit did, from what it says about itself."""
    touched: set[GroupId] = set()
    appended: set[GroupId] = set()
    created: set[GroupId] = set()
    inserts: dict[str, NewKeys] = {}
    for partition, stats in metadata.partition_to_write_stats.items():
        for stat in stats:
            if stat.file_id is None:
                continue
            group = (partition, stat.file_id)
            if stat.prev_commit in (None, NO_COMMIT, "") and not _is_log(stat):
                created.add(group)
            else:
                touched.add(group)
                if _is_log(stat):
                    appended.add(group)
            if stat.num_inserts and stat.path:
                known = inserts.get(partition, NewKeys(None)).files
                inserts[partition] = NewKeys(None, (*known, stat.path))
    replaced = frozenset(
        (partition, file_id)
        for partition, file_ids in getattr(metadata, "partition_to_replace_file_ids", {}).items()
        for file_id in file_ids
    )
    deed = deed_of(metadata.operation_type)
    intents: frozenset[str] | None = frozenset()
    if deed is Deed.OVERWRITE_TABLE:
        intents = None
    elif deed in _OVERWRITES:
        intents = frozenset({*metadata.partition_to_write_stats, *(p for p, _ in replaced)})
    return Footprint(
        deed=deed,
        touched=frozenset(touched),
        appended=frozenset(appended),
        created=frozenset(created),
        replaced=replaced,
        intents=intents,
        deletes=has_deletes(metadata),
        inserts={} if deed in (Deed.CLUSTERING, Deed.COMPACTION, Deed.LOG_COMPACTION) else inserts,
    )


def _is_log(stat: WriteStat) -> bool:
    name = (stat.path or "").rpartition("/")[2]
    return name.startswith(".") and ".log." in name
