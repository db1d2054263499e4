"""Partition TTL: deletes expired partitions in one commit, unless they are being written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelock.core.errors import InvalidInput, OutcomeUnknown
from tidelock.core.outcome import Unknown
from tidelock.hudi import partitions
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.timeline.instant import Action, parse_time
from tidelock.hudi.timeline.metadata import SCHEMA_KEY, OperationType, ReplaceCommitMetadata
from tidelock.operations.read import snapshot_now
from tidelock.operations.write import TableWriter
from tidelock.services.plans import conflict_of
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.footprint import schema_id_of
from tidelock.txn.state import LedgerState

_DAY_MS: Final = 86_400_000


class TtlStrategy(StrEnum):
    """The start of a partition's age."""

    LAST_WRITE = "KEEP_BY_TIME"
    CREATION = "KEEP_BY_CREATION_TIME"


PARTITIONS_PER_RUN_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class TtlRule:
    """The TTL in days. Only partitions in `selected` expire, if given; at most `most` per run."""

    days: int
    strategy: TtlStrategy = TtlStrategy.LAST_WRITE
    selected: frozenset[str] = frozenset()
    most: int = PARTITIONS_PER_RUN_MAX


def expired_partitions(
    times: Mapping[str, str], rule: TtlRule, *, now_epoch_ms: int
) -> tuple[str, ...]:
    """Return the expired partitions, oldest first. `times` are the starts of their ages."""
    oldest = now_epoch_ms - rule.days * _DAY_MS
    found = [
        (time, partition)
        for partition, time in times.items()
        if parse_time(time) < oldest and (not rule.selected or partition in rule.selected)
    ]
    return tuple(partition for _, partition in sorted(found)[: rule.most])


_ATTEMPTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class ExpiredPartitions:
    """The deleted partitions, and the commit that deleted them; None if there was none."""

    partitions: tuple[str, ...] = ()
    instant: str | None = None
    completion: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionTtl:
    """Partition TTL of one table."""

    writer: TableWriter

    def plan(self, rule: TtlRule) -> tuple[str, ...]:
        """Return the partitions that would be deleted now."""
        state = self.writer.transactions.ledger.refresh()
        return self._expired(snapshot_now(self.writer.store).slices(), rule, state)

    def run(self, rule: TtlRule) -> ExpiredPartitions:
        """Delete the expired partitions.

        After a conflict the partitions are checked again: a partition that is being written has not
        expired. Raises: `InvalidInput` for a table without partitions, `WriteConflict` if
        concurrent writes conflicted each time, `OutcomeUnknown`.
        """
        if not self.writer.properties.is_partitioned:
            raise InvalidInput(
                f"{self.writer.store.uri} is not partitioned",
                hint="partition TTL applies to partitioned tables only",
            )
        conflict: Conflicted | None = None
        for _ in range(_ATTEMPTS_MAX):
            state = self.writer.transactions.ledger.refresh()
            snapshot = snapshot_now(self.writer.store)
            slices = snapshot.slices()
            chosen = self._expired(slices, rule, state)
            if not chosen:
                return ExpiredPartitions()
            result = self._delete(chosen, slices, state, snapshot.schema_json() or "")
            if isinstance(result, ExpiredPartitions):
                return result
            conflict = result
        assert conflict is not None
        raise conflict_of(conflict)

    def _expired(
        self, slices: Collection[FileSlice], rule: TtlRule, state: LedgerState
    ) -> tuple[str, ...]:
        """Return the expired partitions that are in no pending plan, which would never complete."""
        busy = {partition for plan in state.plans.values() for partition, _ in plan.targets}
        times: dict[str, str] = {}
        for piece in slices:
            if piece.partition in busy:
                continue
            newest = max([piece.instant, *(log.instant for log in piece.logs)])
            times[piece.partition] = max(newest, times.get(piece.partition, ""))
        if rule.strategy is TtlStrategy.CREATION:
            times = {partition: self._created(partition) or times[partition] for partition in times}
        now_ms = self.writer.transactions.clock.now().wall_epoch_ms
        return expired_partitions(times, rule, now_epoch_ms=now_ms)

    def _created(self, partition: str) -> str:
        key = partitions.metadata_key(partition)
        found = self.writer.store.get(key)
        return partitions.decode(found.body, where=key).commit_time if found is not None else ""

    def _delete(
        self, chosen: tuple[str, ...], slices: Collection[FileSlice], base: LedgerState, avro: str
    ) -> ExpiredPartitions | Conflicted:
        by_partition: dict[str, tuple[str, ...]] = {
            partition: tuple(sorted(s.file_id for s in slices if s.partition == partition))
            for partition in chosen
        }
        groups = frozenset((p, file_id) for p, ids in by_partition.items() for file_id in ids)
        draft = CommitDraft(
            ReplaceCommitMetadata(
                extra_metadata={SCHEMA_KEY: avro},
                operation_type=OperationType.DELETE_PARTITION,
                partition_to_replace_file_ids=by_partition,
            ),
            OperationType.DELETE_PARTITION,
            # As touched groups, they conflict with any write: a written partition has not expired.
            touched=groups,
            replaced=groups,
            schema_id=schema_id_of(avro),
        )
        begun = self.writer.transactions.begin(
            Action.REPLACE_COMMIT, OperationType.DELETE_PARTITION, base=base, markers=True
        )
        with begun as transaction:
            match transaction.commit(draft):
                case Committed(instant, completion):
                    return ExpiredPartitions(chosen, instant, completion)
                case Unknown(cause):
                    raise OutcomeUnknown(
                        f"{transaction.instant} may or may not have been committed: {cause}",
                        hint="check the timeline before running it again",
                    )
                case Conflicted() as conflict:
                    transaction.rollback(conflict=conflict)
                    return conflict
