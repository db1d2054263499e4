"""A store that checks table services: reports violated guarantees at each write or delete.

G1-G15 are the guarantees of readers and writers, S1-S10 those of table services; T1-T14 are the
transactions'. They are checked with rules of its own, not with those under test.
"""

from __future__ import annotations

from collections.abc import Iterator

from testkit.txnsim.checked_store import PARTITION, CheckedStore
from testkit.txnsim.plan import Fault
from testkit.txnsim.services.truth import ExpectedPlan, Slice, State, Truth, rows_of
from testkit.txnsim.world import World
from tidelock.core.outcome import Landed
from tidelock.hudi.file_groups import GroupId, data_file
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action, InstantState, parse_instant
from tidelock.storage.contract import Create, PutMode, PutReply, StoredObject
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.entries import (
    LEDGER_FOLDER,
    Boundary,
    Claim,
    Commit,
    ExternalCommit,
    LedgerEntry,
    Plan,
    PlanRollback,
    Rollback,
    decode,
    position_of,
)
from tidelock.txn.footprint import CommitKind
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER, Heartbeat, heartbeat_status

_KEEPING = (CommitKind.COMPACTION, CommitKind.CLUSTERING, CommitKind.CLEAN, CommitKind.ROLLBACK)


class CheckedServiceStore(CheckedStore):
    """Objects in memory, checked against the expected table at each write or delete."""

    def __init__(self, world: World, truth: Truth, *, retained: int) -> None:
        """Start empty. `retained` is the number of table states that cleans keep."""
        super().__init__(world, truth)
        self.truth = truth
        self.retained = retained
        self._read: dict[tuple[str, str], bytes | None] = {}
        self._clocks_agree = Fault.CLOCK not in world.plan.faults

    def body(self, key: str) -> bytes | None:
        """Return the current bytes of an object."""
        found = self.peek(key)
        return None if found is None else found.body

    def note_read(self, who: str, key: str, found: StoredObject | None) -> None:
        """Record the heartbeat that a process has last seen."""
        if key.startswith(HEARTBEAT_FOLDER):
            self._read[who, key] = None if found is None else found.body

    def put_by(self, who: str, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write on behalf of `who`, and check the write."""
        before = self.peek(key)
        reply = super().put_by(who, key, body, mode)
        if isinstance(reply, Landed) and key.startswith(HEARTBEAT_FOLDER):
            self._heartbeat_landed(who, key, body, before)
        return reply

    def delete_by(self, who: str, key: str) -> None:
        """Delete on behalf of `who`."""
        before = self.peek(key)
        if before is None:
            return
        super(CheckedStore, self).delete(key)
        self._remember(key)
        self._world.log(who, f"   deleted {key}")
        if key.startswith(LEDGER_FOLDER):
            number = position_of(key) or 0
            if number > self.truth.boundary:
                self._break(f"S7: {who} deleted entry {number}, boundary {self.truth.boundary}")
            else:
                self._world.fire(Fault.ARCHIVE)
        elif key.startswith(TIMELINE_FOLDER):
            self._timeline_deleted(who, key)
        elif key.startswith(HEARTBEAT_FOLDER):
            self._heartbeat_deleted(who, key, before)
        elif key.startswith(f"{PARTITION}/"):
            self._data_deleted(who, key)

    # Heartbeats

    def _record_of(
        self, key: str, found: StoredObject | None
    ) -> tuple[str, Heartbeat | None, bool]:
        """Return the instant, its heartbeat record, and whether its owner executes a plan."""
        instant = key.rpartition("/")[2]
        if found is None:
            return instant, None, False
        record = heartbeat_status(instant, found).record
        plan = self.truth.plans.get(instant)
        executes = record is not None and plan is not None and plan.owner == record.owner
        alive = (
            record is not None
            and self._world.wall() - found.modified_epoch_ms <= record.lifetime_ms
        )
        return instant, record, executes and alive

    def _heartbeat_landed(
        self, who: str, key: str, body: bytes, before: StoredObject | None
    ) -> None:
        instant, record, executed = self._record_of(key, before)
        if before is not None and not before.body and self._clocks_agree:
            # Java's heartbeats are empty; ours contain their lifetime.
            mine = heartbeat_status(instant, StoredObject(body, "", 0)).record
            age_ms = self._world.wall() - before.modified_epoch_ms
            if mine is not None and age_ms <= mine.lifetime_ms - 1_000:
                self._break(f"S2: {who} took the heartbeat of {instant}; Java is alive")
        if record is None or before is None or before.body == body:
            return
        if executed and self._clocks_agree and record.owner != who:
            self._break(f"S2: {who} took the heartbeat of {instant}; {record.owner} is alive")

    def _heartbeat_deleted(self, who: str, key: str, before: StoredObject) -> None:
        instant, record, executed = self._record_of(key, before)
        if record is None or record.owner == who or not executed:
            return
        read = self._read.get((who, key))
        if read is None or read == before.body:
            self._break(f"S2: {who} deleted the heartbeat of {instant}; {record.owner} is alive")

    # The timeline

    def _timeline_landed(self, who: str, key: str, before: StoredObject | None) -> None:
        instant = parse_instant(key.rpartition("/")[2])
        if instant is not None and instant.requested < self.truth.archived:
            # C33: a late publisher deletes the file again.
            self._world.fire(Fault.GHOST)
            return
        if instant is not None and instant.requested in self.truth.aborted:
            # C33: the same for a completed instant that was rolled back.
            self._world.fire(Fault.GHOST)
            return
        if instant is not None and instant.action is Action.SAVEPOINT:
            return  # it has the request time of the savepointed commit
        super()._timeline_landed(who, key, before)

    def _timeline_deleted(self, who: str, key: str) -> None:
        truth = self.truth
        instant = parse_instant(key.rpartition("/")[2])
        if instant is None or instant.requested not in truth.position:
            return
        if instant.requested in truth.aborted:
            return  # it was complete and then rolled back
        if instant.requested >= truth.archived:
            # An executor that gives up deletes its inflight file, also if it slept and another
            # attempt has completed the plan meanwhile: no process reads that file then.
            left = is_service(instant.action) and instant.state is InstantState.INFLIGHT
            if instant.is_completed or (instant.action.writes_data and not left):
                self._break(
                    f"S7: {who} deleted {key}, and {truth.archived or 'nothing'} is archived"
                )
        elif instant.is_completed and truth.plans and min(truth.plans) < instant.requested:
            self._break(f"S7: {who} archived {key} past the plan {min(truth.plans)}")

    # Data files

    def _data_deleted(self, who: str, key: str) -> None:
        truth = self.truth
        file = data_file(PARTITION, key.rpartition("/")[2], 0)
        if file is None or file.instant in truth.aborted:
            return
        if any(key in piece.files for piece in truth.state().values()):
            self._break(f"S3: {who} deleted {key}, which is part of the table")
        waiting = {instant: truth.java[instant] for instant in self.java_pending()}
        for instant, plan in {**waiting, **truth.plans}.items():
            if any(key in piece.files for piece in plan.inputs.values()):
                self._break(f"S3: {who} deleted {key}, which the plan {instant} reads")
            if file.instant == instant and plan.owner and plan.owner != who:
                self._own_attempt_deleted(who, key, instant)

    def _own_attempt_deleted(self, who: str, key: str, instant: str) -> None:
        plan = self.truth.plans[instant]
        if key in self.truth.written.get((instant, plan.attempt), {}).values():
            self._break(f"S2: {who} deleted {key} of {plan.owner}, which executes {instant}")

    # Entries

    def _entry_landed(self, who: str, key: str, body: bytes, before: StoredObject | None) -> None:
        truth = self.truth
        entry = decode(body, where=key)
        if before is not None:
            self._break(f"T3: {who} replaced entry {entry.position}")
            return
        if entry.position <= truth.boundary:
            self._world.fire(Fault.GHOST)
            return
        if entry.position != len(truth.ledger) + 1:
            self._break(f"T3: {who} created entry {entry.position} after {len(truth.ledger)}")
            return
        was = truth.state()
        for complaint in self._check(entry):
            self._break(f"{complaint} ({who}, entry {entry.position})")
        truth.ledger.append(entry)
        truth.follow(entry)
        match entry.fact:
            case Commit(action=Action.SAVEPOINT):
                pass  # it has the instant of the savepointed commit
            case Commit(instant=instant) as fact:
                truth.position[instant] = entry.position
                truth.completed_ms[instant] = self._world.wall()
                truth.services += fact.footprint.commit_kind in _KEEPING
                self._check_rows(who, fact, was)
            case ExternalCommit(instant=instant) as fact:
                truth.position[instant] = entry.position
                truth.aborted.update(fact.rolls_back)
                self._check_rows(who, fact, was)
            case Rollback(instant=instant, attempt=None):
                truth.aborted.add(instant)
            case PlanRollback(instants=instants):
                truth.aborted.update(instants)
            case _:
                pass

    def java_pending(self) -> list[str]:
        """Return the pending plans of external writers on the timeline."""
        truth = self.truth
        return [
            instant
            for instant, plan in truth.java.items()
            if not (instant in truth.published or instant in truth.aborted)
            and self.peek(f"{TIMELINE_FOLDER}/{instant}.{plan.action}.requested") is not None
        ]

    def put_external(self, key: str, body: bytes) -> None:
        """Write on behalf of an external writer, without checks."""
        super(CheckedStore, self).put(key, body, Create())
        self._remember(key)
        self._world.log("java", f"   put {key}")

    def delete_external(self, key: str) -> None:
        """Delete on behalf of an external writer."""
        super(CheckedStore, self).delete(key)
        self._remember(key)

    def _check(self, entry: LedgerEntry) -> Iterator[str]:
        truth, fact = self.truth, entry.fact
        if truth.ledger and entry.time <= truth.ledger[-1].time:
            yield f"T2: time {entry.time} after {truth.ledger[-1].time}"
        match fact:
            case Plan(targets=targets):
                yield from self._check_plan(entry, targets)
            case Claim(instant, attempt):
                yield from self._check_claim(entry, instant, attempt)
            case Commit(action=action) if action is not Action.SAVEPOINT:
                yield from self._check_commit(entry, fact)
            case Rollback(instant=instant, attempt=attempt):
                yield from self._check_rollback(entry, instant, attempt)
            case PlanRollback(instants=instants):
                for instant in instants:
                    yield from self._check_rollback(entry, instant, None)
            case Boundary(archived=archived):
                if truth.plans and min(truth.plans) < archived:
                    yield f"S7: {archived} is archived past the plan {min(truth.plans)}"
            case _:
                pass

    def _check_plan(self, entry: LedgerEntry, targets: frozenset[GroupId]) -> Iterator[str]:
        truth = self.truth
        for group, piece in truth.proposed.get((entry.owner, targets), {}).items():
            if truth.state().get(group) != piece:
                yield f"S4: a plan was made of an older version of {group}"
        for instant, other in truth.plans.items():
            if shared := {group for _, group in targets} & set(other.inputs):
                yield f"S5: {min(shared)} is in the pending plan {instant}, too"

    def _check_commit(self, entry: LedgerEntry, fact: Commit) -> Iterator[str]:
        truth, instant = self.truth, fact.instant
        if instant in truth.position:
            yield f"S1: {instant} was committed before"
        if instant in truth.aborted:
            yield f"T3: {instant} was rolled back before"
        if entry.time <= instant:
            yield f"T2: {instant} completed at {entry.time}"
        plan = truth.plans.get(instant)
        if plan is not None and (plan.attempt, plan.owner) != (fact.attempt, entry.owner):
            yield f"S1: attempt {fact.attempt} at {instant} commits, {plan.attempt} counts"

    def _check_claim(self, entry: LedgerEntry, instant: str, attempt: int) -> Iterator[str]:
        plan = self.truth.plans.get(instant)
        if plan is None:
            yield f"S1: {instant} is claimed, but not pending"
            return
        if attempt != plan.attempt + 1:
            yield f"S1: attempt {attempt} at {instant} follows {plan.attempt}"
        if plan.removable and plan.attempt:
            yield f"S5: the removable plan {instant} is claimed a second time"
        yield from self._alive(entry, instant)

    def _check_rollback(
        self, entry: LedgerEntry, instant: str, attempt: int | None
    ) -> Iterator[str]:
        truth = self.truth
        if instant in truth.position:
            yield f"T3: {instant} was committed before, and is rolled back"
        if instant in truth.aborted:
            yield f"S6: {instant} is rolled back a second time"
        plan = truth.plans.get(instant)
        if plan is not None and attempt is None and not (plan.removable or self._is_stale(plan)):
            yield f"S6: the permanent plan {instant} is rolled back"
        yield from self._alive(entry, instant)

    def _is_stale(self, plan: ExpectedPlan) -> bool:
        """Return whether base files that a plan reads are no longer the newest."""
        state = self.truth.state()
        gone = Slice("")
        return any(state.get(g, gone).base != piece.base for g, piece in plan.inputs.items())

    def _alive(self, entry: LedgerEntry, instant: str) -> Iterator[str]:
        key = f"{HEARTBEAT_FOLDER}/{instant}"
        _, record, executed = self._record_of(key, self.peek(key))
        if record is not None and executed and record.owner != entry.owner and self._clocks_agree:
            yield f"S2: {instant} is taken from {record.owner}, which is alive"

    def _check_rows(self, who: str, fact: Commit | ExternalCommit, was: State) -> None:
        """G11, G10: a service changes no row; a write adds its own updates and nothing else."""
        truth = self.truth
        before, after = rows_of(was, self.body), rows_of(truth.state(), self.body)
        if isinstance(before, str) or isinstance(after, str):
            self._break(f"{before if isinstance(before, str) else after} ({who}, {fact.instant})")
            return
        expected = dict(before)
        for record in truth.records:
            if fact.instant in record.instants:
                for key in record.keys:
                    expected[key] = [*expected.get(key, ()), record.write]
        if after != expected:
            commit_kind = fact.footprint.commit_kind
            name = {CommitKind.COMPACTION: "S4", CommitKind.CLUSTERING: "S5"}.get(
                commit_kind, "G10"
            )
            different = sorted(
                k for k in after.keys() | expected if after.get(k) != expected.get(k)
            )
            key = different[0]
            self._break(
                f"{name}: after {fact.instant} of {who} {key} has {after.get(key)}, not"
                f" {expected.get(key)}"
            )

    def _checkpoint_landed(self, who: str, body: bytes) -> None:
        truth = self.truth
        state = checkpoints.decode_checkpoint(body, where=CHECKPOINT_KEY).state
        entries = truth.ledger[: state.position]
        boundaries = [e.fact for e in entries if isinstance(e.fact, Boundary)]
        archived = max((b.archived for b in boundaries), default="")
        forgets = max((b.forgets for b in boundaries), default="")
        committed = {e.fact.instant for e in entries if isinstance(e.fact, Commit | ExternalCommit)}
        kept = {instant for instant in committed if instant >= archived}
        aborted = {
            e.fact.instant
            for e in entries
            if isinstance(e.fact, Rollback) and e.fact.attempt is None
        }
        aborted |= {i for e in entries if isinstance(e.fact, PlanRollback) for i in e.fact.instants}
        aborted |= {
            i for e in entries if isinstance(e.fact, ExternalCommit) for i in e.fact.rolls_back
        }
        aborted = {instant for instant in aborted if instant >= forgets}
        if len(entries) != state.position or (set(state.committed), set(state.aborted)) != (
            kept,
            aborted,
        ):
            self._break(f"T10: {who} wrote a checkpoint that differs from its entries")
        if state.archived != archived:
            self._break(f"S7: {who} wrote a checkpoint with {state.archived} archived")
        allowed = max([b.position for b in boundaries], default=0)
        if state.boundary != allowed or state.boundary < truth.boundary:
            self._break(f"T3: {who} moved the boundary to {state.boundary}")
        if missing := sorted(committed - truth.published):
            self._break(f"T10: {who} checkpointed {missing[0]} before it was published")
        truth.boundary = max(truth.boundary, state.boundary)
        truth.archived = max(truth.archived, state.archived)


def is_service(action: Action) -> bool:
    """Return whether the simulated executors run a plan of this kind."""
    return action in (Action.COMPACTION, Action.CLUSTERING)
