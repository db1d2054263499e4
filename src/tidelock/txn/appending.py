"""Appending to the ledger: the create-if-absent that decides everything (C8-C15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from tidelock.base.clock import Now
from tidelock.base.errors import TidelockError, Unavailable
from tidelock.base.outcome import Landed, Unknown
from tidelock.store.contract import Busy, Create, PutReply, Refused, StoredObject, Unclear
from tidelock.txn.effects import CheckHeld, Delete, DrawName, Get, Pause, Put, ReadClock, Steps
from tidelock.txn.entry import (
    Adopt,
    Commit,
    Entry,
    Fact,
    Foreign,
    Plan,
    Rollback,
    Undo,
    encode,
    entry_key,
)
from tidelock.txn.fold import later
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.reading import catch_up, decoded, load, look_at_checkpoint
from tidelock.txn.view import View

D = TypeVar("D")

_UNCLEAR_MAX: Final = 6
_PAUSE_MS: Final = 50.0
_JITTER_MS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Appended:
    """The fact stands, as this entry."""

    view: View
    entry: Entry


@dataclass(frozen=True, slots=True)
class Declined(Generic[D]):
    """Judged against what others appended, the fact was not appended."""

    view: View
    why: D


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Nobody can tell yet whether the fact stands as entry `position`."""

    view: View
    position: int
    outcome: Unknown


@dataclass(frozen=True, slots=True)
class No(Generic[D]):
    """What a proposer answers when it does not want to append any more."""

    why: D


Proposer: TypeAlias = Callable[[View], Fact | No[D]]
"""Looks at the ledger as it is and says what to append, or why nothing (pure)."""


def append(
    view: View, propose: Proposer[D], *, owner: str, crowded: bool = False
) -> Steps[Appended | Declined[D] | Doubtful]:
    """Append what `propose` says, judged against every entry below it.

    Where it is `crowded`, what others have appended is read first: to be refused costs more.

    Guarantees: `Appended` and `Declined` are certain. `Doubtful` is not: nothing may be cleaned up
    until the entry has been read.
    """
    nonce: str = yield DrawName()
    losses = 0
    # Entries that are read on the way may lie behind the boundary, so a view with them is handed
    # on only once that is excluded.
    trusted = view
    if crowded:
        view = yield from catch_up(view)
    while True:
        fact = propose(view)
        if isinstance(fact, No):
            try:
                anew = yield from _read_anew(view, trusted)
            except TidelockError as error:
                unknown = Unknown(f"the boundary is not known: {error}")
                return Doubtful(trusted, trusted.position + 1, unknown)
            if anew is None:
                return Declined(view, fact.why)
            view = trusted = anew
            continue
        time = yield from _time(view, fact, nonce)
        entry = Entry(
            position=view.position + 1,
            time=time,
            owner=owner,
            nonce=nonce,
            before=view.fold.nonce,
            published=view.published,
            fact=fact,
        )
        yield CheckHeld()
        came = yield from _create(entry)
        if isinstance(came, Unknown):
            # It may land yet, so a plan's time stays reserved: a write must not take it (C63).
            return Doubtful(trusted, entry.position, came)
        if isinstance(fact, Plan | Undo) and (came is None or came.nonce != nonce):
            yield from give_name_back(time, nonce)
        try:
            settled = yield from _settled(view, entry, came, read_on=not (crowded or losses))
        except TidelockError as error:
            # It may have landed and lie behind the boundary by now: only the ledger can tell.
            return Doubtful(trusted, entry.position, Unknown(f"it was not looked up: {error}"))
        if isinstance(settled, Appended):
            return settled
        view = settled.view
        if settled.anew:
            trusted = view
            continue
        losses += 1
        if losses > 1:
            yield Pause(_JITTER_MS)


@dataclass(frozen=True, slots=True)
class _Again:
    """Somebody else has the number: judge again on this view, which may be read all `anew`."""

    view: View
    anew: bool


def _settled(
    view: View, entry: Entry, came: Entry | None, *, read_on: bool
) -> Steps[Appended | _Again]:
    """Say what became of `entry`, when `came` was found under its name.

    With `read_on` it is long since the ledger was read, and many entries may have come. Otherwise
    the next try tells as well as a read whether there is one more (C8).
    """
    if came is None or (came.nonce != entry.nonce and not view.fold.precedes(came)):
        # C12: refused, yet nothing is there, or nothing that belongs: this process was left behind
        # the boundary.
        return _Again((yield from load()), anew=True)
    if came.nonce != entry.nonce:
        view = view.after(came)
        return _Again((yield from catch_up(view)) if read_on else view, anew=False)
    # C14: a name that was deleted can be created again. Behind the boundary it is void.
    view = yield from look_at_checkpoint(view)
    if view.boundary >= entry.position:
        # Nobody reads below the boundary, but the fewer ghosts lie there the better.
        yield Delete(entry_key(entry.position))
        return _Again((yield from load()), anew=True)
    return Appended(view.after(entry), entry)


def _read_anew(view: View, trusted: View) -> Steps[View | None]:
    """Return the ledger read again if entries above `trusted` may lie behind the boundary (C27).

    None if there is no doubt about them.
    """
    if view is trusted:
        return None
    view = yield from look_at_checkpoint(view)
    return (yield from load()) if view.boundary > trusted.position else None


def _time(view: View, fact: Fact, nonce: str) -> Steps[str]:
    """Return the entry's time (C4). A plan's is a request time, so it must be nobody else's."""
    now: Now = yield ReadClock()
    time = view.fold.next_time(now.wall_epoch_ms, above=max(_floor(fact), view.planned))
    while isinstance(fact, Plan | Undo):
        if view.fold.is_settled(time):
            time = later(0, time)
            continue
        reply: PutReply = yield Put(heartbeat_key(time), nonce.encode(), Create())
        if isinstance(reply, Landed):
            break
        if isinstance(reply, Busy):
            yield Pause(_PAUSE_MS)
        time = later(0, time)
    return time


def give_name_back(time: str, nonce: str) -> Steps[None]:
    """Delete the heartbeat that reserved a plan's time, unless an executor has taken it since."""
    found: StoredObject | None = yield Get(heartbeat_key(time))
    if found is not None and found.body == nonce.encode():
        yield Delete(heartbeat_key(time))


def _floor(fact: Fact) -> str:
    """Return the time that the entry's must exceed: a decision is later than the request (C44)."""
    match fact:
        case Commit(instant=instant) | Rollback(instant=instant) | Adopt(instant=instant):
            return instant
        case Foreign(completion=completion):
            return completion
        case Undo(instants=instants):
            return max(instants, default="")
        case _:
            return ""


def _create(entry: Entry) -> Steps[Entry | Unknown | None]:
    """Create the entry's object; return the entry that is there, ours or another's.

    None means that the name was refused and nothing is there.
    """
    key, body = entry_key(entry.position), encode(entry)
    unclear: list[str] = []
    cause = ""
    for attempt in range(_UNCLEAR_MAX):
        refused = ""
        try:
            reply: PutReply = yield Put(key, body, Create())
            match reply:
                case Landed():
                    return entry
                case Busy(cause=cause):
                    yield Pause(_PAUSE_MS * 2**attempt)
                    continue
                case Unclear(cause, volatile=True):
                    return Unknown(cause)
                case Unclear(cause):
                    unclear.append(cause)
                case Refused():
                    # A hop may have turned our own success into this answer.
                    refused = "refused"
            found: StoredObject | None = yield Get(key)
        except TidelockError as error:
            if not unclear and not refused:
                raise
            return Unknown(f"{refused or unclear[-1]}; then: {error}")
        if found is not None:
            return entry if found.body == body else decoded(found.body, entry.position)
        if not unclear:
            return None
        # Our bytes are not there and nobody else's are: the same write may be sent again.
        yield Pause(_PAUSE_MS * 2**attempt)
    if unclear:
        return Unknown(unclear[-1])
    raise Unavailable(f"{key} was not written: {cause}", hint="try again later")
