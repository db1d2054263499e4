"""The history of one schedule, as observed by the simulator; input of the checkers.

It does not use the state of the machine: the simulator itself knows when a write was sent, whether
it landed, and which reply arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelock.lock.events import Result
from tidelock.lock.record import LockRecord
from tidelock.lock.state import Standing
from tidelock.storage.contract import PutMode


@dataclass(slots=True)
class Holding:
    """One grant, from the owner's view. Times are true times unless named otherwise.

    `extended_*` is the sending of the last write known to have landed.
    """

    client: int
    owner: str
    token: int
    grant_seq: int
    granted_at: float
    extended_at: float
    extended_monotonic_ms: int
    notified: bool = False
    ended_by: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A client sent a write of the lock record. `holding_*`: the client's holding at that time."""

    at: float
    client: int
    operation: str
    record: LockRecord
    mode: PutMode
    monotonic_ms: int
    wall_epoch_ms: int
    holding_token: int
    holding_extended_monotonic_ms: int
    holding_notified: bool
    holding_ended_by: str


@dataclass(frozen=True, slots=True)
class Landing:
    """The lock record changed. `record` is None when it was deleted or is garbage.

    `replaced` is the previous record, None if absent or garbage; `sent` is None for other writers.
    """

    seq: int
    at: float
    by: str
    record: LockRecord | None
    replaced: LockRecord | None
    replaced_garbage: bool
    sent: Sent | None


@dataclass(frozen=True, slots=True)
class OperationEnd:
    """An operation of a client ended with `result`.

    `proven`: the nonces whose landing was confirmed within this operation. `left_ms`: the time left
    of the holding by P9. `ghosts_*`: own live records found, and released.
    """

    at: float
    client: int
    owner: str
    operation: str
    result: Result
    token: int
    grant_seq: int
    left_ms: int
    ended_by: str
    proven: tuple[str, ...]
    writes: int
    requests: int
    ghosts_found: int
    ghosts_returned: int
    last_seq: int
    waited_on_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class StandingCheck:
    """An owner checked its lock, and it was HELD or UNSURE."""

    at: float
    client: int
    token: int
    standing: Standing
    left_ms: int
    extended_at: float
    rate: float
    notified: bool


@dataclass(frozen=True, slots=True)
class Overlap:
    """A grant became known while another client believed it held the lock."""

    at: float
    granted: int
    granted_seq: int
    believer: int
    believer_seq: int


@dataclass(frozen=True, slots=True)
class DeadlineCheck:
    """The deadline of a holding was checked after it had passed."""

    at: float
    client: int
    token: int
    notified: bool
    standing: Standing


@dataclass(frozen=True, slots=True)
class LeftoverRecord:
    """A client closed without faults and left this live record of its own."""

    at: float
    client: int
    record: LockRecord


@dataclass(slots=True)
class History:
    """The input of the checkers."""

    holdings: list[Holding] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)
    operations: list[OperationEnd] = field(default_factory=list)
    standing_checks: list[StandingCheck] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    deadline_checks: list[DeadlineCheck] = field(default_factory=list)
    leftovers: list[LeftoverRecord] = field(default_factory=list)
    landed_by_nonce: dict[str, Landing] = field(default_factory=dict)
    quiet_at: float | None = None
    won_at: float | None = None
    fenced_lost: int = 0
    broken: list[str] = field(default_factory=list)
