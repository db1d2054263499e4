"""The properties to check, independent of the production code.

Nothing here calls the lease arithmetic or the invariants of the lock, so that a bug there is found.
"""

from __future__ import annotations

from collections.abc import Sequence

from testkit.explore.bounds import DRIFT_MS, MARGIN_MS, Bounds
from testkit.explore.values import Client, Landing, Role, SentRequest, Stored, StoredCounter
from tidelock.lock import events as e
from tidelock.lock.record import LockRecord
from tidelock.lock.state import LockClientState, Phase

RESTING = (Phase.IDLE, Phase.HOLDING, Phase.LOST, Phase.CLOSED)
WITHOUT_RESULT = (e.Tick, e.OwnerGone, e.Abandon)
"""Events without a result: they end no operation and send no request."""


class CheckFailed(Exception):
    """A property is violated. `move` is set by the caller that knows the move."""

    def __init__(self, rule: str, description: str) -> None:
        """Store the rule and the violation."""
        super().__init__(f"{rule}: {description}")
        self.rule = rule
        self.move = ""


def landing(sent: SentRequest, replaced: Stored | None, owner: str, bounds: Bounds) -> None:
    """Check a write of the record when it takes effect (L1, L2, L4, L8, P24)."""
    assert isinstance(sent.request, e.WriteRecord)
    record = sent.request.record
    if replaced is not None and replaced.record is None:
        raise CheckFailed("L8", f"the {_role(sent)} of {owner} replaced an unreadable record")
    before = replaced.record if replaced else None
    if sent.role is Role.GRANT:
        _grant_landing(record, before, sent.sent_epoch_ms, bounds)
        return
    if before is None or before.owner != owner or before.token != record.token or before.expired:
        raise CheckFailed("L4", f"a {_role(sent)} of {owner} replaced {short(before)}")
    if sent.role is Role.RELEASE and (
        not record.expired or record.valid_until_epoch_ms != before.valid_until_epoch_ms
    ):
        raise CheckFailed("P24", f"a release that changed more than `expired`: {short(record)}")
    if sent.role is Role.RENEWAL:
        _valid_until(record, sent.sent_epoch_ms, bounds)


def _grant_landing(
    record: LockRecord, before: LockRecord | None, sent_epoch_ms: int, b: Bounds
) -> None:
    _valid_until(record, sent_epoch_ms, b)
    if before is None:
        return
    dead_after = before.valid_until_epoch_ms + DRIFT_MS + b.grace_ms
    if not before.expired and sent_epoch_ms <= dead_after:
        raise CheckFailed("L2", f"{short(record)} was granted over the live {short(before)}")
    if record.token <= before.token:
        raise CheckFailed("L1", f"{short(record)} replaced {short(before)}")


def _valid_until(record: LockRecord, sent_epoch_ms: int, bounds: Bounds) -> None:
    if record.valid_until_epoch_ms != sent_epoch_ms + bounds.validity_ms:
        raise CheckFailed("P8", f"{short(record)} was sent at {sent_epoch_ms}")


def counter_landing(replaced: StoredCounter | None, sent: SentRequest) -> None:
    """Check that the ceiling of granted tokens only grows (P5)."""
    assert isinstance(sent.request, e.WriteCounter)
    if replaced and sent.request.counter.ceiling <= replaced.counter.ceiling:
        raise CheckFailed("L1", "the token counter did not grow")


def effects(
    event: e.Event, before: LockClientState, after: LockClientState, produced: Sequence[e.Effect]
) -> None:
    """Check that a step sends one request or ends with one result."""
    requests = sum(isinstance(effect, e.Request) for effect in produced)
    results = sum(isinstance(effect, e.OperationDone) for effect in produced)
    if isinstance(event, WITHOUT_RESULT):
        if requests or results:
            raise CheckFailed(
                "P29", f"{type(event).__name__} while {before.phase.value} produced {produced}"
            )
        if isinstance(event, e.Abandon) and after.phase not in RESTING:
            raise CheckFailed("stuck", f"{after.phase.value} after it was abandoned")
        return
    if requests + results != 1:
        raise CheckFailed(
            "stuck", f"{requests} requests and {results} results while {before.phase.value}"
        )
    if (after.phase in RESTING) != (results == 1):
        raise CheckFailed("stuck", f"{after.phase.value} with {requests} requests in flight")


def request(client: Client, role: Role, sent: e.Request, real_ms: int, bounds: Bounds) -> None:
    """Check a write when it is sent: nothing extends a grant that is over (L7, L10, L11, P20)."""
    if isinstance(sent, e.WriteRecord) and client.token not in (0, sent.record.token):
        raise CheckFailed(
            "L4", f"{client.state.owner} holds {client.token}, writes {sent.record.token}"
        )
    if role is not Role.RENEWAL:
        return
    if client.ended:
        raise CheckFailed("L7", "a renewal was sent after the loss, release or end of the grant")
    if real_ms >= deadline_ms(client, bounds):
        raise CheckFailed("L11", "a renewal was sent at or after the deadline")


def deadline_ms(client: Client, bounds: Bounds) -> int:
    """Return the deadline, counted from the sending of the last write known to have landed (P9)."""
    return client.basis_ms + bounds.validity_ms - MARGIN_MS


def grant(client: Client, real_ms: int, bounds: Bounds) -> None:
    """Check that a grant is reported before its deadline (P15)."""
    if real_ms >= deadline_ms(client, bounds):
        raise CheckFailed("L3", f"{client.state.owner} got Granted at or after its deadline")


def renewal(client: Client, real_ms: int, bounds: Bounds) -> None:
    """Check that a renewal is not counted after the deadline (L11)."""
    if real_ms >= deadline_ms(client, bounds):
        raise CheckFailed("L11", f"a lease of {client.state.owner} past its deadline was revived")


def belief(client: Client, real_ms: int, bounds: Bounds) -> None:
    """Check a client that reports HELD or UNSURE at `real_ms` (L3, L11, L14)."""
    if real_ms >= deadline_ms(client, bounds):
        raise CheckFailed("L3", f"{client.state.owner} reports HELD at or after its deadline")
    if client.ended:
        raise CheckFailed(
            "L11", f"{client.state.owner} reports HELD again after the end of the grant"
        )


def result(client: Client, ended: e.Result) -> None:
    """Check the reported result against what happened (L5, L6)."""
    state = client.state
    match ended:
        case e.Released() if state.phase in (Phase.RELEASING, Phase.VERIFYING_RELEASE):
            if not client.released:
                raise CheckFailed("L6", "Released was reported, but no release has landed")
        case e.LockLost() if state.phase is Phase.VERIFYING_RELEASE and client.released:
            raise CheckFailed("L6", "a release that had landed was reported as a loss")
        case e.NotAcquired(e.NotAcquiredReason.HELD | e.NotAcquiredReason.RACED, holder) if (
            holder is not None
        ):
            if holder.written_by(state.owner):
                raise CheckFailed("L5", f"{state.owner} got {short(holder)} as another owner's")
        case _:
            pass


def granted(log: Sequence[Landing], mine: int | None, *, ceiling: int, orderly: bool) -> None:
    """Check a grant when it is reported (L1, L5).

    `mine` is its index among the landed grant writes that are still awaited. `orderly`: no operator
    acted, so grants are also reported in the order in which they landed.
    """
    if mine is None:
        raise CheckFailed("L5", "Granted was reported for a write that did not land")
    token = log[mine].token
    for place, other in enumerate(log):
        if not other.granted:
            continue
        if (other.token >= token) if place < mine else (other.token <= token):
            raise CheckFailed("L1", f"token {token} was granted out of order with {other.token}")
        if place > mine and orderly:
            raise CheckFailed("L1", f"token {token} was believed after {other.token}")
    if token > ceiling:
        raise CheckFailed("L1", f"token {token} is above the durable ceiling {ceiling}")


def check_stored(lock: Stored | None, version: str) -> None:
    """Check that a granted or renewed record is in the store (L5)."""
    if lock is None or lock.version != version:
        raise CheckFailed("L5", "Granted or Renewed was reported for a record that is not stored")


def _role(sent: SentRequest) -> str:
    return sent.role.value if sent.role else "write"


def short(record: LockRecord | None) -> str:
    """Return a short description of a record."""
    if record is None:
        return "nothing"
    until = "released" if record.expired else f"until {record.valid_until_epoch_ms}"
    return f"{record.owner} token {record.token}/{record.token_ceiling} {until}"
