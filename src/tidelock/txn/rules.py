"""The rules of conflict, one at a time: a commit that wants in against one that is there. Pure.

Each rule looks at one kind of overlap. `tidelock.txn.conflict` says which rules hold for which pair
of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelock.table.filegroup.view import GroupId
from tidelock.txn.footprint import NO_GROUPS, Deed, Footprint, bucket_of
from tidelock.txn.verdict import KeyCheck


@dataclass(frozen=True, slots=True)
class Candidate:
    """The commit that is judged. `base_schema` is the table's schema when it was begun."""

    instant: str
    footprint: Footprint
    schema_id: str = ""
    base_schema: str = ""
    owner: str = ""


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
    """Both gave a new version to one file group."""
    overlap = mine.footprint.touched & other.footprint.touched
    if mine.footprint.nonblocking and other.footprint.deed is not Deed.DELETE:
        # A log file written without reading the group goes on top of whatever is there. Deletes
        # are in natural order: they would beat an earlier request that comes after them here.
        overlap -= mine.footprint.appended
    return Finding("both changed these file groups", overlap) if overlap else None


def gone_groups(mine: Candidate, other: Past) -> Finding | None:
    """A file group that this write changed was replaced meanwhile."""
    overlap = mine.footprint.touched & other.footprint.replaced
    return Finding("these file groups were replaced", overlap) if overlap else None


def same_buckets(mine: Candidate, other: Past) -> Finding | None:
    """Both wrote a bucket that had no file group, or one of them began it."""
    if not mine.footprint.bucketed:
        return None
    ours = {bucket_of(group): group for group in mine.footprint.written}
    theirs = {bucket_of(group): group for group in other.footprint.written}
    met = {
        ours[bucket]
        for bucket in ours.keys() & theirs.keys()
        if not (mine.footprint.nonblocking and ours[bucket] == theirs[bucket])
    }
    return Finding("both wrote these buckets", frozenset(met)) if met else None


def same_keys(mine: Candidate, other: Past) -> Finding | None:
    """Both may have inserted one key, each into a file group of its own."""
    if mine.footprint.bucketed or other.footprint.deed is Deed.DELETE:
        return None  # one key has one bucket, so its file group tells; a delete inserts nothing
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
    return Finding("both inserted rows", checks=tuple(checks)) if checks else None


def newer_base(mine: Candidate, other: Past) -> Finding | None:
    """A compaction with a later request time hides the base file that this write made."""
    if other.instant < mine.instant:
        return None
    overlap = mine.footprint.merged & other.footprint.touched
    return Finding("a later compaction does not contain this write", overlap) if overlap else None


def newer_log(mine: Candidate, other: Past) -> Finding | None:
    """A log compaction comes after this write in the order of logs, with older values."""
    shared = mine.footprint.touched & other.footprint.touched
    if other.instant < mine.instant:
        # Its block lies before our log. A base file of ours still may not have it on top.
        shared &= mine.footprint.merged if other.completion > mine.instant else NO_GROUPS
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
    overlap = sources & (other.footprint.touched | other.footprint.replaced)
    return Finding("a writer changed these file groups", overlap) if overlap else None


def planned_bases(mine: Candidate, other: Past) -> Finding | None:
    """The base files that a compaction started from are not the newest any more.

    Log files that came after its plan lie on top of its result, so they do not matter.
    """
    theirs = other.footprint.merged | other.footprint.replaced
    overlap = mine.footprint.touched & theirs
    return Finding("the base files changed", overlap) if overlap else None


def planned_logs(mine: Candidate, other: Past) -> Finding | None:
    """A log compaction would come after log files that it does not contain."""
    theirs = other.footprint.merged | other.footprint.replaced
    if other.instant < mine.instant:
        theirs |= other.footprint.appended
    overlap = mine.footprint.touched & theirs
    return Finding("log files came between", overlap) if overlap else None


def always(mine: Candidate, other: Past) -> Finding | None:
    """The two never go together."""
    del mine, other
    return Finding("the two exclude each other")


def other_schema(mine: Candidate, other: Past) -> Finding | None:
    """The table's schema changed meanwhile, and this write knows another one."""
    theirs = other.schema_id
    if not theirs or not mine.schema_id or theirs in (mine.base_schema, mine.schema_id):
        return None
    return Finding("the schema changed", mine.footprint.written)
