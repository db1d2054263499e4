"""Which files nobody needs any more, by Hudi's three policies. Pure.

Never among them: the newest slice of a file group that is not replaced, the slice that a reader of
the oldest retained commit needs, what a pending plan reads, and what a savepoint keeps (S3, G15).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import DataFile, FileGroup, GroupId
from tidelock.table.timeline.instant import Instant


class Policy(StrEnum):
    """How much of the past is kept."""

    COMMITS = "KEEP_LATEST_COMMITS"
    VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    HOURS = "KEEP_LATEST_BY_HOURS"


@dataclass(frozen=True, slots=True)
class Keep:
    """The policy and its measure: so many commits, file versions, or since a moment in time."""

    policy: Policy = Policy.COMMITS
    commits: int = 10
    versions: int = 3
    since: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What must stay whatever its age.

    `files` are the keys that savepoints hold; `slices` are those that pending plans read, as file
    group and instant; `replaced` are file groups that a completed replacecommit replaced, with its
    request time. `leased_since` is the instant from which on readers have asked for files.
    """

    files: frozenset[str] = frozenset()
    slices: frozenset[tuple[GroupId, str]] = frozenset()
    replaced: Mapping[GroupId, str] = field(default_factory=dict)
    leased_since: str | None = None


def earliest_to_retain(
    keep: Keep, completed: Sequence[Instant], pending: Iterable[str]
) -> Instant | None:
    """Return the oldest commit whose state of the table must stay readable; None to keep all.

    `completed` are the table's completed writes by request time. A pending write may still read
    what it began from, so nothing from its beginning on is cleaned.
    """
    at = _first_kept(keep, completed)
    oldest_pending = min(pending, default="~")
    while at > 0 and completed[at].requested > oldest_pending:
        at -= 1
    return completed[at] if at else None


def _first_kept(keep: Keep, completed: Sequence[Instant]) -> int:
    """Return the place of the oldest commit that the policy retains; 0 when it retains all."""
    match keep.policy:
        case Policy.VERSIONS:
            return 0
        case Policy.COMMITS:
            return max(0, len(completed) - keep.commits)
        case Policy.HOURS:
            older = sum(1 for instant in completed if instant.requested < keep.since)
            # When all are older, the last one is still what the table is.
            return min(older, max(0, len(completed) - 1))


def files_to_delete(
    groups: Iterable[FileGroup], keep: Keep, kept: Kept, earliest: Instant | None
) -> dict[str, tuple[DataFile, ...]]:
    """Return the files to delete by partition, in the order of their names."""
    found: dict[str, list[DataFile]] = {}
    for group in groups:
        for piece in _obsolete(group, keep, kept, earliest):
            for file in _files(piece):
                if file.key not in kept.files:
                    found.setdefault(group.partition, []).append(file)
    return {
        partition: tuple(sorted(files, key=lambda file: file.name))
        for partition, files in sorted(found.items())
    }


def _obsolete(
    group: FileGroup, keep: Keep, kept: Kept, earliest: Instant | None
) -> Sequence[FileSlice]:
    replaced_at = kept.replaced.get(group.group_id)
    if keep.policy is Policy.VERSIONS:
        versions = _versions(group.slices)
        old: Sequence[FileSlice] = ()
        if replaced_at is not None:
            old = group.slices
        elif len(versions) > keep.versions:
            old = group.slices[: versions[-keep.versions]]
    elif earliest is None:
        return ()
    elif replaced_at is not None and replaced_at < earliest.requested:
        old = group.slices
    else:
        old = _before(group.slices, earliest.requested)
    if kept.leased_since is not None and (replaced_at is None or replaced_at >= kept.leased_since):
        unread = _before(group.slices, kept.leased_since)
        old = [piece for piece in old if piece in unread]
    return [piece for piece in old if (group.group_id, piece.instant) not in kept.slices]


def _before(slices: Sequence[FileSlice], earliest: str) -> Sequence[FileSlice]:
    """Return the slices older than the one that a reader at `earliest` sees."""
    begun = [number for number in _versions(slices) if slices[number].instant <= earliest]
    return slices[: begun[-1]] if begun else ()


def _versions(slices: Sequence[FileSlice]) -> list[int]:
    """Return the places of the slices that can be read without those before them.

    Where a compaction is planned a slice begins that has only log files, if any. It is read with
    the one before it, which need not be the one that was planned: a writer that was at work may
    have put a base file there since.
    """
    return [number for number, piece in enumerate(slices) if piece.base or not number]


def _files(piece: FileSlice) -> tuple[DataFile, ...]:
    return (*((piece.base,) if piece.base else ()), *piece.logs)


def touched_partitions(
    commits: Iterable[Collection[str]], replaced: Iterable[Collection[str]]
) -> frozenset[str]:
    """Return the partitions that commits wrote to or replaced file groups in."""
    return frozenset().union(*commits, *replaced)
