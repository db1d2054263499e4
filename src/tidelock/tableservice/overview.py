"""What waits to be executed, who is at it, and which file groups wait with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.ids import SystemIds
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import Action, State, parse_time
from tidelock.txn.effects import World
from tidelock.txn.fold import Pending
from tidelock.txn.foreignplans import ADOPTED
from tidelock.txn.reading import load
from tidelock.txn.recovery import Survey, survey

_SERVICES: Final = frozenset(
    {
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
        Action.CLEAN,
        Action.ROLLBACK,
        Action.RESTORE,
        Action.INDEXING,
    }
)


@dataclass(frozen=True, slots=True)
class PendingService:
    """A plan that is neither complete nor undone.

    `ours` tells whether the ledger knows it; others are of writers that keep none. An `adopted` one
    was scheduled by such a writer, and taken over. `owner` is who claimed it last and has not given
    it back; without a fresh heartbeat anybody may take it over.
    """

    instant: str
    action: str
    state: str
    age_ms: int
    ours: bool
    removable: bool
    attempt: int
    owner: str
    alive: bool
    heartbeat_age_ms: int | None
    host: str
    pid: int
    groups: frozenset[GroupId]
    adopted: bool = False

    @property
    def scheduled_by(self) -> str:
        """Who put it on the timeline."""
        return "tidelock" if self.ours and not self.adopted else "a writer without a ledger"

    @property
    def next_step(self) -> str:
        """What happens with it now."""
        if self.alive:
            return "is being executed"
        if not self.ours:
            taken = self.action in [action.value for action in ADOPTED]
            return "anybody may take it over" if taken else "waits for its own writer"
        if self.removable and self.state == State.INFLIGHT.name.lower():
            return "is dead: the next clean undoes it"
        return "was left: anybody may execute it" if self.owner else "anybody may execute it"


def pending_services(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    folder: str = TIMELINE_FOLDER,
    otherwise_ms: int = 600_000,
) -> tuple[PendingService, ...]:
    """Return every pending plan of a table, oldest first; nothing is changed.

    `otherwise_ms` is how long a Java writer counts as alive after its last heartbeat.
    """
    world = World(store, clock or SystemClock(), SystemIds())
    plans = world.perform(load()).fold.plans
    return services_of(plans, world.perform(survey(folder)), otherwise_ms=otherwise_ms)


def services_of(
    plans: Mapping[str, Pending], seen: Survey, *, otherwise_ms: int = 600_000
) -> tuple[PendingService, ...]:
    """Return the pending plans of a ledger and a timeline that were read already, oldest first."""
    states = {instant.requested: instant for instant in seen.pending}
    actions = {instant: plan.action for instant, plan in plans.items()}
    for instant in seen.pending:
        if instant.action in _SERVICES:
            actions.setdefault(instant.requested, instant.action)
    found: list[PendingService] = []
    for requested, action in sorted(actions.items()):
        known = states.get(requested)
        state = State.REQUESTED if known is None else known.state
        plan = plans.get(requested) or Pending(
            requested, action, frozenset(), removable=False, position=0
        )
        found.append(
            _service(plan, state, seen, ours=requested in plans, otherwise_ms=otherwise_ms)
        )
    return tuple(found)


def _service(
    plan: Pending, state: State, seen: Survey, *, ours: bool, otherwise_ms: int
) -> PendingService:
    pulse = seen.pulses.get(plan.instant)
    says = pulse.says if pulse is not None else None
    return PendingService(
        instant=plan.instant,
        action=plan.action.value,
        state=state.name.lower(),
        age_ms=max(0, seen.now_epoch_ms - parse_time(plan.instant)),
        ours=ours,
        adopted=plan.adopted,
        removable=plan.removable,
        attempt=plan.attempt,
        owner=plan.owner or (says.owner if says else ""),
        alive=pulse is not None and pulse.is_alive(seen.now_epoch_ms, otherwise_ms=otherwise_ms),
        heartbeat_age_ms=None if pulse is None else pulse.age_ms(seen.now_epoch_ms),
        host=says.host if says else "",
        pid=says.pid if says else 0,
        groups=plan.targets,
    )
