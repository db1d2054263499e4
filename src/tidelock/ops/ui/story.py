"""One instant, as far as anything is known of it: files, heartbeat, ledger, and what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelock.base.errors import NotFound, TidelockError
from tidelock.ops.cli.ledger import entry_facts, group_names
from tidelock.ops.ui.watching import TableWatch
from tidelock.table.markers import read_markers
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State, parse_instant
from tidelock.table.timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
)
from tidelock.txn.early import groups_of
from tidelock.txn.entry import Commit, Entry, Foreign
from tidelock.txn.heartbeat import heartbeat_key, pulse_of

_FILES_SHOWN: Final = 200
_GROUPS_SHOWN: Final = 200
_HIDDEN: Final = frozenset({"schema"})
"""Extra metadata that would fill the page."""


def story(watch: TableWatch, requested: str) -> dict[str, object]:
    """Return everything about an instant. Raises: `NotFound` for one that nobody knows."""
    watch.look()
    known, entries = watch.story(requested)
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
        raise NotFound(f"{watch.store.uri} has no instant {requested}", hint="it may be archived")
    return {
        "instant": requested,
        "states": states,
        "entries": [{**entry_facts(entry), "detail": _detail(entry)} for entry in entries],
        "heartbeat": _heartbeat(watch, requested),
        "writing": group_names(groups_of(read_markers(watch.store, requested)))[:_GROUPS_SHOWN],
        "conflicts": _conflicts(watch, requested),
        "plan": _plan(watch, known),
        "wrote": _wrote(watch, known),
    }


def _detail(entry: Entry) -> dict[str, object]:
    match entry.fact:
        case Commit() as fact:
            return {
                "base": fact.base,
                "rebased": fact.rebased,
                "token": fact.token,
                "attempt": fact.attempt,
                "groups": group_names(fact.footprint.written)[:_GROUPS_SHOWN],
                "replaced": group_names(fact.footprint.replaced)[:_GROUPS_SHOWN],
            }
        case Foreign() as fact:
            return {"groups": group_names(fact.footprint.written)[:_GROUPS_SHOWN]}
        case _:
            return {}


def _heartbeat(watch: TableWatch, requested: str) -> dict[str, object] | None:
    found = watch.store.get(heartbeat_key(requested))
    if found is None:
        return None
    pulse = pulse_of(requested, found)
    says = pulse.says
    return {
        "beat": pulse.modified_epoch_ms,
        "java": says is None,
        "owner": "" if says is None else says.owner,
        "host": "" if says is None else says.host,
        "pid": 0 if says is None else says.pid,
        "operation": "" if says is None else says.operation,
        "interval": 0 if says is None else says.interval_ms,
        "life": 0 if says is None else says.life_ms,
    }


def _conflicts(watch: TableWatch, requested: str) -> list[Mapping[str, Any]]:
    return [met for met in watch.conflicts() if _is_about(met, requested)]


def _is_about(met: Mapping[str, Any], requested: str) -> bool:
    return requested in (met["instant"], met["ended"], *met["overtaken_by"])


def _plan(watch: TableWatch, known: Instant | None) -> dict[str, object] | None:
    """Return what a plan says is to be done, or why it cannot be read."""
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
    name = Instant(known.requested, known.action, State.REQUESTED).file_name
    key = f"{watch.properties.timeline_folder}/{name}"
    found = watch.store.get(key)
    if found is None:
        return {"problem": f"{key} is missing"}
    try:
        decode(kind, found.body, where=key)
    except TidelockError as error:
        return {"problem": str(error)}
    return {"problem": "", "bytes": len(found.body)}


def _wrote(watch: TableWatch, known: Instant | None) -> dict[str, object] | None:
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
        "files": list(_files(metadata)),
        "file_count": sum(len(stats) for stats in metadata.partition_to_write_stats.values()),
    }


def _files(metadata: CommitMetadata) -> Iterable[dict[str, object]]:
    shown = 0
    for partition, stats in sorted(metadata.partition_to_write_stats.items()):
        for stat in stats:
            if shown == _FILES_SHOWN:
                return
            shown += 1
            yield {
                "partition": partition,
                "file": (stat.path or "").rpartition("/")[2],
                "rows": stat.num_writes,
                "inserts": stat.num_inserts,
                "updates": stat.num_update_writes,
                "deletes": stat.num_deletes,
                "bytes": stat.total_write_bytes,
            }
