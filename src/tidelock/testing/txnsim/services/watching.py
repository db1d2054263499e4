"""The witness of a world with services: says at once which promise a write or a deletion breaks.

G1-G15 are the guarantees of readers and writers, S1-S10 those of table services; T1-T14 are the
transactions'. It judges with rules of its own, not with those that are being tested.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, PutMode, PutReply, StoredObject
from tidelock.table.filegroup.view import GroupId
from tidelock.table.naming import data_file
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import Action, parse_instant
from tidelock.table.timeline.instant import State as InstantState
from tidelock.testing.txnsim.plan import Fault
from tidelock.testing.txnsim.services.truth import Slice, State, Truth, Waiting, rows_of
from tidelock.testing.txnsim.witness import PARTITION, WitnessedStore
from tidelock.testing.txnsim.world import World
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.entry import (
    LEDGER_FOLDER,
    Boundary,
    Claim,
    Commit,
    Entry,
    Foreign,
    Plan,
    Rollback,
    Undo,
    decode,
    position_of,
)
from tidelock.txn.footprint import Deed
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER, Heartbeat, pulse_of

_KEEPING = (Deed.COMPACTION, Deed.CLUSTERING, Deed.CLEAN, Deed.ROLLBACK)


class WatchedStore(WitnessedStore):
    """Objects in memory, and the truth about them."""

    def __init__(self, world: World, truth: Truth, *, retained: int) -> None:
        """Start empty. `retained` is how many states of the table cleans keep."""
        super().__init__(world, truth)
        self.truth = truth
        self.retained = retained
        self._read: dict[tuple[str, str], bytes | None] = {}
        self._clocks_agree = Fault.CLOCK not in world.plan.faults

    def body(self, key: str) -> bytes | None:
        """Return the bytes of an object as it is."""
        found = self.peek(key)
        return None if found is None else found.body

    def note_read(self, who: str, key: str, found: StoredObject | None) -> None:
        """Remember what somebody saw of a heartbeat last."""
        if key.startswith(HEARTBEAT_FOLDER):
            self._read[who, key] = None if found is None else found.body

    def put_by(self, who: str, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write on behalf of `who`, under the eyes of the witness."""
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
        super(WitnessedStore, self).delete(key)
        self._remember(key)
        self._world.say(who, f"   deleted {key}")
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

    def _says(self, key: str, found: StoredObject | None) -> tuple[str, Heartbeat | None, bool]:
        """Return the instant, what its heartbeat says, and whether its owner is at a plan."""
        instant = key.rpartition("/")[2]
        if found is None:
            return instant, None, False
        says = pulse_of(instant, found).says
        plan = self.truth.plans.get(instant)
        executes = says is not None and plan is not None and plan.owner == says.owner
        alive = says is not None and self._world.wall() - found.modified_epoch_ms <= says.life_ms
        return instant, says, executes and alive

    def _heartbeat_landed(
        self, who: str, key: str, body: bytes, before: StoredObject | None
    ) -> None:
        instant, says, executed = self._says(key, before)
        if before is not None and not before.body and self._clocks_agree:
            # Java's heartbeats are empty; ours say how long that counts.
            mine = pulse_of(instant, StoredObject(body, "", 0)).says
            age_ms = self._world.wall() - before.modified_epoch_ms
            if mine is not None and age_ms <= mine.life_ms - 1_000:
                self._break(f"S2: {who} took the heartbeat of {instant}; Java is alive")
        if says is None or before is None or before.body == body:
            return
        if executed and self._clocks_agree and says.owner != who:
            self._break(f"S2: {who} took the heartbeat of {instant}; {says.owner} is alive")

    def _heartbeat_deleted(self, who: str, key: str, before: StoredObject) -> None:
        instant, says, executed = self._says(key, before)
        if says is None or says.owner == who or not executed:
            return
        read = self._read.get((who, key))
        if read is None or read == before.body:
            self._break(f"S2: {who} deleted the heartbeat of {instant}; {says.owner} is alive")

    # The timeline

    def _timeline_landed(self, who: str, key: str, before: StoredObject | None) -> None:
        instant = parse_instant(key.rpartition("/")[2])
        if instant is not None and instant.requested < self.truth.archived:
            # C33: whoever publishes late takes it away again.
            self._world.fire(Fault.GHOST)
            return
        if instant is not None and instant.requested in self.truth.void:
            # C33: the same, of what was complete and was taken back.
            self._world.fire(Fault.GHOST)
            return
        if instant is not None and instant.action is Action.SAVEPOINT:
            return  # it has the request time of the write that it keeps
        super()._timeline_landed(who, key, before)

    def _timeline_deleted(self, who: str, key: str) -> None:
        truth = self.truth
        instant = parse_instant(key.rpartition("/")[2])
        if instant is None or instant.requested not in truth.position:
            return
        if instant.requested in truth.void:
            return  # it was complete, and was taken back
        if instant.requested >= truth.archived:
            # An attempt that is given back takes its inflight file along, also when it slept and
            # another has completed the plan meanwhile: nobody reads that file then.
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
        if file is None or file.instant in truth.void:
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
            self._break(f"S2: {who} deleted {key} of {plan.owner}, who executes {instant}")

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
        for complaint in self._judged(entry):
            self._break(f"{complaint} ({who}, entry {entry.position})")
        truth.ledger.append(entry)
        truth.follow(entry)
        match entry.fact:
            case Commit(action=Action.SAVEPOINT):
                pass  # it has the instant of the write that it keeps
            case Commit(instant=instant) as fact:
                truth.position[instant] = entry.position
                truth.completed_ms[instant] = self._world.wall()
                truth.services += fact.footprint.deed in _KEEPING
                self._look_at_rows(who, fact, was)
            case Foreign(instant=instant) as fact:
                truth.position[instant] = entry.position
                truth.void.update(fact.undoes)
                self._look_at_rows(who, fact, was)
            case Rollback(instant=instant, attempt=None):
                truth.void.add(instant)
            case Undo(instants=instants):
                truth.void.update(instants)
            case _:
                pass

    def java_pending(self) -> list[str]:
        """Return the plans of somebody without a ledger that are on the timeline and pending."""
        truth = self.truth
        return [
            instant
            for instant, plan in truth.java.items()
            if not (instant in truth.published or instant in truth.void)
            and self.peek(f"{TIMELINE_FOLDER}/{instant}.{plan.action}.requested") is not None
        ]

    def put_foreign(self, key: str, body: bytes) -> None:
        """Write on behalf of somebody without a ledger: nothing of it is judged here."""
        super(WitnessedStore, self).put(key, body, Create())
        self._remember(key)
        self._world.say("java", f"   put {key}")

    def delete_foreign(self, key: str) -> None:
        """Delete on behalf of somebody without a ledger."""
        super(WitnessedStore, self).delete(key)
        self._remember(key)

    def _judged(self, entry: Entry) -> Iterator[str]:
        truth, fact = self.truth, entry.fact
        if truth.ledger and entry.time <= truth.ledger[-1].time:
            yield f"T2: time {entry.time} after {truth.ledger[-1].time}"
        match fact:
            case Plan(targets=targets):
                yield from self._plan_judged(entry, targets)
            case Claim(instant, attempt):
                yield from self._claim_judged(entry, instant, attempt)
            case Commit(action=action) if action is not Action.SAVEPOINT:
                yield from self._commit_judged(entry, fact)
            case Rollback(instant=instant, attempt=attempt):
                yield from self._undo_judged(entry, instant, attempt)
            case Undo(instants=instants):
                for instant in instants:
                    yield from self._undo_judged(entry, instant, None)
            case Boundary(archived=archived):
                if truth.plans and min(truth.plans) < archived:
                    yield f"S7: {archived} is archived past the plan {min(truth.plans)}"
            case _:
                pass

    def _plan_judged(self, entry: Entry, targets: frozenset[GroupId]) -> Iterator[str]:
        truth = self.truth
        for group, piece in truth.proposed.get((entry.owner, targets), {}).items():
            if truth.state().get(group) != piece:
                yield f"S4: a plan was made of an older version of {group}"
        for instant, other in truth.plans.items():
            if shared := {group for _, group in targets} & set(other.inputs):
                yield f"S5: {min(shared)} is in the pending plan {instant}, too"

    def _commit_judged(self, entry: Entry, fact: Commit) -> Iterator[str]:
        truth, instant = self.truth, fact.instant
        if instant in truth.position:
            yield f"S1: {instant} was committed before"
        if instant in truth.void:
            yield f"T3: {instant} was rolled back before"
        if entry.time <= instant:
            yield f"T2: {instant} completed at {entry.time}"
        plan = truth.plans.get(instant)
        if plan is not None and (plan.attempt, plan.owner) != (fact.attempt, entry.owner):
            yield f"S1: attempt {fact.attempt} at {instant} commits, {plan.attempt} counts"

    def _claim_judged(self, entry: Entry, instant: str, attempt: int) -> Iterator[str]:
        plan = self.truth.plans.get(instant)
        if plan is None:
            yield f"S1: {instant} is claimed and not pending"
            return
        if attempt != plan.attempt + 1:
            yield f"S1: attempt {attempt} at {instant} follows {plan.attempt}"
        if plan.removable and plan.attempt:
            yield f"S5: the removable {instant} is begun a second time"
        yield from self._alive(entry, instant)

    def _undo_judged(self, entry: Entry, instant: str, attempt: int | None) -> Iterator[str]:
        truth = self.truth
        if instant in truth.position:
            yield f"T3: {instant} was committed before, and is rolled back"
        if instant in truth.void:
            yield f"S6: {instant} is rolled back a second time"
        plan = truth.plans.get(instant)
        if plan is not None and attempt is None and not (plan.removable or self._is_stale(plan)):
            yield f"S6: the plan {instant} stays until it is carried out, and is rolled back"
        yield from self._alive(entry, instant)

    def _is_stale(self, plan: Waiting) -> bool:
        """Tell whether base files that a plan reads are not the newest any more."""
        state = self.truth.state()
        gone = Slice("")
        return any(state.get(g, gone).base != piece.base for g, piece in plan.inputs.items())

    def _alive(self, entry: Entry, instant: str) -> Iterator[str]:
        key = f"{HEARTBEAT_FOLDER}/{instant}"
        _, says, executed = self._says(key, self.peek(key))
        if says is not None and executed and says.owner != entry.owner and self._clocks_agree:
            yield f"S2: {instant} is taken from {says.owner}, who is alive"

    def _look_at_rows(self, who: str, fact: Commit | Foreign, was: State) -> None:
        """G11, G10: a service changes no row; a write adds its own updates and nothing else."""
        truth = self.truth
        before, after = rows_of(was, self.body), rows_of(truth.state(), self.body)
        if isinstance(before, str) or isinstance(after, str):
            self._break(f"{before if isinstance(before, str) else after} ({who}, {fact.instant})")
            return
        expected = dict(before)
        for told in truth.told:
            if fact.instant in told.instants:
                for key in told.keys:
                    expected[key] = [*expected.get(key, ()), told.write]
        if after != expected:
            deed = fact.footprint.deed
            name = {Deed.COMPACTION: "S4", Deed.CLUSTERING: "S5"}.get(deed, "G10")
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
        fold = checkpoints.decode(body, where=CHECKPOINT_KEY).fold
        told = truth.ledger[: fold.position]
        boundaries = [e.fact for e in told if isinstance(e.fact, Boundary)]
        archived = max((b.archived for b in boundaries), default="")
        forgets = max((b.forgets for b in boundaries), default="")
        committed = {e.fact.instant for e in told if isinstance(e.fact, Commit | Foreign)}
        kept = {instant for instant in committed if instant >= archived}
        void = {
            e.fact.instant for e in told if isinstance(e.fact, Rollback) and e.fact.attempt is None
        }
        void |= {i for e in told if isinstance(e.fact, Undo) for i in e.fact.instants}
        void |= {i for e in told if isinstance(e.fact, Foreign) for i in e.fact.undoes}
        void = {instant for instant in void if instant >= forgets}
        if len(told) != fold.position or (set(fold.committed), set(fold.void)) != (kept, void):
            self._break(f"T10: {who} wrote a checkpoint that differs from the entries it folds")
        if fold.archived != archived:
            self._break(f"S7: {who} wrote a checkpoint with {fold.archived} archived")
        allowed = max([b.position for b in boundaries], default=0)
        if fold.boundary != allowed or fold.boundary < truth.boundary:
            self._break(f"T3: {who} moved the boundary to {fold.boundary}")
        if missing := sorted(committed - truth.published):
            self._break(f"T10: {who} folded {missing[0]} before it was published")
        truth.boundary = max(truth.boundary, fold.boundary)
        truth.archived = max(truth.archived, fold.archived)


def is_service(action: Action) -> bool:
    """Tell whether a plan is one that the simulated executors carry out."""
    return action in (Action.COMPACTION, Action.CLUSTERING)
