"""Commits of writers that know no ledger, taken into the order (C34-C37)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, format_time, parse_instant
from tidelock.table.timeline.metadata import (
    NO_COMMIT,
    CommitMetadata,
    ReplaceCommitMetadata,
    RollbackMetadata,
    WriteStat,
)
from tidelock.txn.appending import No, append
from tidelock.txn.draft import deed_of, schema_id_of
from tidelock.txn.effects import Get, List, Steps
from tidelock.txn.entry import Fact, Foreign
from tidelock.txn.fold import Fold, lawful
from tidelock.txn.footprint import Deed, Footprint, NewKeys
from tidelock.txn.foreignplans import ADOPTED
from tidelock.txn.publishing import Publisher
from tidelock.txn.view import View

_PLAIN: Final = {
    Action.CLEAN: Deed.CLEAN,
    Action.ROLLBACK: Deed.ROLLBACK,
    Action.RESTORE: Deed.RESTORE,
}
_OVERWRITES: Final = (Deed.OVERWRITE, Deed.OVERWRITE_TABLE, Deed.DELETE_PARTITION)


def import_foreign(view: View, *, folder: str, owner: str, publisher: Publisher) -> Steps[View]:
    """Give every completed instant on the timeline that has no entry one, by completion time."""
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found: dict[str, tuple[Instant, str]] = {}
    for meta in listed:
        name = meta.key.removeprefix(f"{folder}/")
        instant = parse_instant(name)
        if instant is not None and instant.action in ADOPTED and not instant.is_completed:
            view = replace(view, planned=max(view.planned, instant.requested))
        if instant is None or not instant.is_completed or view.fold.is_settled(instant.requested):
            continue
        if not (instant.action.writes_data or instant.action in _PLAIN):
            continue
        if not instant.completion:
            instant = replace(instant, completion=format_time(meta.modified_epoch_ms))
        found.setdefault(instant.requested, (instant, meta.key))
    # C36: whoever has read nothing of this ledger has nothing to judge, so an adopted table's
    # past needs no details.
    adopted = view.position == 0
    for instant, key in sorted(found.values(), key=lambda pair: pair[0].completion):
        if instant.requested not in view.fold.committed:
            fact = yield from _fact(instant, key, adopted=adopted)
            if instant.action is Action.ROLLBACK and not adopted:
                fact = yield from _with_undone(view.fold, fact, key, folder)
            view = yield from _append(view, fact, owner)
    return (yield from publisher.publish(view)) if found else view


def _append(view: View, fact: Foreign, owner: str) -> Steps[View]:
    def propose(seen: View) -> Fact | No[str]:
        undoes = tuple(each for each in fact.undoes if not seen.fold.is_settled(each))
        ends = tuple(each for each in fact.ends if each in seen.fold.plans)
        now = replace(fact, undoes=undoes, ends=ends)
        problem = lawful(now, seen.fold)
        return now if problem is None else No(problem)

    # Doubt does no harm here: the next one to look finds the instant with or without an entry.
    return (yield from append(view, propose, owner=owner)).view


def _fact(instant: Instant, key: str, *, adopted: bool) -> Steps[Foreign]:
    footprint = Footprint(_PLAIN.get(instant.action, Deed.UPSERT), everything=True)
    schema = ""
    if not adopted and instant.action.writes_data:
        found: StoredObject | None = yield Get(key)
        if found is not None:
            kind = (
                ReplaceCommitMetadata if instant.action is Action.REPLACE_COMMIT else CommitMetadata
            )
            metadata = decode(kind, found.body, where=key)
            footprint, schema = footprint_of(metadata), schema_id_of(metadata.schema_json)
    return Foreign(instant.requested, instant.action, instant.completion, footprint, schema)


def _with_undone(fold: Fold, fact: Foreign, key: str, folder: str) -> Steps[Foreign]:
    """Return a roll-back with what it undid (C100).

    Java's executors take an attempt back by a roll-back of the plan's instant, and leave the plan
    on the timeline; what is gone from there is undone. What has completed in the ledger's eyes is
    for a person to judge.
    """
    found: StoredObject | None = yield Get(key)
    said = () if found is None else decode(RollbackMetadata, found.body, where=key).commits_rollback
    undoes: list[str] = []
    ends: list[str] = []
    for instant in (each for each in said if not fold.is_settled(each)):
        listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
        names = (parse_instant(meta.key.removeprefix(f"{folder}/")) for meta in listed)
        if not any(left is not None and left.requested == instant for left in names):
            undoes.append(instant)
        elif instant in fold.plans:
            ends.append(instant)
    return replace(fact, undoes=tuple(undoes), ends=tuple(ends))


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
        inserts={} if deed in (Deed.CLUSTERING, Deed.COMPACTION, Deed.LOG_COMPACTION) else inserts,
    )


def _is_log(stat: WriteStat) -> bool:
    name = (stat.path or "").rpartition("/")[2]
    return name.startswith(".") and ".log." in name
