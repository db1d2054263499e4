"""What the audience knows so far: journals and ledger folded into a picture. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tidelock.lock.inspect import Inspection
from tidelock.ops.fleet.journal import Noted
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.record import Record
from tidelock.tableservice.overview import PendingService
from tidelock.txn.entry import Commit, Entry, Rollback, Undo

LOG_LINES_MAX: Final = 200
RATE_OVER_MS: Final = 10_000
TAIL_MAX: Final = 5


@dataclass(slots=True)
class Actor:
    """One program as seen from outside."""

    name: str
    role: Role
    pid: int
    now: str = "starting"
    killed: bool = False
    writing: bool = False


@dataclass(slots=True)
class Scene:
    """All programs, what they did, and what was done to them."""

    began_ms: int
    actors: dict[str, Actor] = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=TAIL_MAX))
    position: int = 0
    solved: int = 0
    decided: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    pending: tuple[PendingService, ...] = ()
    lock: Inspection | None = None
    log: list[tuple[int, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def take(self, noted: Noted) -> None:
        """Add what a program noted."""
        self.record.take(noted)
        actor, facts = self.actors[noted.name], noted.facts
        actor.writing = noted.did == "begins"
        match noted.did:
            case "begins":
                actor.now = f"step {facts['step']}"
            case "starts":
                actor.now = "begins"
            case "resumes":
                actor.now = f"resumes after step {facts['step']}"
                says = f"{noted.name} is back, and its table says: go on after step {facts['step']}"
                self.tell(noted.at_ms, says, "bold cyan")
            case "served":
                actor.now = f"{facts['service']}: {facts['done']} done"
            case "read":
                actor.now = f"{facts['rows']:,} rows"
            case "failed":
                self.tell(noted.at_ms, f"{noted.name} met an error: {facts['says']}", "red")
            case "ended":
                actor.now = "done"

    def read(self, entry: Entry) -> None:
        """Add an entry of the ledger."""
        self.entries.append(entry)
        self.position = entry.position
        match entry.fact:
            case Commit(instant, rebased=times):
                self.decided.add(instant)
                self.solved += times > 0
            case Rollback(instant):
                self.undone.add(instant)
            case Undo(instants=instants):
                self.undone.update(instants)
            case _:
                pass

    def tell(self, at_ms: int, says: str, style: str = "") -> None:
        """Add a line to the log."""
        self.log.append((at_ms - self.began_ms, says, style))
        del self.log[:-LOG_LINES_MAX]

    def rate(self, now_ms: int) -> float:
        """Return how many steps landed in a second, of late."""
        since_ms = max(self.began_ms, now_ms - RATE_OVER_MS)
        count = sum(at_ms >= since_ms for at_ms, _ in self.record.wrote_ms[-2_000:])
        return count * 1000 / max(1, now_ms - since_ms)
