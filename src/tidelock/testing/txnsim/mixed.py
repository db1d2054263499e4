"""A simulated writer of several kinds: file groups written anew, log files, whole partitions.

A log file is written without reading its file group, as non-blocking writers do; then the table has
a bucket index, by which a key belongs to one file group. What is read is what the ledger says.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tidelock.base.errors import TidelockError
from tidelock.operation.drafting import with_replaced
from tidelock.table.naming import WriteToken, base_name, log_name
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType, ReplaceCommitMetadata
from tidelock.testing.txnsim.plan import KEYS, Kind
from tidelock.testing.txnsim.truth import table_at
from tidelock.testing.txnsim.witness import PARTITION, Told
from tidelock.testing.txnsim.writer import Content, Writer, Written
from tidelock.txn.draft import CommitDraft, CommitResult, Overtaken
from tidelock.txn.transaction import Transaction
from tidelock.txn.verdict import ReplanReplaced

BUCKETS = 2


class MixedWriter(Writer):
    """Writes each job by its kind."""

    def action(self, told: Told) -> Action:
        """Return what the timeline calls the write."""
        if told.kind.overwrites:
            return Action.REPLACE_COMMIT
        return Action.DELTA_COMMIT if self.world.plan.bucketed else Action.COMMIT

    def operation(self, told: Told) -> OperationType:
        """Return what Hudi calls the operation."""
        return _OPERATIONS[told.kind]

    def _prepare(self, told: Told) -> Written:
        written = Written(self.txns.ledger.refresh(), told.kind)
        groups = self._groups(written.base.position)
        if told.kind.overwrites:
            written.replaced = frozenset((PARTITION, group) for group in groups)
            groups = {}
        for key in told.keys if told.kind is not Kind.CLEAR else ():
            home = self._home(key, groups, told)
            if home not in groups:
                groups[home] = {}
                written.created.add(home)
            if key not in groups[home] and not self.world.plan.bucketed:
                written.inserted.add(key)
            held = groups[home] = dict(groups[home])
            held[key] = [*held.get(key, ()), told.write]
            written.contents[home] = held
        if told.kind is Kind.APPEND:
            # Of the file group a log file has only what this write adds.
            written.contents = {
                group: {key: [told.write] for key in told.keys if key in held}
                for group, held in written.contents.items()
            }
            written.logs = {*written.contents}
        return written

    def _groups(self, position: int) -> dict[str, Content]:
        """Return what each file group holds after an entry of the ledger."""
        found: dict[str, Content] = {}
        for group, paths in sorted(table_at(self.history, position).files.items()):
            found[group] = {}
            for path in paths:
                stored = self.client.get(path)
                if stored is None:
                    raise TidelockError(f"{path} is gone")
                for key, writes in json.loads(stored.body).items():
                    found[group][key] = [*found[group].get(key, ()), *writes]
        return found

    def _home(self, key: str, groups: dict[str, Content], told: Told) -> str:
        if not self.world.plan.bucketed:
            known = next((group for group, held in groups.items() if key in held), None)
            return known or self._route(sorted(groups), told)
        bucket = f"{KEYS.index(key) % BUCKETS:08d}-"
        known = next((group for group in sorted(groups) if group.startswith(bucket)), None)
        return known or f"{bucket}{told.write}-{len(told.instants)}"

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
        """Commit, with the list of what is replaced made again as often as it takes."""
        while True:
            result = txn.commit(draft)
            match result:
                case Overtaken(verdict=ReplanReplaced(add=add, drop=drop)) if not draft.bucketed:
                    draft = with_replaced(draft, (draft.replaced | add) - drop)
                case _:
                    return result, draft


_OPERATIONS = {
    Kind.UPSERT: OperationType.UPSERT,
    Kind.APPEND: OperationType.UPSERT,
    Kind.OVERWRITE: OperationType.INSERT_OVERWRITE,
    Kind.CLEAR: OperationType.DELETE_PARTITION,
}
