"""One-line descriptions of worlds, for counterexamples."""

from __future__ import annotations

from testkit.explore.bounds import INSTANTS_MS
from testkit.explore.checks import short
from testkit.explore.values import Client, SentRequest, Stored
from testkit.explore.world import COUNTER, FIRST, LATE_WRITES, LOCK, TIME, World, Worlds


def describe(worlds: Worlds, world: World) -> str:
    """Return the time, the lock object, the counter and the clients in one line."""
    counter = worlds.counters.parts[world[COUNTER]]
    parts = [
        f"{INSTANTS_MS[world[TIME]]:>4} ms",
        f"[{_stored(worlds.locks.parts[world[LOCK]])}]",
        f"counter {counter.counter.ceiling if counter else '-'}",
        *(_client(worlds.clients.parts[name]) for name in world[FIRST:]),
    ]
    late_writes = worlds.late_writes.parts[world[LATE_WRITES]]
    if late_writes:
        parts.append(f"{len(late_writes)} late")
    return " | ".join(parts)


def _stored(stored: Stored | None) -> str:
    if stored is None:
        return "absent"
    return short(stored.record) if stored.record else "unreadable"


def _client(client: Client) -> str:
    skew = f"{client.skew_ms:+}" if client.skew_ms else ""
    sign = {SentRequest: ">", type(None): ""}.get(type(client.in_flight), "<")
    return f"{client.state.owner}{skew} {client.state.phase.name.lower()}{sign}"
