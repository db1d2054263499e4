"""What the protocol asks of the world: requests to the store, the time, a name, a pause.

A step of the protocol is a generator. It yields an effect, is sent the answer, and returns its
result; a request that fails raises at the `yield`. `perform` runs one over a real store, a
simulator runs the same one over a world of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.base.ids import IdSource
from tidelock.store.contract import ObjectMeta, ObjectStore, PutMode
from tidelock.table.timeline.archive import Archive


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object. Answer: `StoredObject | None`."""

    key: str


@dataclass(frozen=True, slots=True)
class Head:
    """Ask for an object's size, version and age. Answer: `ObjectMeta | None`."""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """Write an object under a condition. Answer: `PutReply`."""

    key: str
    body: bytes
    mode: PutMode


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an object. Answer: None."""

    key: str


@dataclass(frozen=True, slots=True)
class List:
    """List the objects below a prefix. Answer: `tuple[ObjectMeta, ...]`, in key order."""

    prefix: str
    start_after: str = ""


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read what was archived to `folder` and completed after a time.

    Answer: `tuple[ArchivedInstant, ...]`, by request time.
    """

    folder: str
    after: str


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Read both clocks. Answer: `Now`."""


@dataclass(frozen=True, slots=True)
class DrawName:
    """Draw a name that nobody else will draw. Answer: `str`."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait `most_ms`, or any part of it: half is fixed, half is drawn. Answer: None."""

    most_ms: float


@dataclass(frozen=True, slots=True)
class CheckHeld:
    """Make sure that the table's lock, where one is taken, is still held.

    Answer: its token as a number, None or 0 without one.

    Raises: `HoldingLost`.
    """


Effect = Get | Head | Put | Delete | List | ReadHistory | ReadClock | DrawName | Pause | CheckHeld

R = TypeVar("R")

Steps = Generator[Effect, Any, R]
"""A step of the protocol: what it yields is done, what it returns is its result."""


@dataclass(frozen=True, slots=True)
class World:
    """What carries effects out: a store, a clock, names, and the lock if there is one."""

    store: ObjectStore
    clock: Clock
    ids: IdSource

    def perform(self, steps: Steps[R], check_held: Callable[[], object] | None = None) -> R:
        """Run `steps` to their end and return their result."""
        answer: object = None
        problem: TidelockError | None = None
        while True:
            try:
                effect = steps.send(answer) if problem is None else steps.throw(problem)
            except StopIteration as end:
                result: R = end.value
                return result
            answer, problem = None, None
            try:
                answer = self._answer(effect, check_held)
            except TidelockError as error:
                problem = error

    def _answer(self, effect: Effect, check_held: Callable[[], object] | None) -> object:
        match effect:
            case Get(key):
                return self.store.get(key)
            case Put(key, body, mode):
                return self.store.put(key, body, mode)
            case Head(key):
                return self.store.head(key)
            case Delete(key):
                self.store.delete(key)
                return None
            case List(prefix, start_after):
                listed: tuple[ObjectMeta, ...] = tuple(
                    self.store.list(prefix, start_after=start_after)
                )
                return listed
            case ReadHistory(folder, after):
                return Archive(self.store, folder).instants(after=after)
            case ReadClock():
                return self.clock.now()
            case DrawName():
                return self.ids.uuid()
            case Pause(most_ms):
                self.clock.sleep_ms(most_ms * (0.5 + self.ids.jitter() / 2))
                return None
            case CheckHeld():
                return None if check_held is None else check_held()
            case _:
                assert_never(effect)
