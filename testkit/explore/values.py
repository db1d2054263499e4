"""The parts of a world: objects, requests in flight, clients. Plain values.

A world is a tuple of small numbers, each the number of a part in its `PartTable`. Parts repeat far
more often than worlds, so the effect of a step on a part is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from tidelock.lock import events as e
from tidelock.lock.record import LockRecord, TokenCounter
from tidelock.lock.state import LockClientState
from tidelock.storage.contract import PutReply


class Role(Enum):
    """The purpose of a write, derived by the checker from the phase that sent it."""

    GRANT = "grant"
    RENEWAL = "renewal"
    RELEASE = "release"
    RANGE = "token range"


@dataclass(frozen=True, slots=True)
class Stored:
    """The lock object. Its version is the nonce (P3); without a record it is unreadable."""

    version: str
    record: LockRecord | None


@dataclass(frozen=True, slots=True)
class StoredCounter:
    """The token counter."""

    version: str
    counter: TokenCounter


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request on its way to the store."""

    request: e.Request
    role: Role | None = None
    sent_epoch_ms: int = 0


@dataclass(frozen=True, slots=True)
class PendingReply:
    """The reply of the store, on its way back."""

    answer: PutReply | e.ReadReply


@dataclass(frozen=True, slots=True)
class LateWrite:
    """A write whose sender no longer waits for it. It may land at any later time, or never (F6)."""

    owner: int
    sent: SentRequest


@dataclass(frozen=True, slots=True)
class Client:
    """One client, its request in flight, and the data of the checker.

    `sent_ms` is when its last grant or renewal was sent, `basis_ms` when the last one known to have
    landed was sent. `ended`: nothing may extend this grant. `notified`: the owner was notified of
    the loss. `released`: a release of this grant landed. `token` is the granted token.
    """

    state: LockClientState
    left: int
    skew_ms: int = 0
    in_flight: SentRequest | PendingReply | None = None
    sent_ms: int = 0
    basis_ms: int = 0
    ended: bool = False
    notified: bool = False
    released: bool = False
    token: int = 0


@dataclass(frozen=True, slots=True)
class Landing:
    """A landed grant write; `granted` once it was reported to its owner (L1)."""

    owner: int
    nonce: str
    token: int
    granted: bool = False


Part = TypeVar("Part", bound=Hashable)

WRITERS = ("A", "B", "C", "J", "O")
"""Clients, a Java writer and an operator: all writers of versions."""

NONCES_MAX = 24
_NONCE = re.compile(r"'([ABCJO]):(\d+)'")


class PartTable(Generic[Part]):
    """Numbers for parts (equal parts have the same number), and the nonces that they contain.

    A nonce that is in no part of a world is reused, so that worlds that differ only in the number
    of forgotten writes are equal.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._number: dict[Part, int] = {}
        self.parts: list[Part] = []
        self.mentions: list[int] = []

    def number(self, part: Part) -> int:
        """Return the number of `part`."""
        found = self._number.get(part)
        if found is None:
            found = self._number[part] = len(self.parts)
            self.parts.append(part)
            self.mentions.append(_mentioned(part))
        return found


def _mentioned(part: object) -> int:
    mask = 0
    for writer, count in _NONCE.findall(repr(part)):
        mask |= 1 << (WRITERS.index(writer) * NONCES_MAX + int(count))
    return mask


def free_nonce(mentions: int, writer: int) -> int:
    """Return the smallest n such that no part of the world contains the nonce `writer`:n."""
    taken = (mentions >> (writer * NONCES_MAX)) & ((1 << NONCES_MAX) - 1)
    taken |= 1
    count = (~taken & (taken + 1)).bit_length() - 1
    assert count < NONCES_MAX, "a world with too many live nonces: raise NONCES_MAX"
    return count
