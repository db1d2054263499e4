"""How the files of a table lie: sizes and log depth of each partition, as of the ledger's end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidelock.operation.view import TableView, load_view
from tidelock.ops.ui.watching import TableWatch
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import GroupId
from tidelock.txn.effects import World
from tidelock.txn.reading import forward, load
from tidelock.txn.view import View

PARTITIONS_SHOWN: Final = 2_000
_SMALL_BYTES: Final = 100 * 1024 * 1024
"""Hudi's `hoodie.parquet.small.file.limit`: files below it are filled up, or clustered."""


@dataclass(slots=True)
class Layout:
    """The file slices of one table, listed when first asked for and followed from then on."""

    watch: TableWatch
    _ledger: View | None = None
    _view: TableView | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def page(self) -> dict[str, object]:
        """Return every partition's numbers. Raises: what listing a table raises."""
        with self._mutex:
            view = self._followed()
            busy = view.busy
            pieces = view.of()
            by_partition: dict[str, list[tuple[GroupId, FileSlice]]] = {}
            for group, piece in pieces.items():
                by_partition.setdefault(group[0], []).append((group, piece))
            found = [_partition(name, held, busy) for name, held in sorted(by_partition.items())]
            return {
                "position": view.fold.position,
                "partitions": found[-PARTITIONS_SHOWN:],
                "partition_count": len(found),
                "small_bytes": _SMALL_BYTES,
                "depths": _depths(pieces.values()),
            }

    def _followed(self) -> TableView:
        store, properties = self.watch.store, self.watch.properties
        world = World(store, self.watch.clock, self.watch.ids)
        self._ledger = world.perform(load() if self._ledger is None else forward(self._ledger))
        fold, known = self._ledger.fold, self._view
        entries = None if known is None else self._ledger.since(known.fold.position)
        followed = None
        if known is not None and entries is not None:
            followed = known.follow(entries, fold)
        self._view = followed or load_view(store, properties, fold, least_bytes=0)
        return self._view


def _partition(
    name: str, held: list[tuple[GroupId, FileSlice]], busy: frozenset[GroupId]
) -> dict[str, object]:
    bases = [piece.base.size_bytes for _, piece in held if piece.base is not None]
    logs = [log.size_bytes for _, piece in held for log in piece.logs]
    return {
        "partition": name,
        "groups": len(held),
        "base_files": len(bases),
        "base_bytes": sum(bases),
        "smallest": min(bases, default=0),
        "largest": max(bases, default=0),
        "small_files": sum(size < _SMALL_BYTES for size in bases),
        "log_files": len(logs),
        "log_bytes": sum(logs),
        "log_depth": max((len(piece.logs) for _, piece in held), default=0),
        "in_plans": sum(group in busy for group, _ in held),
    }


def _depths(pieces: Iterable[FileSlice]) -> list[list[int]]:
    """Return how many file groups have how many log files."""
    counted: dict[int, int] = {}
    for piece in pieces:
        counted[len(piece.logs)] = counted.get(len(piece.logs), 0) + 1
    return [[depth, groups] for depth, groups in sorted(counted.items())]
