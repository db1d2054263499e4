"""The store's side: what it does with a request, checked at the moment it takes effect."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.store.contract import Create, Match, PutMode, PutReply, Refused
from tidelock.testing.explore import checks
from tidelock.testing.explore.bounds import Bounds
from tidelock.testing.explore.checks import Broken
from tidelock.testing.explore.values import Asked, Client, Role, Stored, StoredCounter


@dataclass(frozen=True, slots=True)
class Served:
    """The objects after a request, and its true answer."""

    says: str
    answer: PutReply | e.Reading
    lock: Stored | None
    counter: StoredCounter | None


def serve(
    asked: Asked,
    lock: Stored | None,
    counter: StoredCounter | None,
    *,
    owner: str,
    bounds: Bounds,
) -> Served:
    """Return what becomes of the request `asked` by `owner`."""
    match asked.request:
        case e.ReadRecord():
            return Served("the record is read", _reading(lock), lock, counter)
        case e.ReadCounter():
            found = e.FoundCounter(counter.version, counter.counter) if counter else e.Absent()
            return Served("the counter is read", found, lock, counter)
        case e.WriteRecord(mode, record):
            assert asked.role is not None
            if not matches(mode, lock):
                return Served(f"the {asked.role.value} is refused", Refused(), lock, counter)
            says = f"the {asked.role.value} of token {record.token} lands"
            try:
                checks.landing(asked, lock, owner, bounds)
            except Broken as broken:
                broken.move = f"{owner}: {says}"
                raise
            return Served(says, Landed(record.nonce), Stored(record.nonce, record), counter)
        case e.WriteCounter(mode, value):
            if not matches(mode, counter):
                return Served("the token range is refused", Refused(), lock, counter)
            checks.counter_landing(counter, asked)
            says = f"the token range up to {value.ceiling} lands"
            return Served(says, Landed(value.nonce), lock, StoredCounter(value.nonce, value))


def can_land(asked: Asked, lock: Stored | None, counter: StoredCounter | None) -> bool:
    """Tell whether the write `asked` would take effect on these objects."""
    match asked.request:
        case e.WriteRecord(mode):
            return matches(mode, lock)
        case e.WriteCounter(mode):
            return matches(mode, counter)
        case _:
            return False


def matches(mode: PutMode, place: Stored | StoredCounter | None) -> bool:
    """Tell whether the condition of a write holds."""
    match mode:
        case Create():
            return place is None
        case Match(version):
            return place is not None and place.version == version
        case _:
            return True


def _reading(lock: Stored | None) -> e.Reading:
    if lock is None:
        return e.Absent()
    if lock.record is None:
        return e.Unreadable("not JSON")
    return e.Found(lock.version, lock.record)


def noting_release(client: Client, asked: Asked) -> Client:
    """Return the client with the checker's note that its grant was released, if this did (L6)."""
    grant, request = client.state.grant, asked.request
    if asked.role is not Role.RELEASE or grant is None or not isinstance(request, e.WriteRecord):
        return client
    if request.record.token != grant.record.token:
        return client
    return replace(client, released=True)
