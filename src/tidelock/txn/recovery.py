"""Finding what dead writers left, and undoing it (C54-C59).

In two steps, as RFC-79 asks: first everything is decided, under the table's lock where there is
one; then it is carried out, and so is what others decided and did not finish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelock.base.clock import Now
from tidelock.base.errors import Conflict
from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.timeline.instant import Action, Instant, furthest, parse_instant
from tidelock.txn.appending import Doubtful
from tidelock.txn.effects import Delete, Get, List, ReadClock, Steps
from tidelock.txn.fold import Fold, Pending
from tidelock.txn.foreignrollbacks import ForeignRollback, finish_foreign, foreign_rollbacks
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER, Pulse, heartbeat_key, pulse_of
from tidelock.txn.rollbacks import (
    CarriedOut,
    Intent,
    files_by_instant,
    finish_undo,
    pending_undos,
    remove_plan,
    schedule_undo,
)
from tidelock.txn.sweeping import sweep_marked
from tidelock.txn.undoing import marked_files, remove_undone
from tidelock.txn.undorecords import Undone, rollback_plan

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions

WRITES: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class Survey:
    """Who has begun something and not ended it, and whose heart beats.

    `keys` has the file of every instant's furthest state, and when it was written.
    """

    pending: tuple[Instant, ...]
    pulses: dict[str, Pulse]
    now_epoch_ms: int
    completed: tuple[Instant, ...] = ()
    written_epoch_ms: dict[Instant, int] = field(default_factory=dict)

    def is_alive(self, instant: str, *, otherwise_ms: int) -> bool:
        """Tell whether the writer of an instant counts as alive."""
        pulse = self.pulses.get(instant)
        return pulse is not None and pulse.is_alive(self.now_epoch_ms, otherwise_ms=otherwise_ms)

    def is_fresh(self, instant: Instant, within_ms: int) -> bool:
        """Tell whether the file of an instant was written just now."""
        return self.now_epoch_ms - self.written_epoch_ms.get(instant, 0) <= within_ms

    def is_marked(self, instant: str) -> bool:
        """Tell whether every data file of an instant has a marker."""
        pulse = self.pulses.get(instant)
        return pulse is not None and pulse.says is not None and pulse.says.markers


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was undone, and which live writers were left alone."""

    undone: tuple[Undone, ...] = ()
    alive: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = field(default=())


def survey(folder: str) -> Steps[Survey]:
    """List the timeline and the heartbeats."""
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    written: dict[Instant, int] = {}
    for meta in listed:
        found = parse_instant(meta.key.removeprefix(f"{folder}/"))
        if found is not None:
            written[found] = meta.modified_epoch_ms
    instants = furthest(written)
    beats: tuple[ObjectMeta, ...] = yield List(f"{HEARTBEAT_FOLDER}/")
    pulses: dict[str, Pulse] = {}
    for meta in beats:
        instant = meta.key.rpartition("/")[2]
        held: StoredObject | None = yield Get(meta.key)
        if held is not None:
            pulses[instant] = pulse_of(instant, held)
    now: Now = yield ReadClock()
    return Survey(
        tuple(instant for instant in instants if not instant.is_completed),
        pulses,
        now.wall_epoch_ms,
        tuple(instant for instant in instants if instant.is_completed),
        written,
    )


@dataclass(slots=True)
class Recovery:
    """One look at what the dead left.

    Guarantees: an instant that the ledger has committed is never touched, nor one that is alive,
    nor one of this process's own (C57). May be repeated, and cut short anywhere.
    """

    home: Transactions
    delay_ms: int | None = None
    writes: bool = True
    dead: list[tuple[Instant, set[str]]] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    seen: Survey | None = None
    foreign: tuple[ForeignRollback, ...] = ()

    def look(self) -> Steps[None]:
        """Find dead writes and their files: what takes long, and no lock should be held for."""
        home = self.home
        yield from home.ledger.refresh_steps()
        seen = self.seen = yield from survey(home.ledger.publisher.folder)
        if not self.writes:
            return
        self.foreign = yield from foreign_rollbacks(home, seen.pending)
        # An instant has one roll-back plan, whoever made it.
        planned = {each.target for each in self.foreign}
        dead = [instant for instant in reversed(seen.pending) if self.is_dead(instant, seen)]
        dead = [instant for instant in dead if instant.requested not in planned]
        by_markers = home.settings.rollback_by_markers
        listed = [i.requested for i in dead if not (by_markers and seen.is_marked(i.requested))]
        known = yield from files_by_instant(listed)
        for instant in dead:
            marked = yield from marked_files(instant.requested)
            self.dead.append((instant, marked.union(known.get(instant.requested, ()))))

    def decide(self) -> Steps[None]:
        """Decide the roll-back of every dead write, the newest first; nothing is removed yet."""
        home = self.home
        if self.seen is None:
            yield from self.look()
        yield from home.ledger.refresh_steps()
        for instant, files in self.dead:
            if not home.ledger.fold.is_settled(instant.requested):
                yield from self._decide(instant, files)
        if self.delay_ms is not None:
            yield from self._decide_plans(self.delay_ms)

    def _decide_plans(self, delay_ms: int) -> Steps[None]:
        """Decide the roll-back of removable plans that are dead, or that nobody began in time."""
        plans = self.home.ledger.fold.plans.values()
        for instant in sorted(plan.instant for plan in plans if plan.removable):
            yield from remove_plan(self.home, instant, delay_ms=delay_ms, finish=False)

    def is_dead(self, instant: Instant, seen: Survey) -> bool:
        """Tell whether a pending instant is a write that its writer left; notes who is alive."""
        home, fold = self.home, self.home.ledger.fold
        requested = instant.requested
        if instant.action not in WRITES or fold.is_settled(requested) or requested in fold.plans:
            return False
        written = seen.written_epoch_ms.get(instant, 0)
        unheard = requested not in seen.pulses
        if unheard and home.may_be_at_work(instant.state, written, seen.now_epoch_ms):
            self.alive.append(requested)
            return False
        running = requested in home.beating.instants()
        if running or seen.is_alive(requested, otherwise_ms=home.life_ms):
            self.alive.append(requested)
            return False
        return True

    def _decide(self, instant: Instant, files: Iterable[str]) -> Steps[None]:
        home = self.home
        held: StoredObject | None = yield Get(heartbeat_key(instant.requested))
        now: Now = yield ReadClock()
        if held is not None:
            pulse = pulse_of(instant.requested, held)
            if pulse.is_alive(now.wall_epoch_ms, otherwise_ms=home.life_ms):
                return  # it beats again
        record = rollback_plan(instant.requested, instant.action.value, files, base=home.store.uri)
        intent = Intent(
            Action.ROLLBACK,
            (instant.requested,),
            record,
            home.ledger.fold.position,
            reason="its writer is dead",
        )
        found = yield from schedule_undo(home, intent)
        if isinstance(found, Doubtful):
            self.doubtful.append(instant.requested)

    def carry_out(self) -> Steps[None]:
        """Carry out every roll-back that is decided and that nobody else is at (C56)."""
        home = self.home
        for plan in pending_undos(home, Action.ROLLBACK):
            yield from self._finish(plan)
        seen = self.seen
        if seen is None:
            return
        for foreign in self.foreign:
            requested = foreign.instant.requested
            alive = seen.is_alive(requested, otherwise_ms=home.life_ms)
            if alive or seen.is_fresh(foreign.instant, home.life_ms):
                continue
            undone = yield from finish_foreign(home, foreign)
            self.undone += [] if undone is None else [undone]
        fold = home.ledger.fold
        for instant in seen.pending:
            if self._is_left(instant, fold):
                # Its writer gave it up, and died before everything of it was gone.
                yield from self._remove(instant, seen)
        yield from self._forget_ghosts(seen)
        if self.delay_ms is not None:
            beating = {i for i in seen.pulses if seen.is_alive(i, otherwise_ms=home.life_ms)}
            yield from sweep_marked(home, alive=beating | set(home.beating.instants()))
        yield from self._forget_heartbeats(seen)

    def _finish(self, plan: Pending) -> Steps[None]:
        try:
            done = yield from finish_undo(self.home, plan)
        except Conflict:
            return  # taken over meanwhile
        if isinstance(done, CarriedOut):
            self.undone += done.undone

    def _is_left(self, instant: Instant, fold: Fold) -> bool:
        requested = instant.requested
        planned = any(requested in plan.undoes for plan in fold.plans.values())
        gone = any(each.instant == requested for each in self.undone)
        return requested in fold.void and not planned and not gone

    def _remove(self, instant: Instant, seen: Survey) -> Steps[None]:
        folder = self.home.ledger.publisher.folder
        marked = seen.is_marked(instant.requested)
        self.undone.append(
            (yield from remove_undone(instant.requested, folder=folder, marked=marked))
        )

    def _forget_ghosts(self, seen: Survey) -> Steps[None]:
        """Delete what a slow publisher put on the timeline after it was undone (C86).

        And what a savepoint that was never made announced.
        """
        home = self.home
        folder, fold = home.ledger.publisher.folder, home.ledger.fold
        # Where others write, too, a commit that was rolled back and completed is for a person to
        # judge; and a restore removes what it takes back in an order of its own.
        ours = not fold.foreign and fold.halting is None
        for instant in seen.completed if ours else ():
            if instant.action.writes_data and instant.requested in fold.void:
                yield Delete(f"{folder}/{instant.file_name}")
        for instant in seen.pending:
            if instant.action is Action.SAVEPOINT and not seen.is_fresh(instant, home.life_ms):
                yield Delete(f"{folder}/{instant.file_name}")

    def _forget_heartbeats(self, seen: Survey) -> Steps[None]:
        """Delete heartbeats of which nothing is left but themselves.

        One that is later than the ledger reserves its time (C44): its owner may be about to
        announce it, and be taken for dead by a wrong clock. What the ledger has passed, nobody
        takes again.
        """
        home, fold = self.home, self.home.ledger.fold
        waiting = {instant.requested for instant in seen.pending} | set(fold.plans)
        waiting |= set(home.beating.instants())
        for instant in seen.pulses:
            if instant in waiting or instant > fold.time:
                continue
            if not seen.is_alive(instant, otherwise_ms=home.life_ms):
                yield Delete(heartbeat_key(instant))

    def report(self) -> Recovered:
        """Return what was done."""
        return Recovered(tuple(self.undone), tuple(self.alive), tuple(self.doubtful))
