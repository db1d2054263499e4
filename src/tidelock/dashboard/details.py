"""Details that the page requests on demand: one instant, and the file layout of a table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from tidelock.core.errors import NotFound, TidelockError
from tidelock.core.formatting import fields_of
from tidelock.dashboard.watch import TableWatch
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.markers import read_markers
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, parse_instant
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
    decode,
)
from tidelock.inspect.ledger_facts import entry_facts, group_names
from tidelock.operations.config import SMALL_FILE_BYTES
from tidelock.operations.file_view import TableView, load_view
from tidelock.txn.effects import EffectRunner
from tidelock.txn.entries import Commit, ExternalCommit, LedgerEntry
from tidelock.txn.heartbeats import Heartbeat, heartbeat_key, heartbeat_status
from tidelock.txn.ledger_io import forward, load
from tidelock.txn.state import View
from tidelock.txn.transaction import groups_of

_FILES_SHOWN: Final = 200
_GROUPS_SHOWN: Final = 200
_HIDDEN: Final = frozenset({"schema"})
"""Extra metadata that is too long to show."""


def instant_details(watch: TableWatch, requested: str) -> dict[str, object]:
    """Return everything known about an instant. Raises: `NotFound`."""
    watch.refresh()
    known, entries = watch.find_instant(requested)
    folder = watch.properties.timeline_folder
    states = [
        {
            "file": meta.key.rpartition("/")[2],
            "state": instant.state.name.lower(),
            "bytes": meta.size_bytes,
            "written": meta.modified_epoch_ms,
        }
        for meta in watch.store.list(f"{folder}/{requested}")
        if (instant := parse_instant(meta.key.removeprefix(f"{folder}/"))) is not None
    ]
    if not (states or entries):
        raise NotFound(
            f"{watch.store.uri}: there is no instant {requested} on the active timeline",
            hint="it may be archived",
        )
    return {
        "instant": requested,
        "states": states,
        "entries": [{**entry_facts(entry), "detail": _entry_detail(entry)} for entry in entries],
        "heartbeat": _heartbeat(watch, requested),
        "writing": group_names(groups_of(read_markers(watch.store, requested)))[:_GROUPS_SHOWN],
        "conflicts": _conflicts(watch, requested),
        "plan": _plan_status(watch, known),
        "wrote": _commit_summary(watch, known),
    }


def _entry_detail(entry: LedgerEntry) -> dict[str, object]:
    match entry.fact:
        case Commit() as fact:
            return {
                **fields_of(fact, "base", "rebased", "token", "attempt"),
                "groups": group_names(fact.footprint.written)[:_GROUPS_SHOWN],
                "replaced": group_names(fact.footprint.replaced)[:_GROUPS_SHOWN],
            }
        case ExternalCommit() as fact:
            return {"groups": group_names(fact.footprint.written)[:_GROUPS_SHOWN]}
        case _:
            return {}


def _heartbeat(watch: TableWatch, requested: str) -> dict[str, object] | None:
    found = watch.store.get(heartbeat_key(requested))
    if found is None:
        return None
    heartbeat = heartbeat_status(requested, found)
    record = heartbeat.record
    # The file of a Java writer has no record.
    known = record or Heartbeat("", 0, "", interval_ms=0, misses=0, since_epoch_ms=0)
    return {
        "beat": heartbeat.modified_epoch_ms,
        "java": record is None,
        **fields_of(known, "owner", "host", "pid", "operation"),
        "interval": known.interval_ms,
        "life": known.lifetime_ms,
    }


def _conflicts(watch: TableWatch, requested: str) -> list[Mapping[str, Any]]:
    return [
        record
        for record in watch.conflicts()
        if requested in (record["instant"], record["ended"], *record["overtaken_by"])
    ]


def _plan_status(watch: TableWatch, known: Instant | None) -> dict[str, object] | None:
    """Return the size of a pending plan, or why it cannot be read."""
    if known is None or known.is_completed:
        return None
    kinds: dict[Action, type[CompactionPlan | RequestedReplaceMetadata]] = {
        Action.COMPACTION: CompactionPlan,
        Action.LOG_COMPACTION: CompactionPlan,
        Action.CLUSTERING: RequestedReplaceMetadata,
    }
    kind = kinds.get(known.action)
    if kind is None:
        return None
    name = Instant(known.requested, known.action, InstantState.REQUESTED).file_name
    key = f"{watch.properties.timeline_folder}/{name}"
    found = watch.store.get(key)
    if found is None:
        return {"problem": f"{key} is missing"}
    try:
        decode(kind, found.body, where=key)
    except TidelockError as error:
        return {"problem": str(error)}
    return {"problem": "", "bytes": len(found.body)}


def _commit_summary(watch: TableWatch, known: Instant | None) -> dict[str, object] | None:
    if known is None or not known.is_completed or not known.action.writes_data:
        return None
    key = f"{watch.properties.timeline_folder}/{known.file_name}"
    found = watch.store.get(key)
    if found is None:
        return None
    replaces = known.action is Action.REPLACE_COMMIT
    try:
        metadata = decode(
            ReplaceCommitMetadata if replaces else CommitMetadata, found.body, where=key
        )
    except TidelockError as error:
        return {"problem": str(error)}
    extra = {k: v for k, v in sorted(metadata.extra_metadata.items()) if k not in _HIDDEN}
    return {
        "problem": "",
        "operation": metadata.operation_type,
        "extra": extra,
        "files": _files(metadata),
        "file_count": sum(len(stats) for stats in metadata.partition_to_write_stats.values()),
    }


def _files(metadata: CommitMetadata) -> list[dict[str, object]]:
    written = (
        (partition, stat)
        for partition, stats in sorted(metadata.partition_to_write_stats.items())
        for stat in stats
    )
    return [
        {
            "partition": partition,
            "file": (stat.path or "").rpartition("/")[2],
            "rows": stat.num_writes,
            "inserts": stat.num_inserts,
            "updates": stat.num_update_writes,
            "deletes": stat.num_deletes,
            "bytes": stat.total_write_bytes,
        }
        for partition, stat in islice(written, _FILES_SHOWN)
    ]


PARTITIONS_SHOWN: Final = 2_000
_SMALL_BYTES: Final = SMALL_FILE_BYTES.required({})
"""The default below which a base file takes inserts."""


@dataclass(slots=True)
class TableLayout:
    """The file slices of one table: listed on first use, then kept up to date from the ledger."""

    watch: TableWatch
    _ledger: View | None = None
    _view: TableView | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def page(self) -> dict[str, object]:
        """Return the figures of every partition. Raises: what listing a table raises."""
        with self._mutex:
            view = self._current_view()
            busy = view.busy
            slices = view.file_slices()
            by_partition: dict[str, list[tuple[GroupId, FileSlice]]] = {}
            for group, piece in slices.items():
                by_partition.setdefault(group[0], []).append((group, piece))
            found = [_partition(name, held, busy) for name, held in sorted(by_partition.items())]
            # The number of file groups by their number of log files.
            depths = Counter(len(piece.logs) for piece in slices.values())
            return {
                "position": view.state.position,
                "partitions": found[-PARTITIONS_SHOWN:],
                "partition_count": len(found),
                "small_bytes": _SMALL_BYTES,
                "depths": [[depth, groups] for depth, groups in sorted(depths.items())],
            }

    def _current_view(self) -> TableView:
        store, properties = self.watch.store, self.watch.properties
        runner = EffectRunner(store, self.watch.clock, self.watch.ids)
        self._ledger = runner.perform(load() if self._ledger is None else forward(self._ledger))
        state, known = self._ledger.state, self._view
        entries = None if known is None else self._ledger.since(known.state.position)
        followed = None
        if known is not None and entries is not None:
            followed = known.follow(entries, state)
        self._view = followed or load_view(store, properties, state, least_bytes=0)
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
