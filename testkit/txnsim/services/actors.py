"""The simulated processes: writers, executors, a clean and an archive, with production code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from testkit.txnsim.checked_store import PARTITION, WriteRecord
from testkit.txnsim.services.checked_store import CheckedServiceStore, is_service
from testkit.txnsim.services.java import Mutex, MutexProvider
from testkit.txnsim.services.parameters import Parameters
from testkit.txnsim.services.planning import Service, draft_of, drawn, record_of
from testkit.txnsim.services.truth import Rows, Slice, State, Truth, slice_rows
from testkit.txnsim.world import World
from testkit.txnsim.writer import Writer, Written
from tidelock.core.errors import NotFound, TidelockError, WriteConflict
from tidelock.core.system import SeededIds
from tidelock.execution.engine import WriteEngine
from tidelock.hudi.file_groups import WriteToken, base_name, log_name
from tidelock.hudi.markers import IoType, Marker, marker_folder
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import CommitMetadata, OperationType, WriteStat
from tidelock.lock.provider import LockProvider
from tidelock.operations.config import WriteSettings
from tidelock.operations.write import TableWriter
from tidelock.services.archive import ArchiveBounds, ArchiveService
from tidelock.services.pending import cancel, external_groups
from tidelock.services.plans import (
    ExecutedPlan,
    claimed,
    commit_plan,
    external_plans,
    import_external_plan,
)
from tidelock.services.runner import clean
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import ConflictReport
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TableLock


class Actor(Writer):
    """A process with one open table, which it reads from the truth at its ledger position."""

    def __init__(
        self,
        world: World,
        name: str,
        store: CheckedServiceStore,
        properties: TableProperties,
        parameters: Parameters,
        *,
        offset_ms: float = 0.0,
        mutex: Mutex | None = None,
    ) -> None:
        """Open the table without reading it. `mutex` is the lock that is shared with Java."""
        super().__init__(world, name, store, store.truth, properties, offset_ms=offset_ms)
        self.truth: Truth = store.truth
        self.parameters = parameters
        self.properties = properties
        if mutex is not None:
            self.txns.settings = replace(self.txns.settings, mixed=True, clock_skew_ms=2)
            provider = cast("LockProvider", MutexProvider(mutex, self))
            self.txns.lock = TableLock(provider, self, wait_ms=20_000, retries=0)
        inner = self.client.get

        def get(key: str, *, start: int = 0, end: int | None = None) -> Any:
            found = inner(key, start=start, end=end)
            store.note_read(name, key, found)
            return found

        self.client.get = get  # type: ignore[method-assign]

    def table_writer(self) -> TableWriter:
        """Return the production writer that services are made of."""
        settings = WriteSettings.read({}, self.properties)
        ids = SeededIds(self.world.rng.getrandbits(48))
        engine = cast("WriteEngine", None)  # rows are simulated
        return TableWriter(self.client, self.properties, settings, engine, self.txns, None, ids)

    def rows(self, piece: Slice) -> Rows:
        """Read a slice. Raises: `NotFound` if a clean deleted its files."""

        def body(key: str) -> bytes | None:
            found = self.client.get(key)
            return None if found is None else found.body

        rows = slice_rows(piece, body)
        if isinstance(rows, str):
            raise NotFound(rows)
        return rows

    def put_data(self, instant: str, name: str, body: object, *, created: bool) -> str:
        """Write a data file, its marker first."""
        marker = Marker(PARTITION, name, IoType.CREATE if created else IoType.MERGE)
        self._create(f"{marker_folder(instant)}{marker.path}", b"")
        key = f"{PARTITION}/{name}"
        self._create(key, json.dumps(body).encode())
        return key

    def until_healed(self, turns: int, every_ms: float, act: Callable[[], object]) -> None:
        """Run an action a few times and log its result."""
        for _ in range(turns):
            self.sleep_ms(every_ms * (0.2 + 1.6 * self.world.random()))
            self.attempt(act)
        self.idle = True

    def attempt(self, act: Callable[[], object]) -> None:
        """Run an action and log its error, if any."""
        try:
            self.world.log(self.name, f"done: {act()}")
        except TidelockError as error:
            self.world.log(self.name, f"failed: {error}")


class UpsertWriter(Actor):
    """Upserts by rewriting file groups, or by log files."""

    def _prepare(self, record: WriteRecord) -> Written:
        written = Written(self.txns.ledger.refresh())
        state = self.truth.state(written.base.position)
        groups = {group: self.rows(piece) for group, piece in sorted(state.items())}
        for key in record.keys:
            home = next((group for group, held in groups.items() if key in held), None)
            if home is None:
                written.inserted.add(key)
                home = self._route(sorted(groups), record)
                if home not in groups:
                    groups[home] = {}
                    written.created.add(home)
            groups[home] = {**groups[home], key: [*groups[home].get(key, ()), record.write]}
            written.contents[home] = groups[home]
        return written

    def _write(self, record: WriteRecord, txn: Transaction, written: Written) -> None:
        files = self.truth.written.setdefault((txn.instant, txn.attempt), {})
        for slot, (group, content) in enumerate(sorted(written.contents.items())):
            token = WriteToken(slot, txn.attempt, 0)
            created = group in written.created
            body: dict[str, Any] = dict(content)
            name = base_name(group, token, txn.instant)
            if self.parameters.logs and not created:
                name = log_name(group, txn.instant, token)
                body = {key: record.write for key in record.keys if key in content}
            written.keys[group] = files[group] = f"{PARTITION}/{name}"
            self.put_data(txn.instant, name, body, created=created)

    def _draft(self, written: Written) -> CommitDraft:
        draft = super()._draft(written)
        if not self.parameters.logs:
            return draft
        stats = tuple(
            WriteStat(
                file_id=group,
                path=key,
                partition_path=PARTITION,
                prev_commit="null" if group in written.created else "1",
                log_version=1 if "/." in key else None,
            )
            for group, key in sorted(written.keys.items())
        )
        return CommitDraft(
            metadata=CommitMetadata({PARTITION: stats}, operation_type="UPSERT"),
            operation=OperationType.UPSERT,
            touched=draft.touched,
            appended=draft.touched,
            created=draft.created,
            inserts=draft.inserts,
        )


class Executor(Actor):
    """Schedules plans now and then, and executes all pending ones, like an orchestrator."""

    def serve(self) -> None:
        """Run a few times."""
        self.until_healed(self.parameters.turns, 600.0, self.cycle)

    def cycle(self) -> str:
        """Schedule if nothing is pending, and sometimes anyway; then execute everything."""
        waiting = self._waiting()
        if not waiting or self.world.random() < 0.3:
            self.attempt(self.plan)
            waiting = self._waiting()
        for instant in waiting:
            self.attempt(lambda instant=instant: self.execute(instant))  # type: ignore[misc]
        return "one cycle"

    def _waiting(self) -> list[str]:
        plans = self.txns.ledger.refresh().plans.values()
        found = {plan.instant for plan in plans if is_service(plan.action)}
        return sorted(found | set(self._importable()))

    def _importable(self) -> dict[str, Action]:
        """Return the pending plans of external writers that can be imported."""
        writer = self.table_writer()
        actions = (Action.COMPACTION, Action.CLUSTERING) if self.parameters.java else ()
        return {instant: action for action in actions for instant in external_plans(writer, action)}

    def plan(self) -> str:
        """Schedule a plan."""
        state = self.txns.ledger.refresh()
        groups = self.truth.state(state.position)
        busy = {group for plan in state.plans.values() for _, group in plan.targets}
        if self.parameters.java:
            busy |= {group for _, group in external_groups(self.table_writer())}
        service = drawn(self.world.rng, self.parameters)
        free = sorted(group for group in groups if group not in busy)
        if service is Service.COMPACTION:
            free = [group for group in free if groups[group].logs or not self.parameters.logs]
        if not free:
            return "planned nothing"
        chosen = self.world.rng.sample(free, min(len(free), self.world.rng.choice((1, 2))))
        inputs = {group: groups[group] for group in chosen}
        self.rows(inputs[chosen[0]])
        targets = frozenset((PARTITION, group) for group in chosen)
        self.truth.proposed[self.name, targets] = inputs
        pending = self.txns.schedule(
            service.action,
            record_of(service, inputs, self.client.uri),
            targets,
            base=state,
            removable=service is Service.CLUSTERING,
        )
        return f"planned the {service.action} {pending.instant}"

    def execute(self, instant: str) -> str:
        """Execute a plan, like the production services."""
        plan = self.truth.planned.get(instant) or self.truth.java[instant]
        import_external_plan(self.table_writer(), instant, plan.action)
        service = Service.of(plan.action)
        try:
            with claimed(self.txns, instant, service.operation) as txn:
                return f"executed {self._executed(txn, service, plan.inputs)}"
        except WriteConflict as error:
            if (
                service is Service.COMPACTION
                and isinstance(error.report, ConflictReport)
                and error.report.groups
            ):
                # Like the production compaction: the plan can no longer be executed.
                self.txns.remove_plan(instant, delay_ms=0, forced=True)
            raise

    def free(self) -> str:
        """Remove plans of external writers that cannot be executed."""
        gone = [
            cancel(self.table_writer(), each, force=True).instant for each in self._importable()
        ]
        return f"cancelled {gone}"

    def _executed(self, txn: Transaction, service: Service, inputs: State) -> ExecutedPlan:
        files = self.truth.written.setdefault((txn.instant, txn.attempt), {})
        merged = {group: self.rows(piece) for group, piece in sorted(inputs.items())}
        for slot, (group, rows) in enumerate(service.outputs(merged, txn).items()):
            name = base_name(group, WriteToken(slot, txn.attempt, 0), txn.instant)
            files[group] = f"{PARTITION}/{name}"
            self.put_data(txn.instant, name, rows, created=group not in merged)
        preemptible = service is Service.CLUSTERING
        return commit_plan(txn, draft_of(service, files, inputs), preemptible=preemptible)


class CleanProcess(Actor):
    """Rolls back dead writes, removes expired plans, deletes unneeded files."""

    def serve(self) -> None:
        """Run a few times."""
        self.until_healed(self.parameters.cleans, 1_500.0, self.once)

    def once(self) -> object:
        """Run the production clean."""
        options = {
            "hoodie.clean.commits.retained": str(self.parameters.retained),
            "hoodie.clustering.expiration.threshold.mins": str(self.parameters.expires_min),
        }
        return clean(self.table_writer(), options).run()


class ArchiveProcess(Actor):
    """Runs the production archive."""

    def serve(self) -> None:
        """Run a few times."""
        self.until_healed(self.parameters.archives, 2_000.0, self.once)

    def once(self) -> object:
        """Archive down to two commits."""
        return ArchiveService(self.table_writer()).run(ArchiveBounds(2, 3))
