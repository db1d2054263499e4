"""Taking a lock without keeping it: no heartbeat, no release at the end of the process."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.clock import Clock
from tidelock.base.errors import AcquireTimeout, StoreUnreachable, TidelockError
from tidelock.base.ids import SystemIds
from tidelock.lock import events as e
from tidelock.lock.audit import AuditLog
from tidelock.lock.holding import describe, timeout_ms_of
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LockObjects
from tidelock.lock.session import Answer, Note, Operation, Pause, Session
from tidelock.store.contract import ObjectStore


@dataclass(frozen=True, slots=True)
class Taken:
    """A lock that was taken and left."""

    uri: str
    token: int
    owner: str
    valid_until_epoch_ms: int


def take_and_leave(
    store: ObjectStore, lease: Lease, *, wait_s: float | None, clock: Clock
) -> Taken:
    """Take the lock of the resource at the root of `store`; it stands until it expires.

    Raises: `AcquireTimeout`, and what reading the store raises.
    """
    objects = LockObjects(store, probe=True)
    timeout_ms = timeout_ms_of(wait_s)

    def note(entry: Note) -> None:
        if isinstance(entry, e.Audit):
            audit.note(entry, held=True)

    session = Session(lease, clock=clock, ids=SystemIds(), note=note)
    audit = AuditLog(store, owner=session.owner, validity_ms=lease.validity_ms, clock=clock)
    operation = session.acquire(timeout_ms, hopeless=lambda: objects.hopeless)
    result = _run(operation, objects, clock)
    if isinstance(result, e.NotAcquired):
        raise _refusal(objects, result)
    grant = session.state.grant
    assert grant is not None
    record = grant.record
    return Taken(objects.uri, record.token, record.owner, record.valid_until_epoch_ms)


def _run(operation: Operation, objects: LockObjects, clock: Clock) -> e.Result:
    answer: Answer = None
    try:
        while True:
            ask = operation.send(answer)
            if isinstance(ask, Pause):
                clock.sleep_ms(ask.duration_ms)
                answer = None
            else:
                answer = objects.perform(ask)
    except StopIteration as ended:
        result: e.Result = ended.value
        return result


def _refusal(objects: LockObjects, result: e.NotAcquired) -> TidelockError:
    if objects.last_error is not None and (objects.hopeless or result.why is e.Why.UNREADABLE):
        return objects.last_error
    if result.why in (e.Why.UNAVAILABLE, e.Why.UNKNOWN):
        return StoreUnreachable(
            f"the lock {objects.uri} was not acquired: {result.cause}",
            hint="see `tidelock lock status`; what may have landed expires by itself",
        )
    holder = f", {describe(result.holder)}" if result.holder else ""
    return AcquireTimeout(
        f"the lock {objects.uri} was not acquired: {result.why.value}{holder}",
        hint="wait longer, or see who holds it with `tidelock lock status`",
    )
