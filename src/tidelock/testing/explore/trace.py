"""A world in one line, for people who read a counterexample."""

from __future__ import annotations

from tidelock.testing.explore.bounds import INSTANTS_MS
from tidelock.testing.explore.checks import short
from tidelock.testing.explore.values import Asked, Client, Stored
from tidelock.testing.explore.world import COUNTER, FIRST, LOCK, STRAYS, TIME, World, Worlds


def describe(worlds: Worlds, world: World) -> str:
    """Return the time, the lock object, the counter and the clients in one line."""
    counter = worlds.counters.parts[world[COUNTER]]
    parts = [
        f"{INSTANTS_MS[world[TIME]]:>4} ms",
        f"[{_stored(worlds.locks.parts[world[LOCK]])}]",
        f"counter {counter.counter.ceiling if counter else '-'}",
        *(_client(worlds.clients.parts[name]) for name in world[FIRST:]),
    ]
    strays = worlds.strays.parts[world[STRAYS]]
    if strays:
        parts.append(f"{len(strays)} late")
    return " | ".join(parts)


def _stored(stored: Stored | None) -> str:
    if stored is None:
        return "absent"
    return short(stored.record) if stored.record else "unreadable"


def _client(client: Client) -> str:
    skew = f"{client.skew_ms:+}" if client.skew_ms else ""
    sign = {Asked: ">", type(None): ""}.get(type(client.flight), "<")
    return f"{client.state.owner}{skew} {client.state.phase.name.lower()}{sign}"
