"""The parts a world is made of: objects, requests on their way, clients. Plain values.

A world is a tuple of small numbers, each the name of one such part in its `Names`. Parts repeat
far more often than worlds do, so what a step does to a part is worked out once.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from tidelock.lock import events as e
from tidelock.lock.record import Counter, Record
from tidelock.lock.state import State
from tidelock.store.contract import PutReply


class Role(Enum):
    """What a write of the record is for. The checker's own view, from the phase that sent it."""

    GRANT = "grant"
    RENEWAL = "renewal"
    RELEASE = "release"
    RANGE = "token range"


@dataclass(frozen=True, slots=True)
class Stored:
    """The lock object. Its version is the nonce of its bytes (P3); no record: it is spoiled."""

    version: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class StoredCounter:
    """The token counter."""

    version: str
    counter: Counter


@dataclass(frozen=True, slots=True)
class Asked:
    """A request on its way to the store."""

    request: e.Request
    role: Role | None = None
    sent_epoch_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """The store has acted; its answer is on its way back."""

    answer: PutReply | e.Reading


@dataclass(frozen=True, slots=True)
class Stray:
    """A write whose sender has given up on it. It may land at any later time, or never (F6)."""

    owner: int
    asked: Asked


@dataclass(frozen=True, slots=True)
class Client:
    """One client, its request under way, and what the checker remembers about it.

    `sent_ms` is when its last grant or renewal was sent, `basis_ms` when the last one known to
    have landed was. `over`: nothing may extend this grant any more. `told`: the owner heard of the
    loss. `released`: a release of this grant did land. `token` is what the owner was given.
    """

    state: State
    left: int
    skew_ms: int = 0
    flight: Asked | Answered | None = None
    sent_ms: int = 0
    basis_ms: int = 0
    over: bool = False
    told: bool = False
    released: bool = False
    token: int = 0


@dataclass(frozen=True, slots=True)
class Landing:
    """A grant's write in the order of landing; `granted` once its owner believes it (L1)."""

    owner: int
    nonce: str
    token: int
    granted: bool = False


Part = TypeVar("Part", bound=Hashable)

WRITERS = ("A", "B", "C", "J", "O")
"""Clients, a Java writer and an operator: whoever makes versions."""

NONCES_MAX = 24
_NONCE = re.compile(r"'([ABCJO]):(\d+)'")


class Names(Generic[Part]):
    """Numbers for parts, the same number for equal parts; and which nonces each part mentions.

    A nonce that no part of a world mentions any more is given out again, so that worlds which
    differ only in how many writes are long forgotten are one world.
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
    """Return the smallest n so that no part of the world mentions the nonce `writer`:n."""
    taken = (mentions >> (writer * NONCES_MAX)) & ((1 << NONCES_MAX) - 1)
    taken |= 1
    count = (~taken & (taken + 1)).bit_length() - 1
    assert count < NONCES_MAX, "a world with too many live nonces: raise NONCES_MAX"
    return count
