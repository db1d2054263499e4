"""Which file groups are clustered together: small files, packed by size, by partition. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import GroupId
from tidelock.tableservice.clustering.partitions import Chosen

MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size-based strategy's settings.

    Files below `small_bytes` are candidates; together up to `group_bytes_max` are written anew,
    into files of about `target_bytes`; at most `groups_max` such groups make a plan. A file that
    would be alone is left alone, unless `alone` says that rewriting it is worth it (to sort it).
    With `apart` every file is a group of its own, whose rows are only sorted.
    """

    small_bytes: int = 300 * MB
    target_bytes: int = 1024 * MB
    group_bytes_max: int = 2 * 1024 * MB
    groups_max: int = 30
    alone: bool = False
    apart: bool = False
    partitions: Chosen = field(default_factory=Chosen)


@dataclass(frozen=True, slots=True)
class Cluster:
    """File slices of one partition that become `outputs` file groups together."""

    partition: str
    slices: tuple[FileSlice, ...]
    outputs: int

    @property
    def size_bytes(self) -> int:
        """What is read to write it."""
        return sum(slice_bytes(piece) for piece in self.slices)


def plan_clustering(
    slices: Iterable[FileSlice], sizes: Sizes, *, busy: Collection[GroupId] = ()
) -> tuple[Cluster, ...]:
    """Return what to cluster of the latest slices of a table; empty if nothing is worth it.

    File groups in `busy` belong to another pending plan. Large files come first within a
    partition, so that each group is filled before the next begins.
    """
    partitions: dict[str, list[FileSlice]] = {}
    for piece in slices:
        free = (piece.partition, piece.file_id) not in busy
        if free and piece.base is not None and piece.base.size_bytes < sizes.small_bytes:
            partitions.setdefault(piece.partition, []).append(piece)
    clusters: list[Cluster] = []
    for partition in sorted(sizes.partitions.of(partitions)):
        most = 0 if sizes.apart else sizes.group_bytes_max
        clusters += [
            Cluster(partition, packed, _outputs(packed, sizes.target_bytes))
            for packed in _packed(partitions[partition], most)
            if len(packed) > 1 or sizes.alone or sizes.apart
        ]
    return tuple(clusters[: sizes.groups_max])


def _packed(slices: Sequence[FileSlice], bytes_max: int) -> Iterator[tuple[FileSlice, ...]]:
    ordered = sorted(slices, key=lambda piece: (-slice_bytes(piece), piece.file_id))
    packed: list[FileSlice] = []
    room = bytes_max
    for piece in ordered:
        size = slice_bytes(piece)
        if packed and size > room:
            yield tuple(packed)
            packed, room = [], bytes_max
        packed.append(piece)
        room -= size
    if packed:
        yield tuple(packed)


def _outputs(slices: Sequence[FileSlice], target_bytes: int) -> int:
    total = sum(slice_bytes(piece) for piece in slices)
    return max(1, -(-total // target_bytes))


def slice_bytes(piece: FileSlice) -> int:
    """Return the size of a slice's files."""
    return (piece.base.size_bytes if piece.base else 0) + sum(log.size_bytes for log in piece.logs)
