"""One simulated writer: upserts by the transactions that ship, over a table small enough to check.

A data file maps keys to the names of the writes that updated them, in order. An upsert reads the
file of a key, adds its own name and writes the file group anew, so a lost update is a missing name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tidelock.base.errors import OutcomeUnknown, TidelockError
from tidelock.base.ids import SeededIds
from tidelock.base.outcome import Landed, Unknown
from tidelock.store.contract import Busy, Create, Refused, Unclear
from tidelock.table.filegroup.view import GroupId
from tidelock.table.markers import IoType, Marker, marker_folder
from tidelock.table.naming import WriteToken, base_name, data_file
from tidelock.table.properties import TableProperties
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import CommitMetadata, OperationType, WriteStat
from tidelock.testing.txnsim.network import Client
from tidelock.testing.txnsim.plan import Kind
from tidelock.testing.txnsim.witness import PARTITION, History, Told, WitnessedStore
from tidelock.testing.txnsim.world import Process, World
from tidelock.txn.aside import Work
from tidelock.txn.draft import CommitDraft, CommitResult, Committed, Overtaken
from tidelock.txn.fold import Fold
from tidelock.txn.publishing import write_checkpoint
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions
from tidelock.txn.verdict import CheckKeys, Rebase, ReplanReplaced

BEAT_MS = 1_000
ROUNDS_MAX = 40
_ASK_AGAIN = 3

Content = dict[str, list[str]]


@dataclass(slots=True)
class Written:
    """The file groups of one attempt: what each holds, its key, and whether it is new."""

    base: Fold
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
        store: WitnessedStore,
        history: History,
        properties: TableProperties,
        *,
        offset_ms: float,
    ) -> None:
        """Open the table; nothing is read yet."""
        super().__init__(world, name, offset_ms=offset_ms)
        self.client = Client(self, store)
        self.history = history
        self.txns = Transactions(
            self.client,
            {
                "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
                "hoodie.client.heartbeat.interval_in_ms": str(BEAT_MS),
                "hoodie.client.heartbeat.tolerable.misses": str(world.plan.misses),
                # Clocks that differ by an hour would be taken for a time zone: the simulated Java
                # takes its times from the ledger, and so from the clock that is furthest ahead.
                "tidelock.timeline.timezone.policy": "utc",
            },
            properties=properties,
            clock=self,
            ids=SeededIds(world.rng.getrandbits(48)),
            owner=name,
            aside=self._aside,
        )
        # The simulated process has its own thread for this.
        self.txns.beating._running = True  # noqa: SLF001
        self.start(self._beat, delay_ms=world.random() * BEAT_MS)

    def _aside(self, work: Work) -> None:
        """Let the rest of a commit be done beside what this process does next."""
        self.start(work, delay_ms=self.world.random() * self.world.plan.latency_ms)

    def _beat(self) -> None:
        while True:
            self.sleep_ms(BEAT_MS)
            self.txns.beating.beat()

    def work(self, todo: list[Told]) -> None:
        """Do one write after the other, and roll back what dead writers left in between."""
        for told in todo:
            if told.ended:
                continue
            self._upsert(told)
            told.ended = True
            if self.world.plan.recovers:
                self._try_recover()
        self.idle = True

    def _try_recover(self) -> None:
        try:
            self.txns.recover()
        except TidelockError as error:
            self.world.say(self.name, f"recovers nothing: {error}")

    def action(self, told: Told) -> Action:
        """Return what the timeline calls the write."""
        del told
        return Action.COMMIT

    def operation(self, told: Told) -> OperationType:
        """Return what Hudi calls the operation."""
        del told
        return OperationType.UPSERT

    def _upsert(self, told: Told) -> None:
        healthy = turn = 0
        while healthy < ROUNDS_MAX:
            turn += 1
            healthy += self.world.healed
            if turn > 1:
                self.sleep_ms(self.world.random() * 20 * min(turn, 10))
            try:
                written = self._prepare(told)
                txn = self.txns.begin(
                    self.action(told),
                    self.operation(told),
                    base=written.base,
                    markers=self.world.plan.markers,
                    rebased=turn - 1,
                )
            except TidelockError as error:
                self.world.say(self.name, f"{told.write} did not begin: {error}")
                continue
            self.history.begin(told, txn.instant)
            if self._attempt(told, txn, written):
                return
        self.history.broken.append(f"liveness: {told.write} ends in no {ROUNDS_MAX} healthy rounds")

    def _attempt(self, told: Told, txn: Transaction, written: Written) -> bool:
        """Write, commit; True if the write is over, one way or the other."""
        try:
            self._write(told, txn, written)
        except TidelockError as error:
            self.world.say(self.name, f"{told.write} did not write: {error}")
            self._undo(told, txn, written, None)
            return False
        try:
            result = self._commit(txn, written)
        except TidelockError as error:
            # "Nothing happened": so it may be undone.
            self.world.say(self.name, f"{told.write} did not commit: {error}")
            self.history.fail(told, txn.instant)
            self._undo(told, txn, written, None)
            return False
        self.world.say(self.name, f"{told.write} as {txn.instant}: {type(result).__name__}")
        match result:
            case Committed(instant):
                self.history.acknowledge(told, instant)
                self._checkpoint()
                return True
            case Unknown():
                told.doubted.add(txn.instant)
                return True
            case Overtaken(verdict=Rebase() | ReplanReplaced() | CheckKeys()):
                self.history.fail(told, txn.instant)
                self._undo(told, txn, written, result)
                return False
            case Overtaken():
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
                self.world.say(self.name, f"{txn.instant} is still unknown: {error}")
        return result

    def _tried(self, txn: Transaction, draft: CommitDraft) -> tuple[CommitResult, CommitDraft]:
        return txn.commit(draft), draft

    def _undo(
        self, told: Told, txn: Transaction, written: Written, overtaken: Overtaken | None
    ) -> None:
        try:
            txn.rollback("undone", overtaken=overtaken, files=tuple(written.keys.values()))
        except OutcomeUnknown as error:
            self.world.say(self.name, f"{txn.instant} may be rolled back: {error}")
        except TidelockError as error:
            self.world.say(self.name, f"{txn.instant} was not rolled back: {error}")
        del told

    def _checkpoint(self) -> None:
        ledger = self.txns.ledger
        try:
            steps = write_checkpoint(ledger.view, every=self.world.plan.checkpoint_every)
            ledger.adopt(ledger.run(steps))
        except TidelockError as error:
            self.world.say(self.name, f"no checkpoint: {error}")

    def _prepare(self, told: Told) -> Written:
        """Read the table and merge the write into the file groups it meets."""
        written = Written(self.txns.ledger.refresh())
        groups = self._read(written.base)
        for key in told.keys:
            home = next((group for group, held in groups.items() if key in held), None)
            if home is None:
                written.inserted.add(key)
                home = self._route(sorted(groups), told)
                if home not in groups:
                    groups[home] = {}
                    written.created.add(home)
            held = groups[home] = dict(groups[home])
            held[key] = [*held.get(key, ()), told.write]
            written.contents[home] = held
        return written

    def _route(self, groups: list[str], told: Told) -> str:
        """Return where a row with a new key goes: to a small file, or to a group of its own."""
        if groups and self.world.random() < 0.5:
            return self.world.rng.choice(groups)
        return f"{told.write}-{len(told.instants)}"

    def _read(self, fold: Fold) -> dict[str, Content]:
        """Return what each file group holds at `fold`: its version with the latest request time."""
        latest: dict[str, tuple[str, str]] = {}
        for meta in self.client.list(f"{PARTITION}/"):
            file = data_file(PARTITION, meta.key.rpartition("/")[2], meta.size_bytes)
            if file is None or file.instant not in fold.committed or file.instant in fold.void:
                continue
            latest[file.file_id] = max(latest.get(file.file_id, ("", "")), (file.instant, meta.key))
        contents: dict[str, Content] = {}
        for group, (_, key) in sorted(latest.items()):
            found = self.client.get(key)
            if found is None:
                raise TidelockError(f"{key} is gone")
            contents[group] = json.loads(found.body)
        return contents

    def _write(self, told: Told, txn: Transaction, written: Written) -> None:
        for slot, (group, content) in enumerate(sorted(written.contents.items())):
            name = self._name(group, slot, txn, written)
            written.keys[group] = f"{PARTITION}/{name}"
            self.history.files.setdefault(txn.instant, {})[group] = written.keys[group]
            if self.world.plan.markers:
                kind = IoType.CREATE if group in written.created else IoType.MERGE
                marker = Marker(PARTITION, name, kind)
                self._create(f"{marker_folder(txn.instant)}{marker.path}", b"")
            self._create(written.keys[group], json.dumps(content).encode())
        del told

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
        """Return the announcements of an attempt's files, as a writer does that tries once."""
        if not self.world.plan.markers:
            return None
        kinds = dict.fromkeys(written.created, IoType.CREATE)
        return frozenset(
            Marker(PARTITION, key.rpartition("/")[2], kinds.get(group, IoType.MERGE))
            for group, key in written.keys.items()
        )
