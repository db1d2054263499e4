"""A simulated writer: upserts with production transactions, on a table small enough to check.

A data file maps keys to the names of the writes that updated them, in order. An upsert reads the
file of a key, adds its own name and rewrites the file group, so a lost update is a missing name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from testkit.txnsim.checked_store import PARTITION, CheckedStore, History, WriteRecord
from testkit.txnsim.network import Client
from testkit.txnsim.plan import Kind
from testkit.txnsim.world import Process, World
from tidelock.core.errors import OutcomeUnknown, TidelockError
from tidelock.core.outcome import Landed, Unknown
from tidelock.core.system import SeededIds
from tidelock.hudi.file_groups import GroupId, WriteToken, base_name, data_file
from tidelock.hudi.markers import IoType, Marker, marker_folder
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import CommitMetadata, OperationType, WriteStat
from tidelock.storage.contract import Busy, Create, Refused, Unclear
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import (
    CheckKeys,
    CommitResult,
    Committed,
    Conflicted,
    Rebase,
    ReplanReplaced,
)
from tidelock.txn.ledger_io import write_checkpoint
from tidelock.txn.state import LedgerState
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager, Work

BEAT_MS = 1_000
ROUNDS_MAX = 40
_ASK_AGAIN = 3

Content = dict[str, list[str]]


@dataclass(slots=True)
class Written:
    """The file groups of one attempt: their content, their key, and whether they are new."""

    base: LedgerState
    kind: Kind = Kind.UPSERT
    contents: dict[str, Content] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    inserted: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    logs: set[str] = field(default_factory=set)
    replaced: frozenset[GroupId] = frozenset()


class Writer(Process):
    """A process with one open table."""

    def __init__(
        self,
        world: World,
        name: str,
        store: CheckedStore,
        history: History,
        properties: TableProperties,
        *,
        offset_ms: float,
    ) -> None:
        """Open the table; nothing is read yet."""
        super().__init__(world, name, offset_ms=offset_ms)
        self.client = Client(self, store)
        self.history = history
        self.txns = TransactionManager(
            self.client,
            {
                "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
                "hoodie.client.heartbeat.interval_in_ms": str(BEAT_MS),
                "hoodie.client.heartbeat.tolerable.misses": str(world.plan.misses),
                # Clock differences of an hour would look like a time zone: the simulated Java
                # writer takes its times from the ledger, and so from the clock that is furthest
                # ahead.
                "tidelock.timeline.timezone.policy": "utc",
            },
            properties=properties,
            clock=self,
            ids=SeededIds(world.rng.getrandbits(48)),
            owner=name,
            cleanup=self._run_cleanup,
        )
        # The simulated process has its own thread for this.
        self.txns.heartbeat_thread._running = True  # noqa: SLF001
        self.start(self._beat, delay_ms=world.random() * BEAT_MS)

    def _run_cleanup(self, work: Work) -> None:
        """Run the rest of a commit in a separate thread of this process."""
        self.start(work, delay_ms=self.world.random() * self.world.plan.latency_ms)

    def _beat(self) -> None:
        while True:
            self.sleep_ms(BEAT_MS)
            self.txns.heartbeat_thread.beat()

    def work(self, todo: list[WriteRecord]) -> None:
        """Execute the jobs in order, and roll back dead writes in between."""
        for record in todo:
            if record.ended:
                continue
            self._upsert(record)
            record.ended = True
            if self.world.plan.recovers:
                self._try_recover()
        self.idle = True

    def _try_recover(self) -> None:
        try:
            self.txns.recover()
        except TidelockError as error:
            self.world.log(self.name, f"recovers nothing: {error}")

    def action(self, record: WriteRecord) -> Action:
        """Return the action of the write on the timeline."""
        del record
        return Action.COMMIT

    def operation(self, record: WriteRecord) -> OperationType:
        """Return Hudi's name of the operation."""
        del record
        return OperationType.UPSERT

    def _upsert(self, record: WriteRecord) -> None:
        healthy = turn = 0
        while healthy < ROUNDS_MAX:
            turn += 1
            healthy += self.world.healed
            if turn > 1:
                self.sleep_ms(self.world.random() * 20 * min(turn, 10))
            try:
                written = self._prepare(record)
                txn = self.txns.begin(
                    self.action(record),
                    self.operation(record),
                    base=written.base,
                    markers=self.world.plan.markers,
                    rebased=turn - 1,
                )
            except TidelockError as error:
                self.world.log(self.name, f"{record.write} did not begin: {error}")
                continue
            self.history.begin(record, txn.instant)
            if self._attempt(record, txn, written):
                return
        self.history.broken.append(
            f"liveness: {record.write} did not end in {ROUNDS_MAX} rounds without faults"
        )

    def _attempt(self, record: WriteRecord, txn: Transaction, written: Written) -> bool:
        """Write and commit; return True if the write is finished, successfully or not."""
        try:
            self._write(record, txn, written)
        except TidelockError as error:
            self.world.log(self.name, f"{record.write} did not write: {error}")
            self._rollback(record, txn, written, None)
            return False
        try:
            result = self._commit(txn, written)
        except TidelockError as error:
            # The commit did not happen, so the write may be rolled back.
            self.world.log(self.name, f"{record.write} did not commit: {error}")
            self.history.fail(record, txn.instant)
            self._rollback(record, txn, written, None)
            return False
        self.world.log(self.name, f"{record.write} as {txn.instant}: {type(result).__name__}")
        match result:
            case Committed(instant):
                self.history.acknowledge(record, instant)
                self._checkpoint()
                return True
            case Unknown():
                record.unknown.add(txn.instant)
                return True
            case Conflicted(verdict=Rebase() | ReplanReplaced() | CheckKeys()):
                self.history.fail(record, txn.instant)
                self._rollback(record, txn, written, result)
                return False
            case Conflicted():
                self.history.broken.append(f"T8: upsert after upsert: {result.verdict}")
                return True

    def _commit(self, txn: Transaction, written: Written) -> CommitResult:
        result, draft = self._tried(txn, self._draft(written))
        for _ in range(_ASK_AGAIN):
            if not isinstance(result, Unknown):
                break
            self.sleep_ms(50)
            try:
                result, draft = self._tried(txn, draft)
            except TidelockError as error:
                self.world.log(self.name, f"{txn.instant} is still unknown: {error}")
        return result

    def _tried(self, txn: Transaction, draft: CommitDraft) -> tuple[CommitResult, CommitDraft]:
        return txn.commit(draft), draft

    def _rollback(
        self, record: WriteRecord, txn: Transaction, written: Written, conflict: Conflicted | None
    ) -> None:
        try:
            txn.rollback("rolled back", conflict=conflict, files=tuple(written.keys.values()))
        except OutcomeUnknown as error:
            self.world.log(self.name, f"{txn.instant} may be rolled back: {error}")
        except TidelockError as error:
            self.world.log(self.name, f"{txn.instant} was not rolled back: {error}")
        del record

    def _checkpoint(self) -> None:
        ledger = self.txns.ledger
        try:
            steps = write_checkpoint(ledger.view, every=self.world.plan.checkpoint_every)
            ledger.advance(ledger.run(steps))
        except TidelockError as error:
            self.world.log(self.name, f"no checkpoint: {error}")

    def _prepare(self, record: WriteRecord) -> Written:
        """Read the table and merge the write into the file groups of its keys."""
        written = Written(self.txns.ledger.refresh())
        groups = self._read(written.base)
        for key in record.keys:
            home = next((group for group, held in groups.items() if key in held), None)
            if home is None:
                written.inserted.add(key)
                home = self._route(sorted(groups), record)
                if home not in groups:
                    groups[home] = {}
                    written.created.add(home)
            held = groups[home] = dict(groups[home])
            held[key] = [*held.get(key, ()), record.write]
            written.contents[home] = held
        return written

    def _route(self, groups: list[str], record: WriteRecord) -> str:
        """Return the file group for a new key: a small file, or a new group."""
        if groups and self.world.random() < 0.5:
            return self.world.rng.choice(groups)
        return f"{record.write}-{len(record.instants)}"

    def _read(self, state: LedgerState) -> dict[str, Content]:
        """Return the content of each file group at `state`: its version with the latest request
        time."""
        latest: dict[str, tuple[str, str]] = {}
        for meta in self.client.list(f"{PARTITION}/"):
            file = data_file(PARTITION, meta.key.rpartition("/")[2], meta.size_bytes)
            if file is None or file.instant not in state.committed or file.instant in state.aborted:
                continue
            latest[file.file_id] = max(latest.get(file.file_id, ("", "")), (file.instant, meta.key))
        contents: dict[str, Content] = {}
        for group, (_, key) in sorted(latest.items()):
            found = self.client.get(key)
            if found is None:
                raise TidelockError(f"{key} is missing")
            contents[group] = json.loads(found.body)
        return contents

    def _write(self, record: WriteRecord, txn: Transaction, written: Written) -> None:
        for slot, (group, content) in enumerate(sorted(written.contents.items())):
            name = self._name(group, slot, txn, written)
            written.keys[group] = f"{PARTITION}/{name}"
            self.history.files.setdefault(txn.instant, {})[group] = written.keys[group]
            if self.world.plan.markers:
                kind = IoType.CREATE if group in written.created else IoType.MERGE
                marker = Marker(PARTITION, name, kind)
                self._create(f"{marker_folder(txn.instant)}{marker.path}", b"")
            self._create(written.keys[group], json.dumps(content).encode())
        del record

    def _name(self, group: str, slot: int, txn: Transaction, written: Written) -> str:
        del written
        return base_name(group, WriteToken(slot, txn.attempt, 0), txn.instant)

    def _create(self, key: str, body: bytes) -> None:
        for _ in range(6):
            match self.client.put(key, body, Create()):
                case Landed() | Refused():
                    return
                case Busy() | Unclear():
                    self.sleep_ms(30)
        raise TidelockError(f"{key} was not written")

    def _draft(self, written: Written) -> CommitDraft:
        stats = tuple(
            WriteStat(
                file_id=group,
                path=key,
                partition_path=PARTITION,
                prev_commit="null" if group in written.created else "1",
            )
            for group, key in sorted(written.keys.items())
        )
        groups = {(PARTITION, group) for group in written.keys}
        created = {(PARTITION, group) for group in written.created}
        return CommitDraft(
            metadata=CommitMetadata({PARTITION: stats}, operation_type="UPSERT"),
            operation=OperationType.UPSERT,
            touched=frozenset(groups - created),
            created=frozenset(created),
            inserts={PARTITION: frozenset(written.inserted)} if written.inserted else {},
            markers=self._markers(written) if self.world.plan.misses > 1 else None,
        )

    def _markers(self, written: Written) -> frozenset[Marker] | None:
        """Return the markers of an attempt's files, as a writer with a single attempt has them."""
        if not self.world.plan.markers:
            return None
        kinds = dict.fromkeys(written.created, IoType.CREATE)
        return frozenset(
            Marker(PARTITION, key.rpartition("/")[2], kinds.get(group, IoType.MERGE))
            for group, key in written.keys.items()
        )
