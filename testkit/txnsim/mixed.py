"""A simulated writer that rewrites file groups, appends log files, and replaces partitions.

A log file is written without reading its file group, like a non-blocking writer. The table then has
a bucket index, so that a key belongs to one file group. Reads follow the ledger.
"""

from __future__ import annotations

import json
from dataclasses import replace

from testkit.txnsim.checked_store import PARTITION, WriteRecord
from testkit.txnsim.plan import KEYS, Kind
from testkit.txnsim.truth import table_at
from testkit.txnsim.writer import Content, Writer, Written
from tidelock.core.errors import TidelockError
from tidelock.hudi.file_groups import WriteToken, base_name, log_name
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType, ReplaceCommitMetadata
from tidelock.operations.attempt import with_replaced
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import CommitResult, Conflicted, ReplanReplaced
from tidelock.txn.transaction import Transaction

BUCKETS = 2


class MixedWriter(Writer):
    """Executes each job according to its kind."""

    def action(self, record: WriteRecord) -> Action:
        """Return the action of the write on the timeline."""
        if record.kind.overwrites:
            return Action.REPLACE_COMMIT
        return Action.DELTA_COMMIT if self.world.plan.bucketed else Action.COMMIT

    def operation(self, record: WriteRecord) -> OperationType:
        """Return Hudi's name of the operation."""
        return _OPERATIONS[record.kind]

    def _prepare(self, record: WriteRecord) -> Written:
        written = Written(self.txns.ledger.refresh(), record.kind)
        groups = self._groups(written.base.position)
        if record.kind.overwrites:
            written.replaced = frozenset((PARTITION, group) for group in groups)
            groups = {}
        for key in record.keys if record.kind is not Kind.CLEAR else ():
            home = self._home(key, groups, record)
            if home not in groups:
                groups[home] = {}
                written.created.add(home)
            if key not in groups[home] and not self.world.plan.bucketed:
                written.inserted.add(key)
            held = groups[home] = dict(groups[home])
            held[key] = [*held.get(key, ()), record.write]
            written.contents[home] = held
        if record.kind is Kind.APPEND:
            # A log file contains only the rows that this write adds.
            written.contents = {
                group: {key: [record.write] for key in record.keys if key in held}
                for group, held in written.contents.items()
            }
            written.logs = {*written.contents}
        return written

    def _groups(self, position: int) -> dict[str, Content]:
        """Return the content of each file group after an entry of the ledger."""
        found: dict[str, Content] = {}
        for group, paths in sorted(table_at(self.history, position).files.items()):
            found[group] = {}
            for path in paths:
                stored = self.client.get(path)
                if stored is None:
                    raise TidelockError(f"{path} is missing")
                for key, writes in json.loads(stored.body).items():
                    found[group][key] = [*found[group].get(key, ()), *writes]
        return found

    def _home(self, key: str, groups: dict[str, Content], record: WriteRecord) -> str:
        if not self.world.plan.bucketed:
            known = next((group for group, held in groups.items() if key in held), None)
            return known or self._route(sorted(groups), record)
        bucket = f"{KEYS.index(key) % BUCKETS:08d}-"
        known = next((group for group in sorted(groups) if group.startswith(bucket)), None)
        return known or f"{bucket}{record.write}-{len(record.instants)}"

    def _name(self, group: str, slot: int, txn: Transaction, written: Written) -> str:
        token = WriteToken(slot, txn.attempt, 0)
        if group in written.logs:
            return log_name(group, txn.instant, token)
        return base_name(group, token, txn.instant)

    def _draft(self, written: Written) -> CommitDraft:
        draft = replace(super()._draft(written), bucketed=self.world.plan.bucketed)
        if written.kind is Kind.APPEND:
            return replace(draft, appended=draft.touched, nonblocking=True)
        if not written.kind.overwrites:
            return draft
        stats = getattr(draft.metadata, "partition_to_write_stats", {})
        operation = _OPERATIONS[written.kind]
        overwrite = replace(
            draft,
            metadata=ReplaceCommitMetadata(stats, operation_type=operation),
            operation=operation,
            intents=frozenset({PARTITION}),
        )
        return with_replaced(overwrite, written.replaced)

    def _tried(self, txn: Transaction, draft: CommitDraft) -> tuple[CommitResult, CommitDraft]:
        """Commit, and compute the list of replaced file groups again as often as needed."""
        while True:
            result = txn.commit(draft)
            match result:
                case Conflicted(verdict=ReplanReplaced(add=add, drop=drop)) if not draft.bucketed:
                    draft = with_replaced(draft, (draft.replaced | add) - drop)
                case _:
                    return result, draft


_OPERATIONS = {
    Kind.UPSERT: OperationType.UPSERT,
    Kind.APPEND: OperationType.UPSERT,
    Kind.OVERWRITE: OperationType.INSERT_OVERWRITE,
    Kind.CLEAR: OperationType.DELETE_PARTITION,
}
