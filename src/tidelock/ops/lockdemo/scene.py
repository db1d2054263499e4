"""What the audience knows so far: the journals folded into a picture. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelock.ops.lockdemo.journal import Did, Event

LOG_LINES_MAX = 200


@dataclass(slots=True)
class Writer:
    """One writer as seen from outside."""

    name: str
    pid: int
    now: str = "starting"
    token: int = 0
    grants: int = 0
    refused: int = 0
    handovers_ms: list[int] = field(default_factory=list)
    killed: bool = False
    stopped: bool = False


@dataclass(slots=True)
class Scene:
    """All writers, what happened, and what was done to them."""

    began_ms: int
    writers: dict[str, Writer] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    log: list[tuple[int, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    fenced_value: int = 0
    plain_value: int = 0
    _freed: tuple[int, str] | None = None

    def take(self, event: Event) -> None:
        """Add one event."""
        self.events.append(event)
        writer = self.writers[event.name]
        match event.did:
            case Did.GRANTED:
                writer.grants += 1
                writer.token = event.token
                writer.now = "holds the lock"
                self._hand_over(event, writer)
            case Did.BELIEVES:
                writer.now = "holds the lock"
            case Did.LOST:
                writer.now = "LOST, and knows it"
                self.tell(event.at_ms, f"{event.name} asks its lock: LOST", "yellow")
            case Did.REFUSED:
                writer.refused += 1
                says = (
                    f"{event.name} writes late with token {event.token}: REFUSED,"
                    f" the counter has seen {event.says}"
                )
                self.tell(event.at_ms, says, "bold green")
            case Did.RELEASING:
                self._freed = (event.at_ms, event.name)
            case Did.WAITING | Did.RELEASED:
                writer.now = "waits" if event.did is Did.WAITING else "pauses"
            case Did.FAILED:
                self.tell(event.at_ms, f"{event.name} met an error: {event.says}", "red")
            case Did.ENDED:
                writer.now = "done"
            case Did.WRITING | Did.WROTE | Did.WROTE_PLAIN:
                pass

    def tell(self, at_ms: int, says: str, style: str = "") -> None:
        """Add a line to the log."""
        self.log.append((at_ms - self.began_ms, says, style))
        del self.log[:-LOG_LINES_MAX]

    def latest(self, name: str) -> Event | None:
        """Return the last event of a writer."""
        return next((event for event in reversed(self.events) if event.name == name), None)

    def grants(self) -> list[Event]:
        """Return every grant so far, in the order in which they were read."""
        return [event for event in self.events if event.did is Did.GRANTED]

    def count(self, did: Did, name: str = "") -> int:
        """Return how often something was done, by everybody or by one writer."""
        return sum(e.did is did and name in ("", e.name) for e in self.events)

    def _hand_over(self, event: Event, writer: Writer) -> None:
        if self._freed is not None and self._freed[1] != event.name:
            writer.handovers_ms.append(max(0, event.at_ms - self._freed[0]))
        self._freed = None
