"""Beginning a write: a time that nobody else has, and the files that announce it (C43-C46)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelock.base.clock import Now
from tidelock.base.errors import Unavailable
from tidelock.base.outcome import Landed
from tidelock.store.contract import (
    Busy,
    Create,
    ObjectMeta,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.txn import heartbeat as heartbeats
from tidelock.txn.effects import (
    CheckHeld,
    Delete,
    DrawName,
    Get,
    Head,
    Pause,
    Put,
    ReadClock,
    Steps,
)
from tidelock.txn.entry import Rollback
from tidelock.txn.fold import Evidence, later
from tidelock.txn.heartbeat import Heartbeat, heartbeat_key
from tidelock.txn.reading import forward
from tidelock.txn.undoing import decide
from tidelock.txn.view import View

_TIMES_MAX: Final = 1_000
_TRIES: Final = 6
_PAUSE_MS: Final = 50.0
_ATTEMPT_MAX: Final = 10**9
_AHEAD_MS_MAX: Final = 250
"""How far ahead of the clock a request time may be taken. So far the ledger's time may run, too."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An instant that belongs to the caller, and its heartbeat with the version it has."""

    instant: Instant
    attempt: int
    heartbeat: Heartbeat
    version: str
    view: View
    ahead_ms: int = 0


@dataclass(frozen=True, slots=True)
class Announcement:
    """What to begin: the action, what its first two files hold, and who begins it."""

    action: Action
    requested: bytes
    inflight: bytes
    beat: Heartbeat
    folder: str
    skew_ms: int = 0
    ahead_ms: int = 0


def begin(view: View, what: Announcement, *, above: str = "") -> Steps[Begun]:
    """Take a request time later than everything in the ledger and announce the write.

    Where others commit all the time, a time that is not ahead of the clock is overtaken by their
    entries before it is announced. `ahead_ms` is how far ahead it was taken the last time.

    C43: everything that the writer has read completed before that time, so a version of a file
    group that is made from it comes after those it was made from.
    """
    now: Now = yield ReadClock()
    nonce: str = yield DrawName()
    # C45: the attempt goes into every file's name, so that not even a write that was given the
    # same time by a fault could touch this one's files.
    attempt = int(nonce.replace("-", "")[:12], 16) % _ATTEMPT_MAX + 1
    beat = heartbeats.stamped(what.beat, nonce, attempt, now.wall_epoch_ms)
    body = heartbeats.encode(beat)
    ahead_ms = what.ahead_ms
    drawn = attempt % 1_000 / 1_000
    early = now.wall_epoch_ms + int(ahead_ms * (1 + drawn) / 2)
    time = later(early, view.fold.time, view.fold.archived, view.planned, above)
    for tries in range(_TIMES_MAX):
        yield CheckHeld()
        if what.skew_ms:
            yield Pause(2.0 * what.skew_ms)
        version = yield from _create(heartbeat_key(time), body, Create(lasting=False))
        if version is not None:
            # C44: whoever had this time before has left an entry later than it by now.
            known = view.position
            view = yield from forward(view)
            instant = Instant(time, what.action, State.REQUESTED)
            free = time > view.fold.time and not view.fold.is_settled(time)
            announced = free and (yield from _announce(instant, what))
            if announced:
                if not (yield from _is_late(instant, beat, now)):
                    # Alone, the clock is as good a time as any; among others it is not for long.
                    calm = not tries and view.position == known
                    ahead_ms -= ahead_ms // (2 if calm else 8)
                    return Begun(instant.started(), attempt, beat, version, view, ahead_ms)
                # A request whose answer was lost may land after these are deleted. The entry says
                # that it is no Java writer's, which nobody could tell from an empty file.
                fact = Rollback(time, "its heartbeat was gone before it was announced")
                own = Evidence(own=frozenset({time}))
                view = (yield from decide(view, fact, seen=own, owner=beat.owner)).view
                for state in (instant.started(), instant):
                    yield Delete(f"{what.folder}/{state.file_name}")
            # A request that is there may be ours, its answer lost. Its heartbeat says that it is no
            # Java writer's, and recovery rolls it back when that is old.
            if announced or not free:
                yield Delete(heartbeat_key(time))
        began_ms, now = now.monotonic_ms, (yield ReadClock())
        ahead_ms = min(_AHEAD_MS_MAX, max(ahead_ms, 2 * int(now.monotonic_ms - began_ms)))
        early = 0 if what.skew_ms else now.wall_epoch_ms + int(ahead_ms * (1 + drawn) / 2)
        time = later(early, time, view.fold.time)
    raise Unavailable(f"no request time was free after {_TIMES_MAX} tries", hint="try again")


def _is_late(instant: Instant, beat: Heartbeat, began: Now) -> Steps[bool]:
    """Tell whether others gave up the time while its owner slept, before it was announced.

    The archive looks at the timeline and at heartbeats; when both were missing, it may have moved
    its boundary past this time.
    """
    now: Now = yield ReadClock()
    if now.monotonic_ms - began.monotonic_ms < beat.interval_ms:
        return False
    found: StoredObject | None = yield Get(heartbeat_key(instant.requested))
    return found is None or found.body != heartbeats.encode(beat)


def _announce(instant: Instant, what: Announcement) -> Steps[bool]:
    """Write the first two files; False if the time was used by an earlier write.

    The files are mostly empty, so one that may or may not be ours is left to be rolled back.
    """
    first = yield from _create(f"{what.folder}/{instant.file_name}", what.requested, known=False)
    if first is None:
        return False
    yield from _create(f"{what.folder}/{instant.started().file_name}", what.inflight)
    return True


def _create(
    key: str, body: bytes, mode: Create | None = None, *, known: bool = True
) -> Steps[str | None]:
    """Create an object and return its version; None if somebody else's is there.

    `known` says that the same bytes there are ours. Raises: `Unavailable`.
    """
    cause = ""
    for attempt in range(_TRIES):
        reply: PutReply = yield Put(key, body, mode or Create())
        match reply:
            case Landed(version):
                return version
            case Busy(cause=cause):
                pass
            case Refused() | Unclear() if not known:
                head: ObjectMeta | None = yield Head(key)
                if head is not None:
                    return None
            case Refused() | Unclear():
                found: StoredObject | None = yield Get(key)
                if found is not None:
                    return found.version if found.body == body else None
        yield Pause(_PAUSE_MS * 2**attempt)
    raise Unavailable(f"{key} was not written: {cause}", hint="try again later")
