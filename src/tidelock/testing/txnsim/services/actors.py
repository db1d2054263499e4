"""The simulated processes: writers, executors, a clean and an archive, by the code that ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from tidelock.base.errors import NotFound, TidelockError, WriteConflict
from tidelock.base.ids import SeededIds
from tidelock.engine.contract import WriteEngine
from tidelock.lock.provider import LockProvider
from tidelock.operation.settings import WriteSettings
from tidelock.operation.writer import TableWriter
from tidelock.table.markers import IoType, Marker, marker_folder
from tidelock.table.naming import WriteToken, base_name, log_name
from tidelock.table.properties import TableProperties
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import CommitMetadata, OperationType, WriteStat
from tidelock.tableservice.adopting import adopted, foreign_plans
from tidelock.tableservice.archive.execute import Archiving
from tidelock.tableservice.archive.plan import Bounds
from tidelock.tableservice.cancelling import cancel
from tidelock.tableservice.guard import Executed, claimed
from tidelock.tableservice.running import clean
from tidelock.tableservice.waiting import foreign_groups
from tidelock.testing.txnsim.services.java import Hand, Mutex
from tidelock.testing.txnsim.services.planning import Service, draft_of, drawn, record_of
from tidelock.testing.txnsim.services.terms import Terms
from tidelock.testing.txnsim.services.truth import Rows, Slice, State, Truth, slice_rows
from tidelock.testing.txnsim.services.watching import WatchedStore, is_service
from tidelock.testing.txnsim.witness import PARTITION, Told
from tidelock.testing.txnsim.world import World
from tidelock.testing.txnsim.writer import Writer, Written
from tidelock.txn.draft import CommitDraft, Overtaken
from tidelock.txn.locking import TableLock
from tidelock.txn.transaction import Transaction
from tidelock.txn.verdict import Report


class Actor(Writer):
    """A process with one open table, which reads it by the truth of its position."""

    def __init__(
        self,
        world: World,
        name: str,
        store: WatchedStore,
        properties: TableProperties,
        terms: Terms,
        *,
        offset_ms: float = 0.0,
        mutex: Mutex | None = None,
    ) -> None:
        """Open the table; nothing is read yet. `mutex` is the lock that Java takes, too."""
        super().__init__(world, name, store, store.truth, properties, offset_ms=offset_ms)
        self.truth: Truth = store.truth
        self.terms = terms
        self.properties = properties
        if mutex is not None:
            self.txns.settings = replace(self.txns.settings, mixed=True, clock_skew_ms=2)
            provider = cast("LockProvider", Hand(mutex, self))
            self.txns.lock = TableLock(provider, self, wait_ms=20_000, retries=0)
        inner = self.client.get

        def get(key: str, *, start: int = 0, end: int | None = None) -> Any:
            found = inner(key, start=start, end=end)
            store.note_read(name, key, found)
            return found

        self.client.get = get  # type: ignore[method-assign]

    def table_writer(self) -> TableWriter:
        """Return what the services that ship are made of."""
        settings = WriteSettings.read({}, self.properties)
        ids = SeededIds(self.world.rng.getrandbits(48))
        engine = cast("WriteEngine", None)  # rows are the simulation's own
        return TableWriter(self.client, self.properties, settings, engine, self.txns, None, ids)

    def rows(self, piece: Slice) -> Rows:
        """Read a slice. Raises: `NotFound` if a clean was faster."""

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
        """Do something a few times, and say what came of it."""
        for _ in range(turns):
            self.sleep_ms(every_ms * (0.2 + 1.6 * self.world.random()))
            self.attempt(act)
        self.idle = True

    def attempt(self, act: Callable[[], object]) -> None:
        """Do something; an error is the caller's to hear, and no more."""
        try:
            self.world.say(self.name, f"did {act()}")
        except TidelockError as error:
            self.world.say(self.name, f"failed: {error}")


class UpsertWriter(Actor):
    """Upserts: by file groups written anew, or by log files."""

    def _prepare(self, told: Told) -> Written:
        written = Written(self.txns.ledger.refresh())
        state = self.truth.state(written.base.position)
        groups = {group: self.rows(piece) for group, piece in sorted(state.items())}
        for key in told.keys:
            home = next((group for group, held in groups.items() if key in held), None)
            if home is None:
                written.inserted.add(key)
                home = self._route(sorted(groups), told)
                if home not in groups:
                    groups[home] = {}
                    written.created.add(home)
            groups[home] = {**groups[home], key: [*groups[home].get(key, ()), told.write]}
            written.contents[home] = groups[home]
        return written

    def _write(self, told: Told, txn: Transaction, written: Written) -> None:
        files = self.truth.written.setdefault((txn.instant, txn.attempt), {})
        for slot, (group, content) in enumerate(sorted(written.contents.items())):
            token = WriteToken(slot, txn.attempt, 0)
            created = group in written.created
            body: dict[str, Any] = dict(content)
            name = base_name(group, token, txn.instant)
            if self.terms.logs and not created:
                name = log_name(group, txn.instant, token)
                body = {key: told.write for key in told.keys if key in content}
            written.keys[group] = files[group] = f"{PARTITION}/{name}"
            self.put_data(txn.instant, name, body, created=created)

    def _draft(self, written: Written) -> CommitDraft:
        draft = super()._draft(written)
        if not self.terms.logs:
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
    """Plans now and then, and executes whatever waits, as any orchestrator might."""

    def serve(self) -> None:
        """Go on for a few turns."""
        self.until_healed(self.terms.turns, 600.0, self.cycle)

    def cycle(self) -> str:
        """Plan if nothing waits, or sometimes anyway; then execute everything."""
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
        return sorted(found | set(self._foreign()))

    def _foreign(self) -> dict[str, Action]:
        """Return the plans of somebody without a ledger that wait to be taken over."""
        writer = self.table_writer()
        actions = (Action.COMPACTION, Action.CLUSTERING) if self.terms.java else ()
        return {instant: action for action in actions for instant in foreign_plans(writer, action)}

    def plan(self) -> str:
        """Put a plan on the timeline."""
        fold = self.txns.ledger.refresh()
        state = self.truth.state(fold.position)
        busy = {group for plan in fold.plans.values() for _, group in plan.targets}
        if self.terms.java:
            busy |= {group for _, group in foreign_groups(self.table_writer())}
        service = drawn(self.world.rng, self.terms)
        free = sorted(group for group in state if group not in busy)
        if service is Service.COMPACTION:
            free = [group for group in free if state[group].logs or not self.terms.logs]
        if not free:
            return "planned nothing"
        chosen = self.world.rng.sample(free, min(len(free), self.world.rng.choice((1, 2))))
        inputs = {group: state[group] for group in chosen}
        self.rows(inputs[chosen[0]])
        targets = frozenset((PARTITION, group) for group in chosen)
        self.truth.proposed[self.name, targets] = inputs
        pending = self.txns.schedule(
            service.action,
            record_of(service, inputs, self.client.uri),
            targets,
            base=fold,
            removable=service is Service.CLUSTERING,
        )
        return f"planned the {service.action} {pending.instant}"

    def execute(self, instant: str) -> str:
        """Carry a plan out, as the services that ship do."""
        plan = self.truth.planned.get(instant) or self.truth.java[instant]
        adopted(self.table_writer(), instant, plan.action)
        service = Service.of(plan.action)
        try:
            with claimed(self.txns, instant, service.operation) as txn:
                return f"executed {self._executed(txn, service, plan.inputs)}"
        except WriteConflict as error:
            if (
                service is Service.COMPACTION
                and isinstance(error.report, Report)
                and error.report.groups
            ):
                # As the compaction that ships does: nobody can carry it out any more.
                self.txns.remove_plan(instant, delay_ms=0, forced=True)
            raise

    def free(self) -> str:
        """Remove plans of somebody without a ledger that nobody can execute."""
        gone = [cancel(self.table_writer(), each, force=True).instant for each in self._foreign()]
        return f"cancelled {gone}"

    def _executed(self, txn: Transaction, service: Service, inputs: State) -> Executed:
        files = self.truth.written.setdefault((txn.instant, txn.attempt), {})
        merged = {group: self.rows(piece) for group, piece in sorted(inputs.items())}
        for slot, (group, rows) in enumerate(service.outputs(merged, txn).items()):
            name = base_name(group, WriteToken(slot, txn.attempt, 0), txn.instant)
            files[group] = f"{PARTITION}/{name}"
            self.put_data(txn.instant, name, rows, created=group not in merged)
        outcome = txn.commit(draft_of(service, files, inputs))
        if isinstance(outcome, Overtaken) and service is Service.CLUSTERING:
            txn.rollback(overtaken=outcome)
        return Executed.of(outcome, txn, ())


class Cleaner(Actor):
    """Rolls back what the dead left, removes plans that expired, deletes what nobody needs."""

    def serve(self) -> None:
        """Go on for a few turns."""
        self.until_healed(self.terms.cleans, 1_500.0, self.once)

    def once(self) -> object:
        """Run the clean that ships."""
        options = {
            "hoodie.clean.commits.retained": str(self.terms.retained),
            "hoodie.clustering.expiration.threshold.mins": str(self.terms.expires_min),
        }
        return clean(self.table_writer(), options).run()


class Archivist(Actor):
    """Archives by the code that ships."""

    def serve(self) -> None:
        """Go on for a few turns."""
        self.until_healed(self.terms.archives, 2_000.0, self.once)

    def once(self) -> object:
        """Archive down to two commits."""
        return Archiving(self.table_writer()).run(Bounds(2, 3))
