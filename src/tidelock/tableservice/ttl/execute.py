"""Partition TTL: expired partitions are deleted by one commit, unless somebody writes to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import InvalidInput, OutcomeUnknown, WriteConflict
from tidelock.base.outcome import Unknown
from tidelock.operation.reads import snapshot_now
from tidelock.operation.writer import TableWriter
from tidelock.table import partition as partitions
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import SCHEMA_KEY, OperationType, ReplaceCommitMetadata
from tidelock.tableservice.ttl.plan import Expiry, Measure, expired
from tidelock.txn.draft import CommitDraft, Committed, Overtaken, schema_id_of
from tidelock.txn.fold import Fold

_ROUNDS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Expired:
    """The partitions that were deleted, and by which commit; None if there were none."""

    partitions: tuple[str, ...] = ()
    instant: str | None = None
    completion: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionTtl:
    """Deletes expired partitions of the table of one writer."""

    writer: TableWriter

    def plan(self, expiry: Expiry) -> tuple[str, ...]:
        """Return the partitions that have expired."""
        fold = self.writer.transactions.ledger.refresh()
        return self._expired(snapshot_now(self.writer.store).slices(), expiry, fold)

    def run(self, expiry: Expiry) -> Expired:
        """Delete the partitions that have expired.

        A write that comes between makes it look again: a partition that somebody writes to has
        not expired. Raises: `InvalidInput` for a table without partitions, `WriteConflict` if
        others were faster each time, `OutcomeUnknown`.
        """
        if not self.writer.properties.is_partitioned:
            raise InvalidInput(
                f"{self.writer.store.uri} has no partitions that could expire",
                hint="partition TTL is for partitioned tables",
            )
        overtaken: Overtaken | None = None
        for _ in range(_ROUNDS_MAX):
            fold = self.writer.transactions.ledger.refresh()
            snapshot = snapshot_now(self.writer.store)
            slices = snapshot.slices()
            chosen = self._expired(slices, expiry, fold)
            if not chosen:
                return Expired()
            result = self._delete(chosen, slices, fold, snapshot.schema_json() or "")
            if isinstance(result, Expired):
                return result
            overtaken = result
        assert overtaken is not None
        report = overtaken.verdict.report
        raise WriteConflict(str(report), hint=report.advice, report=report)

    def _expired(
        self, slices: Collection[FileSlice], expiry: Expiry, fold: Fold
    ) -> tuple[str, ...]:
        """Return what has expired and is in no pending plan: those would never come to an end."""
        busy = {partition for plan in fold.plans.values() for partition, _ in plan.targets}
        times: dict[str, str] = {}
        for piece in slices:
            if piece.partition in busy:
                continue
            newest = max([piece.instant, *(log.instant for log in piece.logs)])
            times[piece.partition] = max(newest, times.get(piece.partition, ""))
        if expiry.measure is Measure.CREATION:
            times = {partition: self._created(partition) or times[partition] for partition in times}
        now_ms = self.writer.transactions.clock.now().wall_epoch_ms
        return expired(times, expiry, now_epoch_ms=now_ms)

    def _created(self, partition: str) -> str:
        key = partitions.metadata_key(partition)
        found = self.writer.store.get(key)
        return partitions.decode(found.body, where=key).commit_time if found is not None else ""

    def _delete(
        self, chosen: tuple[str, ...], slices: Collection[FileSlice], base: Fold, avro: str
    ) -> Expired | Overtaken:
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
            # Touched: a write to one of them says that the partition is not forsaken.
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
                    return Expired(chosen, instant, completion)
                case Unknown(cause):
                    raise OutcomeUnknown(
                        f"{transaction.instant} may or may not have been committed: {cause}",
                        hint="look at the timeline before running it again",
                    )
                case Overtaken() as overtaken:
                    # Nobody takes what came between for expired: it is looked at anew.
                    transaction.rollback(overtaken=overtaken)
                    return overtaken
