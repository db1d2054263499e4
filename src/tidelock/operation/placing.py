"""From prepared rows to a plan: how rows find their groups, for each operation, type and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelock.base.errors import ConfigInvalid
from tidelock.base.ids import IdSource
from tidelock.engine.contract import Prepared, Profile, Tagged, TagRule, WriteEngine, WritePlan
from tidelock.kernel.lookup import BucketRule, IndexKind, Liveness, groups_of_keys
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.route import TOMBSTONE, Routes
from tidelock.operation.job import Job
from tidelock.operation.plan import Capacity, Shape, plan_buckets, plan_bulk, plan_write
from tidelock.operation.settings import SortMode, WriteSettings
from tidelock.operation.view import TableView
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import GroupId
from tidelock.table.index.bucket import bucket_file_id, bucket_of, fixed_file_id
from tidelock.table.properties import TableProperties, TableType
from tidelock.table.schema.meta import IS_DELETED, PARTITION_PATH, RECORD_KEY
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn.footprint import NO_RELIANCE, Reliance

_BY_FILES: Final = (IndexKind.SIMPLE, IndexKind.BLOOM)
"""Indexes that look for keys in files, and put new ones into base files."""

NOTHING = Tagged(None, {})
"""The rows of a write that has none."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows with their places, what is to be done, and which groups go.

    `intents` are the partitions that are overwritten, None for all. `reliance` is what the places
    depend on beyond the groups that are written.
    """

    tagged: Tagged
    plan: WritePlan
    replaced: frozenset[GroupId] = frozenset()
    intents: frozenset[str] | None = frozenset()
    reliance: Reliance = NO_RELIANCE


@dataclass(frozen=True, slots=True)
class Placing:
    """Places the rows of one table's writes; `schema` has the table's columns and Hudi's own."""

    engine: WriteEngine
    properties: TableProperties
    settings: WriteSettings
    ids: IdSource
    schema: pa.Schema
    merge: MergeRule
    nonblocking: bool = False

    def place(
        self, job: Job, prepared: Prepared | None, view: TableView, *, crowded: bool
    ) -> Placed:
        """Return where the rows go as the table is at `view`.

        `crowded` says that others write at the same time: rows that are only added then get file
        groups of their own instead of filling one that everybody fills. Raises: what a lookup
        raises.
        """
        if job.overwrites:
            return self._overwrite(job, prepared, view)
        if prepared is None:
            return Placed(NOTHING, WritePlan((), Routes()))
        slices = self._slices(job, prepared, view, crowded=crowded)
        tag_rule = self._tag_rule(job, slices, view)
        tagged = self.engine.tag(prepared, tag_rule)
        reliance = self._reliance(prepared, tagged, tag_rule, slices)
        if job.operation is OperationType.BULK_INSERT:
            plan = self._bulk(tagged.profile, slices, view)
            return Placed(tagged, plan, reliance=reliance)
        shape = Shape(
            appends=self.properties.type is TableType.MERGE_ON_READ,
            logs_inserts=self.nonblocking,
            # A blind insert that was overtaken in a small file goes where nobody else is.
            fills_small=not self._bucketed and not (job.inserts and crowded),
            concat=job.inserts and self.settings.allow_duplicates,
            deletes=job.deletes,
            busy=view.busy,
            deleting=self._deleting(tagged.profile, slices, view),
        )
        plan = plan_write(tagged.profile, slices, shape, self._capacity(view), self.ids.uuid)
        return Placed(tagged, plan, reliance=reliance)

    def _deleting(
        self, profile: Profile, slices: Mapping[GroupId, FileSlice], view: TableView
    ) -> frozenset[GroupId]:
        """Return the groups where event time tells a key that comes again from its deleted row."""
        if not self.merge.ordered_by:
            return frozenset()
        groups = [(path, group) for path, found in profile.items() for group in found.updates]
        return view.deleting(slices[group] for group in groups if group in slices)

    def _reliance(
        self,
        prepared: Prepared,
        tagged: Tagged,
        rule: TagRule,
        slices: Mapping[GroupId, FileSlice],
    ) -> Reliance:
        """Return what the places of rows depend on, beyond the groups that they go to."""
        named = {path: keys for path, keys in tagged.missing.items() if keys is not None}
        missing = tagged.missing if rule.bucket is not None else {}
        return Reliance(
            absent=frozenset() if rule.bucket is None else groups_of_keys(named, rule.bucket),
            empty=frozenset(path for path, keys in missing.items() if keys is None),
            rows=frozenset(prepared.partitions) if rule.drop_found else frozenset(),
            anywhere=rule.anywhere,
            looked_in=frozenset(path for path, _ in slices),
        )

    def _slices(
        self, job: Job, prepared: Prepared, view: TableView, *, crowded: bool
    ) -> Mapping[GroupId, FileSlice]:
        blind = job.inserts and not self.settings.drop_duplicates and not self._bucketed
        if blind and (crowded or job.operation is OperationType.BULK_INSERT):
            return {}  # its rows go to file groups of their own, whatever there is
        return view.of(None if job.anywhere else prepared.partitions)

    @property
    def _bucketed(self) -> bool:
        return self.settings.index is IndexKind.BUCKET

    def _tag_rule(self, job: Job, slices: Mapping[GroupId, FileSlice], view: TableView) -> TagRule:
        drop_found = job.inserts and self.settings.drop_duplicates
        kind = self.settings.index
        if job.inserts and not drop_found and kind is not IndexKind.BUCKET:
            kind = IndexKind.NONE
        return TagRule(
            kind,
            view.searched(slices.values()) if kind in _BY_FILES else tuple(slices.values()),
            bucket=self._bucket_rule(view) if kind is IndexKind.BUCKET else None,
            drop_found=drop_found,
            drop_missing=job.deletes,
            anywhere=job.anywhere,
            deletes_by=None if job.deletes else TOMBSTONE if job.tombstones else IS_DELETED,
            live=self._liveness(slices),
        )

    def _liveness(self, slices: Mapping[GroupId, FileSlice]) -> Liveness | None:
        logged = {group: piece for group, piece in slices.items() if piece.logs}
        return Liveness(logged, self.schema, self.merge) if logged else None

    def _bucket_rule(self, view: TableView) -> BucketRule:
        groups: dict[tuple[str, int], str] = {}
        for partition, file_id in view.of():
            bucket = bucket_of(file_id)
            if bucket >= self.settings.buckets:
                raise ConfigInvalid(
                    f"{partition}/{file_id} is bucket {bucket}, and this writer has"
                    f" {self.settings.buckets}",
                    hint="give hoodie.bucket.index.num.buckets as the table was written with",
                )
            groups[partition, bucket] = file_id
        for partition, file_id in sorted(view.replaced):
            # An id that a replacecommit named is hidden for ever, so its bucket needs another.
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

    def _overwrite(self, job: Job, prepared: Prepared | None, view: TableView) -> Placed:
        intents: frozenset[str] | None = frozenset(
            [*job.partitions, *(() if prepared is None else prepared.partitions)]
        )
        if job.operation is OperationType.INSERT_OVERWRITE_TABLE:
            intents = None
        gone = view.of(intents)
        if prepared is None:
            tagged = NOTHING
        else:
            kind = IndexKind.BUCKET if self._bucketed else IndexKind.NONE
            rule = TagRule(
                kind,
                (),
                bucket=self._bucket_rule(view) if self._bucketed else None,
                deletes_by=IS_DELETED,
            )
            tagged = self.engine.tag(prepared, rule)
        if self._bucketed:
            return Placed(tagged, plan_buckets(tagged.profile, {}, gone.values()), intents=intents)
        plan = plan_bulk(
            tagged.profile, self._capacity(view), self.ids.uuid, order_by=self._order()
        )
        return Placed(tagged, plan, frozenset(gone), intents)

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
