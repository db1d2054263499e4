"""What the lock service decided, entry by entry, in a hash chain (V10). Pure.

Every entry has a number that only grows. It is the cursor of event streams and, where the backend
has no token of its own, the fencing token of a grant.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidelock.base.errors import DataCorrupt

FORMAT = 1
NO_HASH = "0" * 64


class Mode(Enum):
    """How a grant is kept alive."""

    TIMED = "timed"
    """Until its TTL is over, unless the client renews it."""
    KEPT = "kept"
    """By the service, for as long as the application is healthy."""
    STREAM = "stream"
    """By the stream that took it."""


class End(Enum):
    """How a grant ended."""

    RELEASED = "released"
    EXPIRED = "expired"
    DISCONNECTED = "disconnected"
    FORCED = "forced"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Opened:
    """An instance of the service took over; every grant lives on for one TTL from here."""

    instance: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Granted:
    """A lock was given. Its token is larger than any that the resource had before (L1)."""

    key: str
    lock_id: str
    token: int
    principal: str
    owner: str
    ttl_ms: int
    mode: Mode
    linger_ms: int = 0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Retimed:
    """A renewal changed the TTL of a grant."""

    key: str
    lock_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A grant is over; `by` is the principal whose doing it was, "" for the service itself."""

    key: str
    lock_id: str
    token: int
    how: End
    by: str = ""
    cause: str = ""


Decision = Opened | Granted | Retimed | Ended
_KINDS: dict[str, type[Decision]] = {
    "opened": Opened,
    "granted": Granted,
    "retimed": Retimed,
    "ended": Ended,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision with its number, its time and its place in the chain."""

    number: int
    at_epoch_ms: int
    decision: Decision
    hash: str


def chained(number: int, at_epoch_ms: int, decision: Decision, previous_hash: str) -> Entry:
    """Return the entry that follows the one with `previous_hash`."""
    text = _canonical(number, at_epoch_ms, decision)
    digest = hashlib.sha256(f"{previous_hash}\n{text}".encode()).hexdigest()
    return Entry(number, at_epoch_ms, decision, digest)


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON fields."""
    return {
        "n": entry.number,
        "at": entry.at_epoch_ms,
        **_decision_fields(entry.decision),
        "hash": entry.hash,
    }


def entry_of(fields: object) -> Entry:
    """Return the entry in JSON fields, or raise `DataCorrupt`."""
    if not isinstance(fields, dict):
        raise DataCorrupt("a journal entry is not an object")
    rest = dict(fields)
    try:
        number, at, digest = rest.pop("n"), rest.pop("at"), rest.pop("hash")
        kind = _KINDS[rest.pop("kind")]
        if kind is Granted:
            rest["mode"] = Mode(rest["mode"])
        if kind is Ended:
            rest["how"] = End(rest["how"])
        decision = kind(**rest)
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(f"a journal entry cannot be read: {error!r}") from error
    if not isinstance(number, int) or not isinstance(at, int) or not isinstance(digest, str):
        raise DataCorrupt("a journal entry has no number, time or hash")
    return Entry(number, at, decision, digest)


def follows(entry: Entry, previous_number: int, previous_hash: str) -> bool:
    """Tell whether `entry` is the next one in the chain, unaltered."""
    expected = chained(entry.number, entry.at_epoch_ms, entry.decision, previous_hash)
    return entry.number == previous_number + 1 and expected.hash == entry.hash


def _decision_fields(decision: Decision) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": _NAMES[type(decision)]}
    for name in decision.__slots__:
        value = getattr(decision, name)
        fields[name] = value.value if isinstance(value, Enum) else value
    return fields


def _canonical(number: int, at_epoch_ms: int, decision: Decision) -> str:
    fields = {"n": number, "at": at_epoch_ms, **_decision_fields(decision)}
    return _ENCODER.encode(fields)


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
