"""Rolls back instants: the decision is appended to the ledger, then files are deleted (C54-C59)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelock.hudi.file_groups import data_file, parse_token
from tidelock.hudi.markers import marker_folder, parse_marker
from tidelock.hudi.timeline.active import instants_in_listing
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, parse_instant
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    InstantInfo,
    ReplaceCommitMetadata,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode,
)
from tidelock.storage.contract import ObjectMeta, StoredObject
from tidelock.txn.app_transactions import AppliedTransaction
from tidelock.txn.effects import Delete, Get, List, Steps
from tidelock.txn.entries import (
    Claim,
    Commit,
    Fact,
    LedgerEntry,
    PlanRollback,
    PriorityTicket,
    Rollback,
)
from tidelock.txn.footprint import CommitKind, schema_id_of
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.ledger_io import (
    Appended,
    Decline,
    Declined,
    Undetermined,
    append,
    forward,
    history,
)
from tidelock.txn.state import NO_EVIDENCE, Evidence, View, committed_txn, validate_entry


@dataclass(frozen=True, slots=True)
class RolledBackInstant:
    """A rolled back instant and its deleted data files."""

    instant: str
    files: tuple[str, ...] = ()
    action: str = "commit"


def rollback_plan(instant: str, action: str, files: Iterable[str], *, base: str) -> RollbackPlan:
    """Return the plan to roll back an instant: one request per file, in Hudi's format.

    `base` is the table's base path; Java deletes by absolute paths.
    """
    return RollbackPlan(
        instant_to_rollback=InstantInfo(instant, action),
        rollback_requests=tuple(
            RollbackRequest(file.rpartition("/")[0], files_to_be_deleted=(f"{base}/{file}",))
            for file in sorted(files)
        ),
    )


def rollback_metadata(
    rollback: str, rolled_back: Sequence[RolledBackInstant], *, took_ms: int, base: str
) -> RollbackMetadata:
    """Return the metadata of a completed rollback."""
    by_partition: dict[str, list[str]] = {}
    for each in rolled_back:
        for file in each.files:
            by_partition.setdefault(file.rpartition("/")[0], []).append(f"{base}/{file}")
    return RollbackMetadata(
        start_rollback_time=rollback,
        time_taken_in_millis=took_ms,
        total_files_deleted=sum(len(each.files) for each in rolled_back),
        commits_rollback=tuple(each.instant for each in rolled_back),
        partition_metadata={
            partition: RollbackPartition(partition, success_delete_files=tuple(files))
            for partition, files in sorted(by_partition.items())
        },
        instants_rollback=tuple(InstantInfo(each.instant, each.action) for each in rolled_back),
    )


def restore_plan(instants: Iterable[tuple[str, str]], *, to: str) -> RestorePlan:
    """Return the plan to restore the table as of `to` by rolling back these instants."""
    return RestorePlan(
        instants_to_rollback=tuple(InstantInfo(instant, action) for instant, action in instants),
        savepoint_to_restore_timestamp=to,
    )


def restore_metadata(
    restore: str, rolled_back: Sequence[RolledBackInstant], *, took_ms: int, base: str
) -> RestoreMetadata:
    """Return the metadata of a completed restore: one rollback per instant."""
    return RestoreMetadata(
        start_restore_time=restore,
        time_taken_in_millis=took_ms,
        instants_to_rollback=tuple(each.instant for each in rolled_back),
        hoodie_restore_metadata={
            each.instant: (rollback_metadata(restore, (each,), took_ms=took_ms, base=base),)
            for each in rolled_back
        },
        restore_instant_info=tuple(InstantInfo(each.instant, each.action) for each in rolled_back),
    )


logger = logging.getLogger(__name__)

_SIDE_FILES: Final = ("MARKERS.type",)


def decide(
    view: View, fact: Fact, *, seen: Evidence = NO_EVIDENCE, owner: str
) -> Steps[Appended | Declined[str] | Undetermined]:
    """Append the fact if it is valid.

    For the rollback of an aborted instant the result is `Declined`; the caller may then remove its
    files.
    """

    def propose(now: View) -> Fact | Decline[str]:
        problem = validate_entry(fact, now.state, seen, owner=owner)
        return fact if problem is None else Decline(problem)

    return (yield from append(view, propose, owner=owner))


def decide_plan(
    view: View,
    fact: PlanRollback,
    *,
    base: int,
    seen: Evidence,
    owner: str,
    attempt: int | None = None,
) -> Steps[Appended | Declined[str] | Undetermined]:
    """Append a plan to roll back instants, made from the table at position `base`.

    C85: completed commits are rolled back only if nothing was committed or planned since that may
    depend on them. `attempt` is the last attempt at a pending plan that was found dead.
    """
    older = (yield from history(view, base)) if fact.complete else ()
    first = view.position

    def propose(now: View) -> Fact | Decline[str]:
        problem = validate_entry(fact, now.state, seen, owner=owner)
        if problem is not None:
            return Decline(problem)
        for plan in () if attempt is None else map(now.state.plans.get, fact.instants):
            # C69: a later executor was not checked and may be alive.
            if plan is not None and plan.attempt != attempt:
                return Decline(f"{plan.instant} was claimed by another executor in the meantime")
        entries = older if now.position == first else now.since(base)
        if fact.complete and (entries is None or base < now.state.boundary):
            return Decline("too many commits since it was planned to check it")
        for entry in (entries or ()) if fact.complete else ():
            if _invalidates_plan(entry):
                return Decline(f"entry {entry.position} was appended since it was planned")
        return fact

    return (yield from append(view, propose, owner=owner))


def _invalidates_plan(entry: LedgerEntry) -> bool:
    """Return whether an entry may depend on the table before it, or change what is planned."""
    if isinstance(entry.fact, Claim | PriorityTicket | Rollback):
        return False
    past = committed_txn(entry)
    return past is None or past.footprint.commit_kind is not CommitKind.ROLLBACK


def remove_files(
    instant: str, *, marked: bool, known: Iterable[str] = ()
) -> Steps[RolledBackInstant]:
    """Delete the data files of an aborted instant, then its markers.

    With `marked`, every data file had a marker before it was written; `known` are further files.
    Without it, the whole table is listed.
    """
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    files = set(known) | (yield from _marked(instant, listed))
    if not marked:
        files |= yield from files_of([instant])
    for file in sorted(files):
        yield Delete(file)
    for meta in listed:
        yield Delete(meta.key)
    return RolledBackInstant(instant, tuple(sorted(files)))


def marked_files(instant: str) -> Steps[set[str]]:
    """Return the data files of an instant that have a marker."""
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    return (yield from _marked(instant, listed))


def _marked(instant: str, listed: Iterable[ObjectMeta]) -> Steps[set[str]]:
    folder = marker_folder(instant)
    files: set[str] = set()
    for meta in listed:
        path = meta.key.removeprefix(folder)
        marker = parse_marker(path)
        if marker is not None:
            files.add(marker.data_key)
        elif not path.endswith(_SIDE_FILES):
            files |= yield from _server_marked(meta.key)
    return files


def _server_marked(key: str) -> Steps[set[str]]:
    """Return the data files in a file of a Java marker server."""
    found: StoredObject | None = yield Get(key)
    lines = found.body.decode("utf-8", "replace").splitlines() if found else []
    return {marker.data_key for line in lines if (marker := parse_marker(line)) is not None}


def files_of(instants: Iterable[str]) -> Steps[set[str]]:
    """Return all data files of some instants, by listing the whole table."""
    write_set = frozenset(instants)
    listed: tuple[ObjectMeta, ...] = yield List("")
    found: set[str] = set()
    for meta in listed:
        partition, _, name = meta.key.rpartition("/")
        if partition == ".hoodie" or partition.startswith(".hoodie/"):
            continue
        file = data_file(partition, name, meta.size_bytes)
        if file is not None and file.instant in write_set:
            found.add(meta.key)
    return found


def attempt_of(key: str) -> int | None:
    """Return the attempt in the name of a data file or marker: the middle of its write token."""
    name = key.rpartition("/")[2].partition(".marker.")[0].removesuffix(".cdc")
    for piece in name.removesuffix(".parquet").split("_"):
        token = parse_token(piece)
        if token is not None:
            return token.stage
    return None


def remove_rolled_back(
    instant: str, *, folder: str, marked: bool, known: Iterable[str] = ()
) -> Steps[RolledBackInstant]:
    """Remove everything of an aborted instant, which may have completed.

    C55: the completed file is deleted first, so that readers stop using the data files before they
    are deleted.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
    states = [
        (found, meta.key)
        for found, meta in instants_in_listing(listed, folder)
        if found.requested == instant
    ]
    states.sort(key=lambda pair: -pair[0].state)
    actions = [found.action.value for found, _ in states if found.action is not Action.SAVEPOINT]
    for found, key in states:
        if found.is_completed:
            yield Delete(key)
    rolled_back = yield from remove_files(instant, marked=marked, known=known)
    for found, key in states:
        if not found.is_completed:
            yield Delete(key)
    yield Delete(heartbeat_key(instant))
    return replace(rolled_back, action=actions[0]) if actions else rolled_back


def remove_pending_files(instant: str, action: Action, *, folder: str) -> Steps[None]:
    """Delete the instant's files on the timeline, last state first, and its heartbeat."""
    requested = Instant(instant, action, InstantState.REQUESTED)
    yield Delete(f"{folder}/{requested.started().file_name}")
    yield Delete(f"{folder}/{requested.file_name}")
    yield Delete(heartbeat_key(instant))


def previous_app_transactions(
    view: View, rolled_back: Iterable[str]
) -> Steps[dict[str, AppliedTransaction | None]]:
    """Return the previous transaction of each application whose last batch is rolled back (C82).

    None if there was none. Applications whose previous entries are no longer kept are left out.
    """
    taken, state = {*rolled_back}, view.state
    lost = {name for name, held in state.app_transactions.items() if held.instant in taken}
    if not lost:
        return {}
    entries = yield from history(view, view.boundary)
    if entries is None:
        # The boundary has moved in the meantime.
        view = yield from forward(view)
        entries = yield from history(view, view.boundary)
    left: dict[str, AppliedTransaction | None] = {}
    if entries is not None:
        first = {} if view.boundary else dict.fromkeys(lost)
        left = _last_transactions(entries, lost, taken | {*state.aborted}, first)
    for name in sorted(lost - left.keys()):
        logger.warning(
            "the batch of %r before the rolled back one is not known: its batches up to %d"
            " count as applied; to write them again, number them above that",
            name,
            state.app_transactions[name].app_transaction.version,
        )
    return left


def _last_transactions(
    entries: Iterable[LedgerEntry],
    names: Collection[str],
    gone: Collection[str],
    first: Mapping[str, AppliedTransaction | None],
) -> dict[str, AppliedTransaction | None]:
    """Return the last transactions in the entries, without those of `gone`; `first` are older ones.

    Each batch names its predecessor, so an application's first entry gives one batch more.
    """
    left = dict(first)
    for entry in entries:
        fact = entry.fact
        if not isinstance(fact, Commit) or fact.action is Action.SAVEPOINT:
            continue
        batch = fact.app_transaction
        if batch is None or (name := batch.app_id) not in names:
            continue
        if fact.instant not in gone:
            left[name] = AppliedTransaction(batch, fact.instant, entry.time)
        elif name not in left and name in fact.follows:
            before = fact.follows[name]
            if before is None or before.instant not in gone:
                left[name] = before
    return left


def newest_schema(folder: str, gone: Collection[str]) -> Steps[str]:
    """Return the schema id of the newest completed write on the timeline, "" if there is none.

    Commits in `gone` are skipped: their schema is rolled back with them.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found = (parse_instant(meta.key.removeprefix(f"{folder}/")) for meta in listed)
    writes = [i for i in found if i is not None and i.is_completed and i.action.writes_data]
    for instant in sorted(writes, reverse=True):
        key = f"{folder}/{instant.file_name}"
        held: StoredObject | None = yield Get(key)
        if held is None or instant.requested in gone:
            continue
        if schema := commit_metadata(instant.action, held.body, where=key).schema_json:
            return schema_id_of(schema)
    return ""


def commit_metadata(action: Action, body: bytes, *, where: str) -> CommitMetadata:
    """Return the metadata of a completed write. Raises: `DataCorrupt`."""
    kind = ReplaceCommitMetadata if action is Action.REPLACE_COMMIT else CommitMetadata
    return decode(kind, body, where=where)
