"""What a writer hands over to be committed, and what it is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from tidelock.base.outcome import Unknown
from tidelock.kernel.results import FileKind, FileResult
from tidelock.table.filegroup.view import GroupId
from tidelock.table.markers import Marker
from tidelock.table.timeline.metadata import (
    CommitMetadata,
    OperationType,
    TimelineRecord,
    WriteStat,
)
from tidelock.txn.footprint import (
    NO_GROUPS,
    NO_RELIANCE,
    Deed,
    Footprint,
    NewKeys,
    Reliance,
)
from tidelock.txn.mark import Mark
from tidelock.txn.verdict import CheckKeys, Rebase, Refuse, Repeated, ReplanReplaced, Yield

INSERTED_KEYS_MAX = 2_048
"""Keys that one ledger entry names. Beyond, writers compare files: every writer reads entries."""


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """A write that is ready: its metadata, and what must be known to judge it.

    `touched` are existing file groups that were merged or appended to, `created` groups are new,
    `appended` those of both that only got log files; `replaced` are gone after this commit.
    `intents` are the partitions that the write overwrites, None for the whole table. `inserts` has
    for each partition the keys that were looked for and not found (new rows of an upsert, misses
    of a delete), None when they are too many to name. A `blind` write allows duplicates (insert,
    bulk_insert). `reads` marks a write whose rows depend on what it read of the table (SQL).
    """

    metadata: TimelineRecord
    operation: OperationType
    touched: frozenset[GroupId] = NO_GROUPS
    appended: frozenset[GroupId] = NO_GROUPS
    created: frozenset[GroupId] = NO_GROUPS
    replaced: frozenset[GroupId] = NO_GROUPS
    intents: frozenset[str] | None = frozenset()
    inserts: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    blind: bool = False
    schema_id: str = ""
    reads: bool = False
    bucketed: bool = False
    nonblocking: bool = False
    deed: Deed | None = None
    """What it is to the conflict rules, where `operation` does not say: a clean, a savepoint."""
    mark: Mark | None = None
    """Which batch of which application it is; the ledger takes each once."""
    reliance: Reliance = NO_RELIANCE
    """What the result depends on beyond that, so that what changes it meanwhile is found."""
    schema_base: int = 0
    """The position of the ledger at which a table service read the schema."""
    markers: frozenset[Marker] | None = None
    """All markers that there are, if whoever wrote the files knows; None lets them be listed."""

    def footprint(self) -> Footprint:
        """Return what other writers need to know of this commit."""
        return Footprint(
            deed=self._deed(),
            touched=self.touched,
            appended=self.appended,
            created=self.created,
            replaced=self.replaced,
            intents=self.intents,
            inserts=self._new_keys(),
            nonblocking=self.nonblocking,
            deletes=has_deletes(self.metadata),
            bucketed=self.bucketed,
        )

    def _deed(self) -> Deed:
        if self.deed is not None:
            return self.deed
        if self.reads:
            return Deed.READ_WRITE
        deed = deed_of(self.operation)
        if self.blind and deed is Deed.UPSERT:
            return Deed.INSERT
        # An insert that drops duplicates has looked for its keys, so it is judged like an upsert.
        if not self.blind and deed in (Deed.INSERT, Deed.BULK_INSERT):
            return Deed.UPSERT
        return deed

    def _new_keys(self) -> dict[str, NewKeys]:
        total = sum(len(keys) for keys in self.inserts.values() if keys is not None)
        crowded = total > INSERTED_KEYS_MAX
        return {
            partition: NewKeys(None, self._files(partition))
            if keys is None or crowded
            else NewKeys(keys)
            for partition, keys in self.inserts.items()
        }

    def _files(self, partition: str) -> tuple[str, ...]:
        """Return the data files that hold rows which this write inserted into a partition."""
        if not isinstance(self.metadata, CommitMetadata):
            return ()
        stats = self.metadata.partition_to_write_stats.get(partition, ())
        return tuple(stat.path for stat in stats if stat.path and stat.num_inserts != 0)


@dataclass(frozen=True, slots=True)
class Committed:
    """The write happened, durably, at `completion`, as entry `position` of the ledger.

    `position` is 0 if the entry was folded into the checkpoint before the caller could be told.
    `published` tells whether it was on the timeline when the call returned; if not, whoever reads
    the ledger next puts it there.
    """

    instant: str
    completion: str
    position: int
    published: bool = True


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another commit came between: nothing of this write is visible, and `verdict` says what to do.

    `position` is the ledger's position that was judged, `reason` is one sentence.
    """

    verdict: Rebase | ReplanReplaced | CheckKeys | Yield | Refuse | Repeated
    position: int
    reason: str = ""
    base_forgotten: bool = False


CommitResult: TypeAlias = Committed | Overtaken | Unknown


def groups_of(results: Iterable[FileResult]) -> dict[FileKind, frozenset[GroupId]]:
    """Return the file groups of written files by what happened to them."""
    found: dict[FileKind, set[GroupId]] = {kind: set() for kind in FileKind}
    for result in results:
        found[result.kind].add((result.partition, result.file_id))
    return {kind: frozenset(groups) for kind, groups in found.items()}


def stats_of(results: Iterable[FileResult]) -> dict[str, tuple[WriteStat, ...]]:
    """Return the write stats of written files by partition, as a commit records them."""
    stats: dict[str, list[WriteStat]] = {}
    for result in results:
        stats.setdefault(result.partition, []).append(result.stat)
    return {partition: tuple(each) for partition, each in stats.items()}


def has_deletes(metadata: TimelineRecord) -> bool:
    """Tell whether rows or keys that a commit wrote are deletes."""
    if not isinstance(metadata, CommitMetadata):
        return False
    every = metadata.partition_to_write_stats.values()
    return any(stat.num_deletes for stats in every for stat in stats)


@lru_cache(maxsize=64)
def schema_id_of(schema_json: str) -> str:
    """Return a short name of a schema, the same for every way to write it; "" for none."""
    if not schema_json:
        return ""
    canonical = json.dumps(json.loads(schema_json), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def deed_of(operation: OperationType | str | None) -> Deed:
    """Return what an operation of Hudi's is to the conflict rules."""
    name = str(operation or OperationType.UNKNOWN).removesuffix("_PREPPED")
    return _DEEDS.get(name, Deed.UPSERT)


_DEEDS = {
    "INSERT": Deed.INSERT,
    "BULK_INSERT": Deed.BULK_INSERT,
    "BOOTSTRAP": Deed.BULK_INSERT,
    "UPSERT": Deed.UPSERT,
    "DELETE": Deed.DELETE,
    "INSERT_OVERWRITE": Deed.OVERWRITE,
    "INSERT_OVERWRITE_TABLE": Deed.OVERWRITE_TABLE,
    "DELETE_PARTITION": Deed.DELETE_PARTITION,
    "BUCKET_RESCALE": Deed.OVERWRITE_TABLE,
    "CLUSTER": Deed.CLUSTERING,
    "COMPACT": Deed.COMPACTION,
    "LOG_COMPACT": Deed.LOG_COMPACTION,
}
