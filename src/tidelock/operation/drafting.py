"""From what was written to what is committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tidelock.engine.plan import WritePlan
from tidelock.kernel.results import FileKind, FileResult
from tidelock.operation.job import Job
from tidelock.operation.placing import Placed
from tidelock.table.filegroup.view import GroupId
from tidelock.table.markers import Marker
from tidelock.table.timeline.metadata import SCHEMA_KEY, CommitMetadata, ReplaceCommitMetadata
from tidelock.txn.draft import CommitDraft, schema_id_of, stats_of


def schema_id(avro: str) -> str:
    """Return a short name for a schema, the same however its text is laid out."""
    return schema_id_of(avro)


def commit_draft(
    job: Job,
    placed: Placed,
    results: Collection[FileResult],
    *,
    avro: str,
    blind: bool,
    bucketed: bool,
    nonblocking: bool,
    tried_once: bool = False,
) -> CommitDraft:
    """Return the commit of a write; `tried_once` says that `results` names all of its files."""
    existing = _existing(placed.plan)
    written = frozenset(_groups(results))
    based = frozenset(_groups(r for r in results if r.kind is not FileKind.APPENDED))
    return CommitDraft(
        metadata=_metadata(job, placed.replaced, results, avro),
        operation=job.operation,
        touched=written & existing,
        appended=written - based,
        created=written - existing,
        replaced=placed.replaced,
        intents=placed.intents,
        inserts=_new_keys(results, placed.tagged.missing),
        blind=blind,
        schema_id=schema_id(avro),
        reliance=placed.reliance,
        reads=job.reads,
        bucketed=bucketed,
        nonblocking=nonblocking,
        mark=job.mark,
        markers=_markers(results) if tried_once else None,
    )


def with_replaced(draft: CommitDraft, replaced: frozenset[GroupId]) -> CommitDraft:
    """Return the draft of an overwrite with other groups replaced; its files stand."""
    metadata = draft.metadata
    if isinstance(metadata, ReplaceCommitMetadata):
        metadata = replace(metadata, partition_to_replace_file_ids=_by_partition(replaced))
    return replace(draft, metadata=metadata, replaced=replaced)


def _metadata(
    job: Job, replaced: frozenset[GroupId], results: Iterable[FileResult], avro: str
) -> CommitMetadata:
    marked = {} if job.mark is None else job.mark.metadata
    stats, extra = stats_of(results), {**job.metadata, **marked, SCHEMA_KEY: avro}
    if not job.overwrites:
        return CommitMetadata(
            partition_to_write_stats=stats, extra_metadata=extra, operation_type=job.operation
        )
    return ReplaceCommitMetadata(
        partition_to_write_stats=stats,
        extra_metadata=extra,
        operation_type=job.operation,
        partition_to_replace_file_ids=_by_partition(replaced),
    )


def _by_partition(groups: Iterable[GroupId]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for partition, file_id in sorted(groups):
        found.setdefault(partition, []).append(file_id)
    return {partition: tuple(file_ids) for partition, file_ids in found.items()}


def _existing(plan: WritePlan) -> frozenset[GroupId]:
    return frozenset(task.group_id for task in plan.tasks if task.piece is not None)


def _markers(results: Iterable[FileResult]) -> frozenset[Marker]:
    """Return the announcements of files."""
    named = [(each, (each.stat.path or "").rpartition("/")[2]) for each in results]
    return frozenset(Marker(each.partition, name, each.announced) for each, name in named if name)


def _groups(results: Iterable[FileResult]) -> set[GroupId]:
    return {(result.partition, result.file_id) for result in results}


def _new_keys(
    results: Iterable[FileResult], missing: Mapping[str, frozenset[str] | None]
) -> dict[str, frozenset[str] | None]:
    """Return the keys by partition that were not there before, None where they are too many."""
    found: dict[str, frozenset[str] | None] = dict(missing)
    for result in results:
        if result.written_keys is not None and not result.written_keys:
            continue
        before = found.get(result.partition, frozenset())
        if before is None or result.written_keys is None:
            found[result.partition] = None
        else:
            found[result.partition] = before | frozenset(result.written_keys)
    return found
