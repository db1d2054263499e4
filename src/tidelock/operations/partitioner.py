"""Assigns prepared rows to file groups, by operation, table type and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelock.core.errors import ConfigInvalid
from tidelock.core.ids import IdSource
from tidelock.execution.engine import PreparedRows, TaggedRows, TagRule, WriteEngine
from tidelock.execution.filegroup.key_lookup import BucketRule, IndexKind, Liveness, groups_of_keys
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.write_plan import TOMBSTONE, Profile, Routes, WritePlan
from tidelock.hudi.bucket_index import bucket_file_id, bucket_of, fixed_file_id
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.properties import TableProperties, TableType
from tidelock.hudi.schema import IS_DELETED, PARTITION_PATH, RECORD_KEY
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.operations.config import BUCKETS, SortMode, WriteSettings
from tidelock.operations.file_view import TableView
from tidelock.operations.planner import Capacity, TableShape, plan_buckets, plan_bulk, plan_write
from tidelock.operations.request import WriteRequest
from tidelock.txn.footprint import NO_DEPENDENCIES, ReadDependencies

_BY_FILES: Final = (IndexKind.SIMPLE, IndexKind.BLOOM)
"""Indexes that look up keys in files, and put new keys into base files."""

NOTHING = TaggedRows(None, {})
"""The input of a write without rows."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Rows with their file groups, the write plan, and the file groups to replace.

    `intents` are the partitions to overwrite, None for all. `dependencies` are the parts of the
    table that the assignment depends on, besides the file groups to write.
    """

    tagged: TaggedRows
    plan: WritePlan
    replaced: frozenset[GroupId] = frozenset()
    intents: frozenset[str] | None = frozenset()
    dependencies: ReadDependencies = NO_DEPENDENCIES


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Assigns the rows of one table's writes. `schema` includes the meta columns."""

    engine: WriteEngine
    properties: TableProperties
    settings: WriteSettings
    ids: IdSource
    schema: pa.Schema
    merge: MergeRule
    nonblocking: bool = False

    def assign(
        self,
        request: WriteRequest,
        prepared: PreparedRows | None,
        view: TableView,
        *,
        contended: bool,
    ) -> Assignment:
        """Return the assignment of the rows for the table at `view`.

        With `contended`, other writers are active: inserts then get file groups of their own
        instead of all filling the same small file. Raises: the errors of key lookups.
        """
        if request.overwrites:
            return self._overwrite(request, prepared, view)
        if prepared is None:
            return Assignment(NOTHING, WritePlan((), Routes()))
        slices = self._slices(request, prepared, view, contended=contended)
        tag_rule = self._tag_rule(request, slices, view)
        tagged = self.engine.tag(prepared, tag_rule)
        dependencies = self._dependencies(prepared, tagged, tag_rule, slices)
        if request.operation is OperationType.BULK_INSERT:
            plan = self._bulk(tagged.profile, slices, view)
            return Assignment(tagged, plan, dependencies=dependencies)
        shape = TableShape(
            appends=self.properties.type is TableType.MERGE_ON_READ,
            logs_inserts=self.nonblocking,
            # Blind inserts avoid small files under contention, because those cause conflicts.
            fills_small=not self._bucketed and not (request.inserts and contended),
            concat=request.inserts and self.settings.allow_duplicates,
            deletes=request.deletes,
            busy=view.busy,
            deleting=self._deleting(tagged.profile, slices, view),
        )
        plan = plan_write(tagged.profile, slices, shape, self._capacity(view), self.ids.uuid)
        return Assignment(tagged, plan, dependencies=dependencies)

    def _deleting(
        self, profile: Profile, slices: Mapping[GroupId, FileSlice], view: TableView
    ) -> frozenset[GroupId]:
        """Return the groups with deletes in log files, where ordering values must be compared."""
        if not self.merge.ordered_by:
            return frozenset()
        groups = [(path, group) for path, found in profile.items() for group in found.updates]
        return view.deleting(slices[group] for group in groups if group in slices)

    def _dependencies(
        self,
        prepared: PreparedRows,
        tagged: TaggedRows,
        rule: TagRule,
        slices: Mapping[GroupId, FileSlice],
    ) -> ReadDependencies:
        """Return what the assignment depends on, besides the groups that the rows go to."""
        named = {path: keys for path, keys in tagged.missing.items() if keys is not None}
        missing = tagged.missing if rule.bucket is not None else {}
        return ReadDependencies(
            absent=frozenset() if rule.bucket is None else groups_of_keys(named, rule.bucket),
            empty=frozenset(path for path, keys in missing.items() if keys is None),
            rows=frozenset(prepared.partitions) if rule.drop_found else frozenset(),
            anywhere=rule.anywhere,
            searched=frozenset(path for path, _ in slices),
        )

    def _slices(
        self, request: WriteRequest, prepared: PreparedRows, view: TableView, *, contended: bool
    ) -> Mapping[GroupId, FileSlice]:
        blind = request.inserts and not self.settings.drop_duplicates and not self._bucketed
        if blind and (contended or request.operation is OperationType.BULK_INSERT):
            return {}  # its rows go to new file groups
        return view.file_slices(None if request.anywhere else prepared.partitions)

    @property
    def _bucketed(self) -> bool:
        return self.settings.index is IndexKind.BUCKET

    def _tag_rule(
        self, request: WriteRequest, slices: Mapping[GroupId, FileSlice], view: TableView
    ) -> TagRule:
        drop_found = request.inserts and self.settings.drop_duplicates
        kind = self.settings.index
        if request.inserts and not drop_found and kind is not IndexKind.BUCKET:
            kind = IndexKind.NONE
        logged = {group: piece for group, piece in slices.items() if piece.logs}
        marked_by = TOMBSTONE if request.tombstones else IS_DELETED
        return TagRule(
            kind,
            view.searched(slices.values()) if kind in _BY_FILES else tuple(slices.values()),
            bucket=self._bucket_rule(view) if kind is IndexKind.BUCKET else None,
            drop_found=drop_found,
            drop_missing=request.deletes,
            anywhere=request.anywhere,
            delete_column=None if request.deletes else marked_by,
            live=Liveness(logged, self.schema, self.merge) if logged else None,
        )

    def _bucket_rule(self, view: TableView) -> BucketRule:
        groups: dict[tuple[str, int], str] = {}
        for partition, file_id in view.file_slices():
            bucket = bucket_of(file_id)
            if bucket >= self.settings.buckets:
                raise ConfigInvalid(
                    f"{BUCKETS.key}: expected more than {bucket}, the bucket of"
                    f" {partition}/{file_id}, got {self.settings.buckets}",
                    hint="use the number of buckets that the table was written with",
                )
            groups[partition, bucket] = file_id
        for partition, file_id in sorted(view.replaced):
            # A file id that a replacecommit replaced stays hidden, so its bucket needs another.
            bucket = int(file_id[:8]) if file_id[:8].isdecimal() else -1
            if file_id == fixed_file_id(bucket):
                groups.setdefault((partition, bucket), bucket_file_id(bucket, self.ids.uuid()))
        keys = self.properties.record_keys
        return BucketRule(self.settings.buckets, self.settings.bucket_fields, keys, groups)

    def _bulk(
        self, profile: Profile, slices: Mapping[GroupId, FileSlice], view: TableView
    ) -> WritePlan:
        order = self._order()
        if self._bucketed:
            return plan_buckets(profile, slices, order_by=order)
        return plan_bulk(
            profile,
            self._capacity(view),
            self.ids.uuid,
            slots_min=self.settings.sizing.bulk_slots,
            order_by=order,
            ranged=self.settings.sort_mode is SortMode.GLOBAL_SORT,
        )

    def _order(self) -> tuple[str, ...]:
        if self.settings.sort_columns:
            return self.settings.sort_columns
        return (PARTITION_PATH, RECORD_KEY) if self.settings.sort_mode.sorts else ()

    def _overwrite(
        self, request: WriteRequest, prepared: PreparedRows | None, view: TableView
    ) -> Assignment:
        intents: frozenset[str] | None = None
        if request.operation is not OperationType.INSERT_OVERWRITE_TABLE:
            written = () if prepared is None else prepared.partitions
            intents = frozenset([*request.partitions, *written])
        replaced, tagged = view.file_slices(intents), NOTHING
        if prepared is not None:
            kind = IndexKind.BUCKET if self._bucketed else IndexKind.NONE
            bucket = self._bucket_rule(view) if self._bucketed else None
            rule = TagRule(kind, (), bucket=bucket, delete_column=IS_DELETED)
            tagged = self.engine.tag(prepared, rule)
        if self._bucketed:
            plan = plan_buckets(tagged.profile, {}, replaced.values())
            return Assignment(tagged, plan, intents=intents)
        capacity, order = self._capacity(view), self._order()
        plan = plan_bulk(tagged.profile, capacity, self.ids.uuid, order_by=order)
        return Assignment(tagged, plan, frozenset(replaced), intents)

    def _capacity(self, view: TableView) -> Capacity:
        sizing = self.settings.sizing
        record_bytes = view.sizes.record_bytes(sizing.record_bytes)
        by_size = max(1, sizing.file_bytes // record_bytes)
        return Capacity(
            sizing.file_bytes,
            sizing.small_bytes,
            record_bytes,
            by_size if sizing.auto_split else sizing.split_rows,
            sizing.small_candidates,
        )
