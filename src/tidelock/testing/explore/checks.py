"""What must hold, in the checker's own words and arithmetic.

Nothing here calls the lock's own lease or invariants: a mistake there must not hide itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelock.lock import events as e
from tidelock.lock.record import Record
from tidelock.lock.state import Phase, State
from tidelock.testing.explore.bounds import DRIFT_MS, MARGIN_MS, Bounds
from tidelock.testing.explore.values import Asked, Client, Landing, Role, Stored, StoredCounter

RESTING = (Phase.IDLE, Phase.HOLDING, Phase.LOST, Phase.CLOSED)
UNASKED = (e.Tick, e.OwnerGone, e.Abandon)
"""Events that nobody waits for: they end nothing and ask for nothing."""


class Broken(Exception):
    """An invariant does not hold. `move` is filled in by whoever knows what was done."""

    def __init__(self, rule: str, says: str) -> None:
        """Name the invariant and what contradicts it."""
        super().__init__(f"{rule}: {says}")
        self.rule = rule
        self.move = ""


def landing(asked: Asked, replaced: Stored | None, owner: str, bounds: Bounds) -> None:
    """Check a write of the record at the moment it takes effect (L1, L2, L4, L8, P24)."""
    assert isinstance(asked.request, e.WriteRecord)
    record = asked.request.record
    if replaced is not None and replaced.record is None:
        raise Broken("L8", f"the {_role(asked)} of {owner} replaced an unreadable record")
    before = replaced.record if replaced else None
    if asked.role is Role.GRANT:
        _grant_landing(record, before, asked.sent_epoch_ms, bounds)
        return
    if before is None or before.owner != owner or before.token != record.token or before.expired:
        raise Broken("L4", f"a {_role(asked)} of {owner} replaced {short(before)}")
    if asked.role is Role.RELEASE and (
        not record.expired or record.valid_until_epoch_ms != before.valid_until_epoch_ms
    ):
        raise Broken("P24", f"a release that changed more than `expired`: {short(record)}")
    if asked.role is Role.RENEWAL:
        _valid_until(record, asked.sent_epoch_ms, bounds)


def _grant_landing(record: Record, before: Record | None, sent_epoch_ms: int, b: Bounds) -> None:
    _valid_until(record, sent_epoch_ms, b)
    if before is None:
        return
    dead_after = before.valid_until_epoch_ms + DRIFT_MS + b.grace_ms
    if not before.expired and sent_epoch_ms <= dead_after:
        raise Broken("L2", f"{short(record)} was granted over the live {short(before)}")
    if record.token <= before.token:
        raise Broken("L1", f"{short(record)} replaced {short(before)}")


def _valid_until(record: Record, sent_epoch_ms: int, bounds: Bounds) -> None:
    if record.valid_until_epoch_ms != sent_epoch_ms + bounds.validity_ms:
        raise Broken("P8", f"{short(record)} was sent at {sent_epoch_ms}")


def counter_landing(replaced: StoredCounter | None, asked: Asked) -> None:
    """Check that the ceiling of granted tokens only grows (P5)."""
    assert isinstance(asked.request, e.WriteCounter)
    if replaced and asked.request.counter.ceiling <= replaced.counter.ceiling:
        raise Broken("L1", "the token counter did not grow")


def effects(event: e.Event, before: State, after: State, told: Sequence[e.Effect]) -> None:
    """Check that a step asks for one thing or ends with one result, and that nobody gets stuck."""
    asks = sum(isinstance(effect, e.Request) for effect in told)
    ends = sum(isinstance(effect, e.Done) for effect in told)
    if isinstance(event, UNASKED):
        if asks or ends:
            raise Broken("P29", f"{type(event).__name__} while {before.phase.value} said {told}")
        if isinstance(event, e.Abandon) and after.phase not in RESTING:
            raise Broken("stuck", f"{after.phase.value} after it was cut short")
        return
    if asks + ends != 1:
        raise Broken("stuck", f"{asks} requests and {ends} results while {before.phase.value}")
    if (after.phase in RESTING) != (ends == 1):
        raise Broken("stuck", f"{after.phase.value} with {asks} requests under way")


def request(client: Client, role: Role, asked: e.Request, real_ms: int, bounds: Bounds) -> None:
    """Check a write when it is sent: nothing extends a grant that is over (L7, L10, L11, P20)."""
    if isinstance(asked, e.WriteRecord) and client.token not in (0, asked.record.token):
        raise Broken(
            "L4", f"{client.state.owner} holds {client.token}, writes {asked.record.token}"
        )
    if role is not Role.RENEWAL:
        return
    if client.over:
        raise Broken("L7", "a renewal was sent after the loss, release or end of the grant")
    if real_ms >= deadline_ms(client, bounds):
        raise Broken("L11", "a renewal was sent at or after the deadline")


def deadline_ms(client: Client, bounds: Bounds) -> int:
    """Return when the client must stop, counted from the last sending known to have landed (P9)."""
    return client.basis_ms + bounds.validity_ms - MARGIN_MS


def grant(client: Client, real_ms: int, bounds: Bounds) -> None:
    """Check that a grant is told before its deadline (P15)."""
    if real_ms >= deadline_ms(client, bounds):
        raise Broken("L3", f"{client.state.owner} was told Granted at or after its deadline")


def renewal(client: Client, real_ms: int, bounds: Bounds) -> None:
    """Check that what a renewal extends was not over when it was known to have landed (L11)."""
    if real_ms >= deadline_ms(client, bounds):
        raise Broken("L11", f"a lease of {client.state.owner} past its deadline was revived")


def belief(client: Client, real_ms: int, bounds: Bounds) -> None:
    """Check a client that says HELD or UNSURE at `real_ms` (L3, L11, L14)."""
    if real_ms >= deadline_ms(client, bounds):
        raise Broken("L3", f"{client.state.owner} believes to hold at or after its deadline")
    if client.over:
        raise Broken("L11", f"{client.state.owner} believes again in a grant that was over")


def result(client: Client, ended: e.Result) -> None:
    """Check what the owner is told against what happened (L5, L6)."""
    state = client.state
    match ended:
        case e.Released() if state.phase in (Phase.RELEASING, Phase.AFTERMATH):
            if not client.released:
                raise Broken("L6", "Released was said, and no release has landed")
        case e.Lost() if state.phase is Phase.AFTERMATH and client.released:
            raise Broken("L6", "a release that had landed was called a loss")
        case e.NotAcquired(e.Why.HELD | e.Why.RACED, holder) if holder is not None:
            if holder.written_by(state.owner):
                raise Broken("L5", f"{state.owner} was told that {short(holder)} is another's")
        case _:
            pass


def granted(log: Sequence[Landing], mine: int | None, *, ceiling: int, orderly: bool) -> None:
    """Check a grant at the moment its owner is told (L1, L5).

    `mine` is its place among the landed grant writes that somebody still waits for. `orderly`: no
    operator meddled, so grants are also believed in the order in which they landed.
    """
    if mine is None:
        raise Broken("L5", "Granted was said of a write that nobody saw landing")
    token = log[mine].token
    for place, other in enumerate(log):
        if not other.granted:
            continue
        if (other.token >= token) if place < mine else (other.token <= token):
            raise Broken("L1", f"token {token} was granted out of order beside {other.token}")
        if place > mine and orderly:
            raise Broken("L1", f"token {token} was believed after {other.token}")
    if token > ceiling:
        raise Broken("L1", f"token {token} is above the durable ceiling {ceiling}")


def there(lock: Stored | None, version: str) -> None:
    """Check that what an owner was told to hold is what the store holds (L5)."""
    if lock is None or lock.version != version:
        raise Broken("L5", "Granted or Renewed was said of a record that is not there")


def _role(asked: Asked) -> str:
    return asked.role.value if asked.role else "write"


def short(record: Record | None) -> str:
    """Return a record in a few words."""
    if record is None:
        return "nothing"
    until = "released" if record.expired else f"until {record.valid_until_epoch_ms}"
    return f"{record.owner} token {record.token}/{record.token_ceiling} {until}"
