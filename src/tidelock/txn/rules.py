"""The rules of conflict, one at a time: a commit that wants in against one that is there. Pure.

Each rule looks at one kind of overlap. `tidelock.txn.conflict` says which rules hold for which pair
of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelock.table.filegroup.view import GroupId
from tidelock.txn.footprint import (
    NO_GROUPS,
    NO_RELIANCE,
    SERVICES,
    Deed,
    Footprint,
    Reliance,
    bucket_of,
)
from tidelock.txn.verdict import KeyCheck


@dataclass(frozen=True, slots=True)
class Candidate:
    """The commit that is judged.

    `base_schema` is the table's schema when it was begun. A table service reads the schema later
    than its plan was made: at `schema_base`, a position of the ledger. It has read everything else
    after `claimed`, the position of its claim.
    """

    instant: str
    footprint: Footprint
    schema_id: str = ""
    base_schema: str = ""
    owner: str = ""
    reliance: Reliance = NO_RELIANCE
    schema_base: int = 0
    claimed: int = 0


@dataclass(frozen=True, slots=True)
class Past:
    """A commit in the ledger. `completion` is the entry's time."""

    position: int
    instant: str
    completion: str
    footprint: Footprint
    schema_id: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found; which fields count depends on the rule's consequence."""

    cause: str
    groups: frozenset[GroupId] = NO_GROUPS
    drop: frozenset[GroupId] = NO_GROUPS
    checks: tuple[KeyCheck, ...] = field(default=())


Check: TypeAlias = Callable[[Candidate, Past], Finding | None]


def same_groups(mine: Candidate, other: Past) -> Finding | None:
    """Both wrote one file group or bucket, or one that this write took for absent."""
    ours, theirs, relied = mine.footprint, other.footprint, mine.reliance
    there = theirs.written
    if ours.bucketed:
        slots = {bucket_of(group) for group in there}
        met = {group for group in (*ours.written, *relied.absent) if bucket_of(group) in slots}
        if relied.anywhere:
            met |= {group for group in there if group[0] not in relied.looked_in}
        if relied.empty:
            met |= {group for group in there if group[0] in relied.empty}
    else:
        met = set(ours.written & there)
    # Rows that decided what was left out were read, whoever else writes without reading.
    unread = {group for group in _unread_logs(ours, theirs) & met if group[0] not in relied.rows}
    if met - unread:
        return Finding("both changed these file groups", frozenset(met - unread))
    if unread and (mine.instant < other.instant or theirs.deletes):
        # Readers order the log files of a slice by request time, so the other's lie on top. A row
        # on top of a delete must be above the row that was deleted, which this write did not read.
        check = KeyCheck(
            other.position, "", groups=frozenset(unread), instant=other.instant, log_order=True
        )
        return Finding("both appended to these file groups", checks=(check,))
    return None


def _unread_logs(ours: Footprint, theirs: Footprint) -> frozenset[GroupId]:
    """Return groups to which both only appended log files, ours without reading the group.

    A bucket for which the other began another file group is not among them.
    """
    if not ours.nonblocking:
        return NO_GROUPS
    both = ours.appended & theirs.appended
    others = {bucket_of(group) for group in theirs.written - both}
    return frozenset(group for group in both if bucket_of(group) not in others)


def gone_groups(mine: Candidate, other: Past) -> Finding | None:
    """A file group that this write changed was replaced meanwhile."""
    overlap = mine.footprint.written & other.footprint.replaced
    return Finding("these file groups were replaced", overlap) if overlap else None


def found_rows(mine: Candidate, other: Past) -> Finding | None:
    """Rows for which this write left out its own may have been deleted."""
    changed = other.footprint.touched | other.footprint.replaced
    met = frozenset(group for group in changed if group[0] in mine.reliance.rows)
    return Finding("rows that were found may be gone", met) if met else None


def same_keys(mine: Candidate, other: Past) -> Finding | None:
    """Both may have inserted one key, or this write changed a key that the other inserted."""
    if mine.footprint.bucketed:
        return None  # one key has one bucket, so its file group tells
    partitions = mine.footprint.inserts.keys() & other.footprint.inserts.keys()
    checks: list[KeyCheck] = []
    for partition in sorted(partitions):
        ours, theirs = mine.footprint.inserts[partition], other.footprint.inserts[partition]
        if ours.keys is not None and theirs.keys is not None:
            if both := ours.keys & theirs.keys:
                some = ", ".join(sorted(both)[:3])
                groups = {group for group in mine.footprint.written if group[0] == partition}
                return Finding(f"both inserted {some}", frozenset(groups))
        elif ours.keys != frozenset() and theirs.keys != frozenset():
            checks.append(KeyCheck(other.position, partition, theirs.keys, theirs.files))
    checks += _copies(mine, other)
    return Finding("both inserted rows", checks=tuple(checks)) if checks else None


def _copies(mine: Candidate, other: Past) -> list[KeyCheck]:
    """Return where the other may have inserted keys that this write has changed elsewhere.

    A plain insert may repeat a key that is there. A key that a log file deleted is found where its
    base file holds it, and the other may have inserted it as new: it asked for keys that are alive,
    or read the base file of a compaction. Keys that are to be deleted anywhere may have come to a
    partition that was not looked in.
    """
    relied = mine.reliance
    changed = {partition for partition, _ in mine.footprint.touched}
    logged = {partition for partition, _ in mine.footprint.touched & mine.footprint.appended}
    found: list[KeyCheck] = []
    for partition in sorted(other.footprint.inserts):
        repeated = other.footprint.deed in _REPEATING and partition in changed
        unseen = relied.anywhere and partition not in relied.looked_in
        new = other.footprint.inserts[partition].keys
        revived = partition in logged and new != frozenset()
        if not (repeated or unseen or revived):
            continue
        there = other.footprint.written if repeated or unseen else other.footprint.based
        groups = frozenset(group for group in there if group[0] == partition)
        # The keys of a plain insert need not be all that are named: it did not look for any.
        named = None if repeated else new
        found.append(KeyCheck(other.position, partition, named, groups=groups))
    return found


_REPEATING: Final = frozenset({Deed.INSERT, Deed.BULK_INSERT})


def newer_base(mine: Candidate, other: Past) -> Finding | None:
    """A compaction with a later request time hides the base file that this write made."""
    if other.instant < mine.instant:
        return None
    overlap = mine.footprint.based & other.footprint.written
    return Finding("a later compaction does not contain this write", overlap) if overlap else None


def newer_log(mine: Candidate, other: Past) -> Finding | None:
    """A log compaction comes after this write in the order of logs, with older values."""
    shared = mine.footprint.written & other.footprint.written
    if other.instant < mine.instant:
        # Its block lies before our log. A base file of ours still may not have it on top.
        shared &= mine.footprint.based if other.completion > mine.instant else NO_GROUPS
    return Finding("a log compaction would cover this write", shared) if shared else None


def unplanned_groups(mine: Candidate, other: Past) -> Finding | None:
    """An overwrite does not list file groups that lie in its partitions by now."""
    footprint = mine.footprint
    present = {g for g in other.footprint.written if footprint.overwrites(g[0])}
    missing = present - footprint.replaced - footprint.created
    twice = footprint.replaced & other.footprint.replaced
    if not missing and not twice:
        return None
    return Finding("file groups came or went", frozenset(missing), frozenset(twice))


def anything_read(mine: Candidate, other: Past) -> Finding | None:
    """Rows that this statement read may have changed."""
    footprint = other.footprint
    changed = footprint.written | footprint.replaced
    if not changed and footprint.intents == frozenset():
        return None
    return Finding("the rows it read may have changed", changed & mine.footprint.written)


def planned_groups(mine: Candidate, other: Past) -> Finding | None:
    """A writer changed file groups that this service was rewriting."""
    sources = mine.footprint.touched | mine.footprint.replaced
    overlap = sources & (other.footprint.written | other.footprint.replaced)
    return Finding("a writer changed these file groups", overlap) if overlap else None


def planned_bases(mine: Candidate, other: Past) -> Finding | None:
    """The base files that a compaction started from are not the newest any more.

    Log files that came after its plan lie on top of its result, so they do not matter.
    """
    theirs = other.footprint.based | other.footprint.replaced
    overlap = mine.footprint.touched & theirs
    return Finding("the base files changed", overlap) if overlap else None


def planned_logs(mine: Candidate, other: Past) -> Finding | None:
    """A log compaction would come after log files that it does not contain."""
    theirs = other.footprint.based | other.footprint.replaced
    if other.instant < mine.instant:
        theirs |= other.footprint.appended
    overlap = mine.footprint.touched & theirs
    return Finding("log files came between", overlap) if overlap else None


def always(mine: Candidate, other: Past) -> Finding | None:
    """The two never go together."""
    del mine, other
    return Finding("the two exclude each other")


def taken_back(mine: Candidate, other: Past) -> Finding | None:
    """Commits were taken back while this service was carried out.

    A plan that was not taken back with them reads nothing of them. But whoever carries it out may
    have read their schema.
    """
    return None if other.position <= mine.claimed else always(mine, other)


def unknown_extent(mine: Candidate, other: Past) -> Finding | None:
    """Nobody can tell what the other changed: all that this service starts from may be gone."""
    del other
    sources = mine.footprint.touched | mine.footprint.replaced
    return Finding("nobody can tell what it changed", sources)


def other_schema(mine: Candidate, other: Past) -> Finding | None:
    """Readers would not take this write's schema for the table's, or it lacks the other's columns.

    The table's schema is that of the commit with the greatest request time, services included.
    """
    theirs = other.schema_id
    if not theirs or not mine.schema_id or theirs == mine.schema_id:
        return None
    if other.instant < mine.instant and (
        theirs == mine.base_schema or other.footprint.deed in SERVICES
    ):
        return None  # it carries what this write has read, and this write's is the later request
    return Finding("the schema changed", mine.footprint.written)


def service_schema(mine: Candidate, other: Past) -> Finding | None:
    """This service would bring back a schema older than the other's."""
    theirs = other.schema_id
    if not theirs or not mine.schema_id or theirs == mine.schema_id:
        return None
    if other.position <= mine.schema_base or mine.instant < other.instant:
        return None
    return Finding("the schema changed")
