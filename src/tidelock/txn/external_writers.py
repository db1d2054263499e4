"""Imports the commits of external writers, which keep no ledger, such as Hudi on Java (C34-C37)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.core.errors import DataCorrupt, InvalidInput, Unsupported
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.timeline.active import consistent_listing, instants_in_listing
from tidelock.hudi.timeline.history import ArchivedInstant
from tidelock.hudi.timeline.instant import (
    Action,
    Instant,
    InstantState,
    format_time,
    latest_states,
    parse_time,
)
from tidelock.hudi.timeline.metadata import (
    NO_COMMIT,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    RequestedReplaceMetadata,
    RestoreMetadata,
    RollbackMetadata,
    SliceInfo,
    WriteStat,
    decode,
)
from tidelock.storage.contract import ObjectMeta, StoredObject
from tidelock.txn.commit import has_deletes
from tidelock.txn.config import TIMEZONE_POLICY
from tidelock.txn.effects import Get, List, ReadHistory, Steps
from tidelock.txn.entries import Commit, ExternalCommit, Fact
from tidelock.txn.footprint import (
    SERVICES,
    CommitKind,
    Footprint,
    NewKeys,
    commit_kind_of,
    schema_id_of,
)
from tidelock.txn.ledger_io import Decline, Publisher, append, forward
from tidelock.txn.rollback import commit_metadata, newest_schema, previous_app_transactions
from tidelock.txn.state import LedgerState, View, validate_entry

IMPORTED_ACTIONS: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
"""Table services whose external plans are imported."""


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """A file group in a plan, and the names of its files that the plan reads."""

    group: GroupId
    base: str
    logs: frozenset[str]


def planned_slices(action: Action, body: bytes, *, where: str) -> tuple[PlannedSlice, ...]:
    """Return the file slices that a plan reads. Raises: `DataCorrupt` if it cannot be decoded."""
    slices: Iterable[CompactionOperation | SliceInfo]
    if action is Action.CLUSTERING:
        plan = decode(RequestedReplaceMetadata, body, where=where).clustering_plan
        if plan is None:
            raise DataCorrupt(f"{where} has no clustering plan")
        slices = (each for group in plan.input_groups or () for each in group.slices or ())
    else:
        slices = decode(CompactionPlan, body, where=where).operations or ()
    return tuple(
        PlannedSlice(
            (each.partition_path or "", each.file_id or ""),
            _name(each.data_file_path or ""),
            frozenset(map(_name, each.delta_file_paths or ())),
        )
        for each in slices
    )


def external_plan_targets(state: LedgerState, *, folder: str) -> Steps[frozenset[GroupId]]:
    """Return the file groups in pending plans that are not in the ledger.

    Complete only under a lock that the external writers take as well.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found: set[GroupId] = set()
    for instant in latest_states(each for each, _ in instants_in_listing(listed, folder)):
        requested = instant.requested
        known = requested in state.plans or state.is_resolved(requested)
        if instant.is_completed or instant.action not in IMPORTED_ACTIONS or known:
            continue
        key = f"{folder}/{Instant(requested, instant.action, InstantState.REQUESTED).file_name}"
        held: StoredObject | None = yield Get(key)
        if held is not None:
            slices = planned_slices(instant.action, held.body, where=key)
            found.update(each.group for each in slices)
    return frozenset(found)


def _name(path: str) -> str:
    """Return a file name without its folders, which some plans include."""
    return path.rpartition("/")[2]


logger = logging.getLogger(__name__)

_PLAIN: Final = {
    Action.CLEAN: CommitKind.CLEAN,
    Action.ROLLBACK: CommitKind.ROLLBACK,
    Action.RESTORE: CommitKind.RESTORE,
}
_ROLLBACKS: Final = (Action.ROLLBACK, Action.RESTORE)
_WRITES: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_QUARTER_MS: Final = 900_000
_CLOCK_MS: Final = 180_000
_ZONE_MAX_MS: Final = 15 * 3_600_000
_CLOCKS_MS: Final = 86_400_000
"""How far the clock of an external writer may be behind when its commits are searched by time."""
_OVERWRITES: Final = (CommitKind.OVERWRITE, CommitKind.OVERWRITE_TABLE, CommitKind.DELETE_PARTITION)


@dataclass(frozen=True, slots=True)
class TimelineScan:
    """The result of a timeline scan, and the time of the ledger at the scan.

    `missing` are commits of the ledger that an external writer has archived. `pending` are the
    unfinished writes of all writers: the latest state of each, and when it was written.
    """

    missing: frozenset[str]
    time: str
    pending: Mapping[str, tuple[InstantState, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Importer:
    """Finds and imports instants that were completed by external writers."""

    folder: str
    history_folder: str
    owner: str
    publisher: Publisher
    checks_zones: bool = True

    def scan(self, view: View, last: TimelineScan | None) -> Steps[tuple[View, TimelineScan]]:
        """Append an entry for every completed instant without one, by completion time.

        `last` is the result of the previous scan, None for the first one, which imports the table
        as it is. Instants that were completed and archived in between are read from the archived
        history. Raises: `Unsupported` for a commit since `last` whose times are not in UTC.
        """
        listed: tuple[ObjectMeta, ...] = yield List(f"{self.folder}/")
        missing, found = self._differences(view, listed)
        if found or (last is not None and not missing <= last.missing):
            # Instants that other processes of ours completed or archived have an entry by now.
            view = yield from forward(view)
            missing, found = self._differences(view, listed)
        if found or (last is not None and not missing <= last.missing):
            # C104: the listing may lack instants that completed before one it contains. If nothing
            # differs, they may as well have completed after the listing.
            again: tuple[ObjectMeta, ...] = yield List(f"{self.folder}/")
            listed = consistent_listing(listed, again, self.folder)
            view = yield from forward(view)
            missing, found = self._differences(view, listed)
        view = _with_plans(view, listed, self.folder)
        if last is not None and not missing <= last.missing:
            history = yield ReadHistory(self.history_folder, _before(last.time))
            archived = _archived(view, history, self.history_folder)
            missing, found = missing | archived.keys(), {**archived, **found}
        if last is not None and self.checks_zones:
            for each in found.values():
                _check_zone(each)
        # C36: a process that has read nothing of this ledger has nothing to check, so the history
        # of a newly imported table needs no details.
        first_import = view.position == 0
        for each in sorted(found.values(), key=lambda done: done.instant.completion):
            if each.instant.requested not in view.state.committed:
                view = yield from self._import(view, each, first_import=first_import)
        if found:
            view = yield from self.publisher.publish(view)
        return view, TimelineScan(
            missing, view.state.time, _pending_writes(view, listed, self.folder)
        )

    def _differences(
        self, view: View, listed: Sequence[ObjectMeta]
    ) -> tuple[frozenset[str], dict[str, _Done]]:
        """Return the commits that are missing from the timeline, and instants without an entry."""
        state, facts = view.state, (entry.fact for entry in view.unpublished())
        there = {fact.instant for fact in facts if isinstance(fact, Commit)}
        found: dict[str, _Done] = {}
        for instant, meta in instants_in_listing(listed, self.folder):
            there.add(instant.requested)
            if instant.is_completed and _is_importable(instant.action, instant.requested, state):
                done = _Done(instant, meta.key, b"", meta.modified_epoch_ms)
                found.setdefault(instant.requested, done)
        missing = frozenset(
            each
            for each in state.committed
            if each not in there and each >= state.archived and each not in state.aborted
        )
        return missing, found

    def _import(self, view: View, done: _Done, *, first_import: bool) -> Steps[View]:
        instant, body = done.instant, done.body
        needed = instant.action.writes_data or instant.action in _ROLLBACKS
        if not body and needed and not first_import:
            held: StoredObject | None = yield Get(done.key)
            body = b"" if held is None else held.body
        fact = _fact(instant, body, done.key)
        if instant.action in _ROLLBACKS and body:
            fact = yield from _with_rolled_back(view, fact, body, done.key, self.folder)
        return (yield from _append(view, fact, self.owner))


@dataclass(frozen=True, slots=True)
class _Done:
    """A completed instant, its location, and its content if that is already known."""

    instant: Instant
    key: str
    body: bytes = b""
    written_epoch_ms: int | None = None


def _with_plans(view: View, listed: Sequence[ObjectMeta], folder: str) -> View:
    for instant, _ in instants_in_listing(listed, folder):
        if instant.action in IMPORTED_ACTIONS and not instant.is_completed:
            view = replace(view, planned=max(view.planned, instant.requested))
    return view


def _pending_writes(
    view: View, listed: Sequence[ObjectMeta], folder: str
) -> dict[str, tuple[InstantState, int]]:
    """Return the pending writes on the timeline that belong to no plan."""
    state, found = view.state, tuple(instants_in_listing(listed, folder))
    done = {instant.requested for instant, _ in found if instant.is_completed}
    pending: dict[str, tuple[InstantState, int]] = {}
    for each, meta in found:
        known = each.requested in done or each.requested in state.plans
        if each.action in _WRITES and not known and not state.is_resolved(each.requested):
            reached = (each.state, meta.modified_epoch_ms)
            pending[each.requested] = max(reached, pending.get(each.requested, reached))
    return pending


def _archived(view: View, history: Sequence[ArchivedInstant], folder: str) -> dict[str, _Done]:
    """Return the archived instants without an entry, by request time."""
    return {
        each.requested: _Done(
            Instant(each.requested, each.action, InstantState.COMPLETED, each.completion),
            f"{folder}: {each.requested}",
            each.metadata,
        )
        for each in history
        if _is_importable(each.action, each.requested, view.state)
    }


def _check_zone(done: _Done) -> None:
    """Raise `Unsupported` for a commit whose file is hours older or newer than its name says.

    Its writer uses local time although the table is in UTC (C112). Its rows may be hidden by older
    ones, and the next write would lose them permanently.
    """
    if done.written_epoch_ms is None:
        return
    if ahead_ms := off_utc_ms(done.instant.completion, done.written_epoch_ms):
        way = "ahead of" if ahead_ms > 0 else "behind"
        raise Unsupported(
            f"{done.key} was completed {abs(ahead_ms) / 3_600_000:.1f} h {way} UTC by its name: its"
            " writer uses another time zone, and older rows may hide its rows",
            hint="run that writer with -Duser.timezone=UTC; once its rows are visible, set"
            f" {TIMEZONE_POLICY.key}=utc to accept its commits",
        )


def off_utc_ms(time: str, written_epoch_ms: int) -> int:
    """Return the offset of a time from UTC if it looks like a time zone, 0 otherwise.

    Clock errors are smaller, and not multiples of a quarter of an hour.
    """
    try:
        off_ms = parse_time(time) - written_epoch_ms
    except InvalidInput:
        return 0
    quarter = round(off_ms / _QUARTER_MS)
    near = abs(off_ms - quarter * _QUARTER_MS) < _CLOCK_MS
    return off_ms if quarter and near and abs(off_ms) < _ZONE_MAX_MS else 0


def _is_importable(action: Action, requested: str, state: LedgerState) -> bool:
    return (action.writes_data or action in _PLAIN) and not state.is_resolved(requested)


def _before(time: str) -> str:
    """Return a lower bound for the completion times of instants that were not there at `time`."""
    return format_time(max(0, parse_time(time) - _CLOCKS_MS))


def _append(view: View, fact: ExternalCommit, owner: str) -> Steps[View]:
    def propose(seen: View) -> Fact | Decline[str]:
        rolls_back = tuple(each for each in fact.rolls_back if not seen.state.is_over(each))
        ends = tuple(each for each in fact.ends if each in seen.state.plans)
        now = replace(fact, rolls_back=rolls_back, ends=ends)
        problem = validate_entry(now, seen.state)
        return now if problem is None else Decline(problem)

    # An unknown outcome is harmless: the next scan finds the instant with or without an entry.
    return (yield from append(view, propose, owner=owner)).view


def _fact(instant: Instant, body: bytes, where: str) -> ExternalCommit:
    footprint = Footprint(_PLAIN.get(instant.action, CommitKind.UPSERT), everything=True)
    schema = ""
    if body and instant.action.writes_data:
        metadata = commit_metadata(instant.action, body, where=where)
        footprint, schema = footprint_of(metadata), schema_id_of(metadata.schema_json)
    return ExternalCommit(instant.requested, instant.action, instant.completion, footprint, schema)


def _with_rolled_back(
    view: View, fact: ExternalCommit, body: bytes, where: str, folder: str
) -> Steps[ExternalCommit]:
    """Return a rollback or restore with the instants that it removed (C100).

    Java rolls back an attempt at a plan with a rollback of the plan's instant, and leaves the plan
    on the timeline. Instants that are no longer on the timeline were rolled back, complete or
    not, and their files were deleted.
    """
    state = view.state
    rolls_back: list[str] = []
    ends: list[str] = []
    for instant in _named_by(fact.action, body, where):
        if state.is_over(instant):
            continue
        listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
        if not any(left.requested == instant for left, _ in instants_in_listing(listed, folder)):
            rolls_back.append(instant)
        elif instant in state.plans:
            ends.append(instant)
    fact = replace(fact, rolls_back=tuple(rolls_back), ends=tuple(ends))
    complete = [instant for instant in rolls_back if instant in state.committed]
    if not complete:
        return fact
    logger.warning(
        "the %s %s of an external writer rolled back completed commits: %s",
        fact.action.value,
        fact.instant,
        ", ".join(complete),
    )
    # A write that read the removed commits must read the table again, as after our own restore.
    schema = yield from newest_schema(folder, complete)
    app_transactions = yield from previous_app_transactions(view, complete)
    footprint = replace(fact.footprint, commit_kind=CommitKind.RESTORE)
    return replace(fact, footprint=footprint, schema_id=schema, app_transactions=app_transactions)


def _named_by(action: Action, body: bytes, where: str) -> tuple[str, ...]:
    """Return the instants that a rollback or restore names as rolled back."""
    if action is Action.ROLLBACK:
        return tuple(decode(RollbackMetadata, body, where=where).commits_rollback)
    metadata = decode(RestoreMetadata, body, where=where)
    removed = (info.commit_time for info in metadata.restore_instant_info)
    return tuple(dict.fromkeys((*metadata.instants_to_rollback, *removed)))


def footprint_of(metadata: CommitMetadata) -> Footprint:
    """Return the footprint of a commit, derived from its metadata."""
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
    commit_kind = commit_kind_of(metadata.operation_type)
    intents: frozenset[str] | None = frozenset()
    if commit_kind is CommitKind.OVERWRITE_TABLE:
        intents = None
    elif commit_kind in _OVERWRITES:
        intents = frozenset({*metadata.partition_to_write_stats, *(p for p, _ in replaced)})
    return Footprint(
        commit_kind=commit_kind,
        touched=frozenset(touched),
        appended=frozenset(appended),
        created=frozenset(created),
        replaced=replaced,
        intents=intents,
        deletes=has_deletes(metadata),
        inserts={} if commit_kind in SERVICES else inserts,
    )


def _is_log(stat: WriteStat) -> bool:
    name = (stat.path or "").rpartition("/")[2]
    return name.startswith(".") and ".log." in name
