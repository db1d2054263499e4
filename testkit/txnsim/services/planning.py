"""The simulated services: the content of a plan, its result, and its conflict check."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum

from testkit.txnsim.checked_store import PARTITION
from testkit.txnsim.services.parameters import Parameters
from testkit.txnsim.services.truth import Rows, Slice, State
from tidelock.hudi.file_groups import data_file
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import (
    ClusteringGroup,
    ClusteringPlan,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    OperationType,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
    TimelineRecord,
    WriteStat,
)
from tidelock.txn.commit import CommitDraft
from tidelock.txn.transaction import Transaction


class Service(Enum):
    """Services that executors run: compactions are permanent, clusterings are removable."""

    COMPACTION = Action.COMPACTION
    CLUSTERING = Action.CLUSTERING

    @classmethod
    def of(cls, action: Action) -> Service:
        """Return the service of a plan."""
        return cls(action)

    @property
    def action(self) -> Action:
        """Its action on the timeline."""
        return self.value

    @property
    def operation(self) -> OperationType:
        """The operation of its commit."""
        kept = self is Service.COMPACTION
        return OperationType.COMPACT if kept else OperationType.CLUSTER

    def outputs(self, merged: Mapping[str, Rows], txn: Transaction) -> dict[str, Rows]:
        """Return the rows of each file group that is written."""
        if self is Service.COMPACTION:
            return dict(merged)
        together = {key: writes for rows in merged.values() for key, writes in rows.items()}
        return {f"c{txn.instant[-9:]}-{txn.attempt}": together}


def drawn(rng: random.Random, parameters: Parameters) -> Service:
    """Draw a service to plan."""
    return (
        Service.COMPACTION
        if rng.random() < (0.6 if parameters.logs else 0.4)
        else Service.CLUSTERING
    )


def record_of(service: Service, inputs: State, uri: str) -> TimelineRecord:
    """Return the plan in the format of the timeline."""
    if service is Service.COMPACTION:
        return CompactionPlan(tuple(_operation(g, p) for g, p in sorted(inputs.items())))
    slices = tuple(
        SliceInfo(
            data_file_path=f"{uri}/{piece.base}" if piece.base else None,
            delta_file_paths=tuple(f"{uri}/{log}" for log in piece.logs),
            file_id=group,
            partition_path=PARTITION,
        )
        for group, piece in sorted(inputs.items())
    )
    plan = ClusteringPlan((ClusteringGroup(slices, {}, 1, {}),))
    return RequestedReplaceMetadata(
        operation_type=OperationType.CLUSTER.value, clustering_plan=plan, version=1
    )


def _operation(group: str, piece: Slice) -> CompactionOperation:
    first = data_file(PARTITION, _name(piece.files[0]), 0)
    return CompactionOperation(
        base_instant_time=first.instant if first is not None else "",
        file_id=group,
        delta_file_paths=tuple(_name(log) for log in piece.logs),
        data_file_path=_name(piece.base) if piece.base else None,
        partition_path=PARTITION,
    )


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def draft_of(service: Service, files: Mapping[str, str], inputs: State) -> CommitDraft:
    """Return the draft that the executor commits."""
    stats = {
        PARTITION: tuple(
            WriteStat(file_id=group, path=key, partition_path=PARTITION)
            for group, key in sorted(files.items())
        )
    }
    groups = frozenset((PARTITION, group) for group in inputs)
    if service is Service.COMPACTION:
        metadata = CommitMetadata(stats, compacted=True, operation_type=service.operation)
        return CommitDraft(metadata, service.operation, touched=groups)
    replacing = ReplaceCommitMetadata(
        stats,
        operation_type=service.operation,
        partition_to_replace_file_ids={PARTITION: tuple(sorted(inputs))},
    )
    return CommitDraft(
        replacing,
        service.operation,
        created=frozenset((PARTITION, group) for group in files),
        replaced=groups,
    )
