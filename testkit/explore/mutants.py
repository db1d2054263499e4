# ruff: noqa: SLF001 - a planted bug replaces private functions.
"""Planted bugs: each breaks one rule of the lock, and the search must find it.

A mutant is a context manager that replaces a function of the lock machine with a wrong one. It
names the bounds in which the search finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from testkit.explore.bounds import DRIFT_MS, SCENARIOS, Bounds
from tidelock.core.clock import Now
from tidelock.core.outcome import Landed
from tidelock.lock import acquire, machine
from tidelock.lock import events as e
from tidelock.lock import release as releasing
from tidelock.lock import renew as renewing
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord
from tidelock.lock.state import Grant, LockClientState, Phase, SeenRecord, Step
from tidelock.storage.contract import Create, Match, Overwrite, Refused

Handler = Callable[..., Any]
_MODULES = (acquire, renewing, releasing)
_NEVER_MS = 10**12


@contextmanager
def swapped(function: Handler, wrong: Handler) -> Iterator[None]:
    """Replace `function` with `wrong` in every module and table row that refers to it."""
    with ExitStack() as stack:
        for module in _MODULES:
            for name, value in list(vars(module).items()):
                if value is function:
                    stack.enter_context(patch.object(module, name, wrong))
        rows = {
            key: machine.TransitionRow(wrong, tuple(Phase))
            for key, row in machine.TABLE.items()
            if row.handler is function
        }
        stack.enter_context(patch.dict(machine.TABLE, rows))
        yield


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug, the rule it breaks, and the bounds in which to search for it."""

    rule: str
    plant: Callable[[], AbstractContextManager[object]]
    bounds: Bounds


_RACE = SCENARIOS["contention"]
_SKEW = SCENARIOS["takeover"]
_DELETE = Bounds(operations=2, faults=0, time_steps=0, skew_ms=0, operator_actions=1)


# --- time -----------------------------------------------------------------------------------------


def _deadline_from_receipt() -> AbstractContextManager[object]:
    right = acquire._granted

    def granted(state: LockClientState, held: SeenRecord, now: Now) -> Step:
        assert state.sent is not None
        return right(state._replace(sent=replace(state.sent, at=now)), held, now)

    return swapped(right, granted)


def _contender_without_drift() -> AbstractContextManager[object]:
    def is_dead(lease: Lease, record: LockRecord, now: Now) -> bool:
        return now.wall_epoch_ms > record.valid_until_epoch_ms + lease.grace_ms

    return patch.object(Lease, "is_dead", is_dead)


def _holder_without_margin() -> AbstractContextManager[object]:
    return patch.object(Lease, "margin_ms", 0)


def _holder_with_drift() -> AbstractContextManager[object]:
    """As in Java: the drift is added on the holder's side, too."""

    def deadline(lease: Lease, sent: Now) -> int:
        return sent.monotonic_ms + lease.validity_ms + DRIFT_MS

    return patch.object(Lease, "deadline_monotonic_ms", deadline)


def _grant_after_its_deadline() -> AbstractContextManager[object]:
    right = acquire._granted

    def granted(state: LockClientState, held: SeenRecord, now: Now) -> Step:
        return right(state, held, replace(now, monotonic_ms=0))

    return swapped(right, granted)


def _tick_sees_nothing() -> AbstractContextManager[object]:
    return swapped(renewing.tick, lambda state, _: (state, ()))


# --- acquire --------------------------------------------------------------------------------------


def _grant_from_readback() -> AbstractContextManager[object]:
    right = acquire.grant_verified

    def grant_verified(state: LockClientState, event: e.ReadDone) -> Step:
        match event.reply:
            case e.Found(version, record) if renewing.is_ghost(state, record, event.now):
                return acquire._granted(state, SeenRecord(version, record), event.now)
        return right(state, event)

    return swapped(right, grant_verified)


def _refused_is_granted() -> AbstractContextManager[object]:
    right = acquire.taken

    def taken(state: LockClientState, event: e.WriteDone) -> Step:
        assert state.sent is not None
        if isinstance(event.reply, Refused):
            nonce = state.sent.record.nonce
            return acquire._granted(state, SeenRecord(nonce, state.sent.record), event.now)
        return right(state, event)

    return swapped(right, taken)


def _ghost_unseen() -> AbstractContextManager[object]:
    return swapped(renewing.is_ghost, lambda *_: False)


def _token_restarts_after_java() -> AbstractContextManager[object]:
    right = acquire._take_or_reserve

    def take(state: LockClientState, now: Now, *, on_cached: bool = False) -> Step:
        if state.target is None or state.target.record.is_ours:
            return right(state, now, on_cached=on_cached)
        return acquire._take(state, now, token=1, ceiling=2)

    return swapped(right, take)


def _range_unconfirmed() -> AbstractContextManager[object]:
    right = acquire.taken

    def taken(state: LockClientState, event: e.WriteDone) -> Step:
        assert state.sent is not None
        return right(state._replace(sent=replace(state.sent, new_range=False)), event)

    return swapped(right, taken)


def _range_offered_at_once() -> AbstractContextManager[object]:
    right = acquire._take

    def take(
        state: LockClientState, now: Now, *, ceiling: int, new_range: bool = False, **rest: Any
    ) -> Step:
        offered = state.ceiling if new_range else ceiling
        return right(state, now, ceiling=offered, new_range=new_range, **rest)

    return swapped(right, take)


def _range_used_before_it_is_ours() -> AbstractContextManager[object]:
    right = acquire.reserved

    def reserved(state: LockClientState, event: e.WriteDone) -> Step:
        return right(state, replace(event, reply=Landed("any")))

    return swapped(right, reserved)


def _unreadable_is_absent() -> AbstractContextManager[object]:
    right_read, right_take = acquire.read, acquire._take

    def read(state: LockClientState, event: e.ReadDone) -> Step:
        if isinstance(event.reply, e.Unreadable):
            event = replace(event, reply=e.Absent())
        return right_read(state, event)

    def take(*args: Any, **options: Any) -> Step:
        after, effects = right_take(*args, **options)
        return after, tuple(_unconditional(effect, Create) for effect in effects)

    @contextmanager
    def both() -> Iterator[None]:
        with swapped(right_read, read), swapped(right_take, take):
            yield

    return both()


# --- renew ----------------------------------------------------------------------------------------


def _renewal_past_the_deadline() -> AbstractContextManager[object]:
    right = renewing.renew

    def renew(state: LockClientState, event: e.Event) -> Step:
        after, effects = right(_with_deadline(state, _NEVER_MS), event)
        assert state.grant is not None
        return _with_deadline(after, state.grant.deadline_monotonic_ms), effects

    return swapped(right, renew)


def _late_renewal_counts() -> AbstractContextManager[object]:
    right = renewing.renewed

    def renewed(state: LockClientState, event: e.WriteDone) -> Step:
        if isinstance(event.reply, Landed):
            return right(_with_deadline(state, _NEVER_MS), event)
        return right(state, event)

    return swapped(right, renewed)


def _late_renewal_revives() -> AbstractContextManager[object]:
    right = renewing.late_renewal

    def late_renewal(state: LockClientState, event: e.WriteDone) -> Step:
        if not isinstance(event.reply, Landed) or state.sent is None:
            return right(state, event)
        deadline = state.lease.deadline_monotonic_ms(state.sent.at)
        grant = Grant(event.reply.version, state.sent.record, deadline)
        after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, lost_cause="")
        return after, (e.OperationDone(e.Renewed()),)

    return swapped(right, late_renewal)


def _recheck_moves_the_deadline() -> AbstractContextManager[object]:
    right = renewing.rechecked

    def rechecked(state: LockClientState, event: e.ReadDone) -> Step:
        match event.reply:
            case e.Found(version, record) if renewing.is_our_grant(state, record):
                deadline = state.lease.deadline_monotonic_ms(event.now)
                after = state._replace(phase=Phase.HOLDING, grant=Grant(version, record, deadline))
                return after, (e.OperationDone(e.RenewalUnknown("refused")),)
        return right(state, event)

    return swapped(right, rechecked)


def _adopts_any_token() -> AbstractContextManager[object]:
    def is_our_grant(state: LockClientState, record: LockRecord) -> bool:
        return record.written_by(state.owner) and not record.expired

    return swapped(renewing.is_our_grant, is_our_grant)


def _renews_for_the_dead() -> AbstractContextManager[object]:
    return swapped(renewing.owner_gone, lambda state, _: (state, ()))


# --- release --------------------------------------------------------------------------------------


def _release_overwrites() -> AbstractContextManager[object]:
    right = releasing.release

    def release(state: LockClientState, event: e.Event) -> Step:
        after, effects = right(state, event)
        return after, tuple(_unconditional(effect, Match) for effect in effects)

    return swapped(right, release)


def _unclear_release_is_released() -> AbstractContextManager[object]:
    right = releasing._unknown_release

    def unknown(state: LockClientState, cause: str) -> Step:
        after, _ = right(state, cause)
        return after, (e.OperationDone(e.Released()),)

    return swapped(right, unknown)


def _replaced_release_is_a_loss() -> AbstractContextManager[object]:
    right = releasing.verified

    def verified(state: LockClientState, event: e.ReadDone) -> Step:
        match event.reply:
            case e.Found(_, record) if record.owner != state.owner:
                after, effects = renewing.lose(state, "another owner holds the lock")
                return after, (*effects, e.OperationDone(e.LockLost(after.lost_cause)))
        return right(state, event)

    return swapped(right, verified)


def _with_deadline(state: LockClientState, deadline_ms: int) -> LockClientState:
    assert state.grant is not None
    return state._replace(grant=replace(state.grant, deadline_monotonic_ms=deadline_ms))


def _unconditional(effect: e.Effect, mode: type[Create | Match]) -> e.Effect:
    if isinstance(effect, e.WriteRecord) and isinstance(effect.mode, mode):
        return replace(effect, mode=Overwrite())
    return effect


MUTANTS: dict[str, Mutant] = {
    "deadline from receipt": Mutant("P9", _deadline_from_receipt, _RACE),
    "contender without drift": Mutant("P10", _contender_without_drift, _SKEW),
    "holder without margin": Mutant("P9", _holder_without_margin, _SKEW),
    "holder with drift": Mutant("P9", _holder_with_drift, _SKEW),
    "grant after its deadline": Mutant("P15", _grant_after_its_deadline, _RACE),
    "tick sees nothing": Mutant("P29", _tick_sees_nothing, _RACE),
    "grant from read-back": Mutant("P16", _grant_from_readback, _RACE),
    "refused is granted": Mutant("P16", _refused_is_granted, _RACE),
    "ghost unseen": Mutant("P16", _ghost_unseen, _RACE),
    "token restarts after Java": Mutant(
        "P6", _token_restarts_after_java, replace(_RACE, faults=0, time_steps=0, java_writes=2)
    ),
    "range unconfirmed": Mutant("P7", _range_unconfirmed, _DELETE),
    "range offered at once": Mutant("P7", _range_offered_at_once, _DELETE),
    "range used before it is ours": Mutant("P6", _range_used_before_it_is_ours, _DELETE),
    "unreadable is absent": Mutant(
        "P19", _unreadable_is_absent, replace(_RACE, starts=("unreadable",))
    ),
    "renewal past the deadline": Mutant("P20", _renewal_past_the_deadline, _RACE),
    "late renewal counts": Mutant("P23", _late_renewal_counts, _RACE),
    "late renewal revives": Mutant("P23", _late_renewal_revives, _RACE),
    "recheck moves the deadline": Mutant("P21", _recheck_moves_the_deadline, _RACE),
    "adopts any token": Mutant(
        "P21", _adopts_any_token, replace(_DELETE, clients=1, operations=3, faults=1)
    ),
    "renews for the dead": Mutant("P20", _renews_for_the_dead, _RACE),
    "release overwrites": Mutant("P24", _release_overwrites, _RACE),
    "unclear release is released": Mutant(
        "P25", _unclear_release_is_released, SCENARIOS["operator and fault"]
    ),
    "replaced release is a loss": Mutant("P25", _replaced_release_is_a_loss, _RACE),
}
