"""What happened in one schedule, as seen from outside the product: the checkers read this.

Nothing here is taken from the machine's own opinion of itself. When a write was sent, whether it
landed, which answer arrived: the simulator knows these first-hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelock.lock.events import Result
from tidelock.lock.record import Record
from tidelock.lock.state import Standing
from tidelock.store.contract import PutMode


@dataclass(slots=True)
class Holding:
    """One grant, from its owner's side. Times are true ones unless they say otherwise.

    `extended_*` is the sending of the last write that is known to have landed.
    """

    client: int
    owner: str
    token: int
    grant_seq: int
    granted_at: float
    extended_at: float
    extended_monotonic_ms: int
    told: bool = False
    ceased: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A write of the lock record left a client. `holding_*`: what the client held just then."""

    at: float
    client: int
    operation: str
    record: Record
    mode: PutMode
    monotonic_ms: int
    wall_epoch_ms: int
    holding_token: int
    holding_extended_monotonic_ms: int
    holding_told: bool
    holding_ceased: str


@dataclass(frozen=True, slots=True)
class Landing:
    """The lock record changed. `record` is None when it was deleted or is garbage.

    `replaced` is what was there, None for nothing or garbage; `sent` is None for other hands.
    """

    seq: int
    at: float
    by: str
    record: Record | None
    replaced: Record | None
    replaced_garbage: bool
    sent: Sent | None


@dataclass(frozen=True, slots=True)
class Ended:
    """An operation of a client ended with `result`.

    `proven`: the nonces whose landing was answered within this operation. `left_ms`: how long the
    holding still lasts by P9. `ghosts_*`: own live records met, and released.
    """

    at: float
    client: int
    owner: str
    operation: str
    result: Result
    token: int
    grant_seq: int
    left_ms: int
    ceased: str
    proven: tuple[str, ...]
    writes: int
    requests: int
    ghosts_met: int
    ghosts_returned: int
    last_seq: int
    waited_on_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Stood:
    """An owner asked where it stands, and was told that it may go on."""

    at: float
    client: int
    token: int
    standing: Standing
    left_ms: int
    extended_at: float
    rate: float
    told: bool


@dataclass(frozen=True, slots=True)
class Overlap:
    """A grant became known while another client still believed in its own."""

    at: float
    granted: int
    granted_seq: int
    believer: int
    believer_seq: int


@dataclass(frozen=True, slots=True)
class Watched:
    """The deadline of a holding was looked at, after it had passed."""

    at: float
    client: int
    token: int
    told: bool
    standing: Standing


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A client closed without trouble; this live record of its own was still there."""

    at: float
    client: int
    record: Record


@dataclass(slots=True)
class History:
    """Everything the checkers look at."""

    holdings: list[Holding] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    stood: list[Stood] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    left_behind: list[LeftBehind] = field(default_factory=list)
    landed_by_nonce: dict[str, Landing] = field(default_factory=dict)
    quiet_at: float | None = None
    won_at: float | None = None
    fenced_lost: int = 0
    broken: list[str] = field(default_factory=list)
