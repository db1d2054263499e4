"""The store: performs a request, and checks it when it takes effect."""

from __future__ import annotations

from dataclasses import dataclass, replace

from testkit.explore import checks
from testkit.explore.bounds import Bounds
from testkit.explore.checks import CheckFailed
from testkit.explore.values import Client, Role, SentRequest, Stored, StoredCounter
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.storage.contract import Create, Match, PutMode, PutReply, Refused


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """The objects after a request, and its reply."""

    description: str
    answer: PutReply | e.ReadReply
    lock: Stored | None
    counter: StoredCounter | None


def serve(
    sent: SentRequest,
    lock: Stored | None,
    counter: StoredCounter | None,
    *,
    owner: str,
    bounds: Bounds,
) -> ServedRequest:
    """Perform the request `sent` by `owner`."""
    match sent.request:
        case e.ReadRecord():
            return ServedRequest("the record is read", _read_reply(lock), lock, counter)
        case e.ReadCounter():
            found = e.FoundCounter(counter.version, counter.counter) if counter else e.Absent()
            return ServedRequest("the counter is read", found, lock, counter)
        case e.WriteRecord(mode, record):
            assert sent.role is not None
            if not matches(mode, lock):
                return ServedRequest(f"the {sent.role.value} is refused", Refused(), lock, counter)
            description = f"the {sent.role.value} of token {record.token} lands"
            try:
                checks.landing(sent, lock, owner, bounds)
            except CheckFailed as failure:
                failure.move = f"{owner}: {description}"
                raise
            return ServedRequest(
                description, Landed(record.nonce), Stored(record.nonce, record), counter
            )
        case e.WriteCounter(mode, value):
            if not matches(mode, counter):
                return ServedRequest("the token range is refused", Refused(), lock, counter)
            checks.counter_landing(counter, sent)
            description = f"the token range up to {value.ceiling} lands"
            return ServedRequest(
                description, Landed(value.nonce), lock, StoredCounter(value.nonce, value)
            )


def can_land(sent: SentRequest, lock: Stored | None, counter: StoredCounter | None) -> bool:
    """Return whether the write `sent` would take effect on these objects."""
    match sent.request:
        case e.WriteRecord(mode):
            return matches(mode, lock)
        case e.WriteCounter(mode):
            return matches(mode, counter)
        case _:
            return False


def matches(mode: PutMode, stored: Stored | StoredCounter | None) -> bool:
    """Return whether the condition of a write holds."""
    match mode:
        case Create():
            return stored is None
        case Match(version):
            return stored is not None and stored.version == version
        case _:
            return True


def _read_reply(lock: Stored | None) -> e.ReadReply:
    if lock is None:
        return e.Absent()
    if lock.record is None:
        return e.Unreadable("not JSON")
    return e.Found(lock.version, lock.record)


def with_release(client: Client, sent: SentRequest) -> Client:
    """Return the client with `released` set, if this write released its grant (L6)."""
    grant, request = client.state.grant, sent.request
    if sent.role is not Role.RELEASE or grant is None or not isinstance(request, e.WriteRecord):
        return client
    if request.record.token != grant.record.token:
        return client
    return replace(client, released=True)
