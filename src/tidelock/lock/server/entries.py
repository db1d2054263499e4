"""Journal entries of the lock service, in a hash chain (V10). Pure.

Entry numbers only grow. They are the cursor of event streams and, where the backend has no token of
its own, the fencing token of a grant.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidelock.core.errors import DataCorrupt

FORMAT = 1
NO_HASH = "0" * 64


class KeepAliveMode(Enum):
    """How a grant is kept alive."""

    TIMED = "timed"
    """Expires after its TTL, unless the client renews it."""
    AUTO_RENEWED = "kept"
    """Renewed by the service while the application is healthy."""
    STREAM = "stream"
    """Held while the stream of the client is open."""


class EndReason(Enum):
    """How a grant ended."""

    RELEASED = "released"
    EXPIRED = "expired"
    DISCONNECTED = "disconnected"
    FORCED = "forced"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class JournalOpened:
    """An instance of the service took over; every grant remains valid for one TTL from here."""

    instance: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LockGranted:
    """A lock was granted. Its token is larger than all previous ones of the resource (L1)."""

    key: str
    lock_id: str
    token: int
    principal: str
    owner: str
    ttl_ms: int
    mode: KeepAliveMode
    linger_ms: int = 0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class TtlChanged:
    """A renewal changed the TTL of a grant."""

    key: str
    lock_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class GrantEnded:
    """A grant ended; `by` is the principal that ended it, "" for the service itself."""

    key: str
    lock_id: str
    token: int
    how: EndReason
    by: str = ""
    cause: str = ""


Decision = JournalOpened | LockGranted | TtlChanged | GrantEnded
_KINDS: dict[str, type[Decision]] = {
    "opened": JournalOpened,
    "granted": LockGranted,
    "retimed": TtlChanged,
    "ended": GrantEnded,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A decision with its number, its time and its hash."""

    number: int
    at_epoch_ms: int
    decision: Decision
    hash: str


def kind_name(decision: Decision) -> str:
    """Return the kind of a decision as written in the journal."""
    return _NAMES[type(decision)]


def chained(number: int, at_epoch_ms: int, decision: Decision, previous_hash: str) -> JournalEntry:
    """Return the entry that follows the one with `previous_hash`."""
    text = _canonical(number, at_epoch_ms, decision)
    digest = hashlib.sha256(f"{previous_hash}\n{text}".encode()).hexdigest()
    return JournalEntry(number, at_epoch_ms, decision, digest)


def entry_fields(entry: JournalEntry) -> dict[str, Any]:
    return {
        "n": entry.number,
        "at": entry.at_epoch_ms,
        **_decision_fields(entry.decision),
        "hash": entry.hash,
    }


def entry_of(fields: object) -> JournalEntry:
    """Return the entry in JSON fields, or raise `DataCorrupt`."""
    if not isinstance(fields, dict):
        raise DataCorrupt("journal entry: expected a JSON object")
    rest = dict(fields)
    try:
        number, at, digest = rest.pop("n"), rest.pop("at"), rest.pop("hash")
        kind = _KINDS[rest.pop("kind")]
        if kind is LockGranted:
            rest["mode"] = KeepAliveMode(rest["mode"])
        if kind is GrantEnded:
            rest["how"] = EndReason(rest["how"])
        decision = kind(**rest)
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(f"journal entry: {error!r}") from error
    if not isinstance(number, int) or not isinstance(at, int) or not isinstance(digest, str):
        raise DataCorrupt("journal entry: expected a number, a time and a hash")
    return JournalEntry(number, at, decision, digest)


def follows(entry: JournalEntry, previous_number: int, previous_hash: str) -> bool:
    """Return whether `entry` is the unaltered successor in the chain."""
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
