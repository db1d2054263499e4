"""Effects of the transaction protocol: store requests, clock reads, unique names, pauses.

A protocol step is a generator. It yields an effect, receives the answer, and returns its result; a
failed request raises at the `yield`. `EffectRunner.perform` runs a step against a real store. A
simulator runs the same step against a simulated world.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.core.ids import IdSource
from tidelock.hudi.timeline.history import Archive
from tidelock.storage.contract import ObjectStore, PutMode


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object. Answer: `StoredObject | None`."""

    key: str


@dataclass(frozen=True, slots=True)
class Head:
    """Read an object's size, version and age. Answer: `ObjectMeta | None`."""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """Write an object conditionally. Answer: `PutReply`."""

    key: str
    body: bytes
    mode: PutMode


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object. Answer: None."""

    key: str


@dataclass(frozen=True, slots=True)
class List:
    """List the objects with a prefix. Answer: `tuple[ObjectMeta, ...]`, in key order."""

    prefix: str
    start_after: str = ""


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read the instants archived in `folder` that completed after a time.

    Answer: `tuple[ArchivedInstant, ...]`, by request time.
    """

    folder: str
    after: str


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Read the wall clock and the monotonic clock. Answer: `Now`."""


@dataclass(frozen=True, slots=True)
class DrawName:
    """Create a unique name. Answer: `str`."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait between half of `max_ms` and all of it, with random jitter. Answer: None."""

    max_ms: float


@dataclass(frozen=True, slots=True)
class CheckHeld:
    """Check that the table's lock, if one is configured, is still held.

    Answer: its fencing token; None or 0 without a lock.

    Raises: `HoldingLost`.
    """


Effect = Get | Head | Put | Delete | List | ReadHistory | ReadClock | DrawName | Pause | CheckHeld

R = TypeVar("R")

Steps = Generator[Effect, Any, R]
"""A protocol step: a generator of effects that returns its result."""


@dataclass(frozen=True, slots=True)
class EffectRunner:
    """Executes effects with a store, a clock and a source of names."""

    store: ObjectStore
    clock: Clock
    ids: IdSource

    def perform(self, steps: Steps[R], check_held: Callable[[], object] | None = None) -> R:
        """Run `steps` to completion and return their result."""
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
                return tuple(self.store.list(prefix, start_after=start_after))
            case ReadHistory(folder, after):
                return Archive(self.store, folder).instants(after=after)
            case ReadClock():
                return self.clock.now()
            case DrawName():
                return self.ids.uuid()
            case Pause(max_ms):
                self.clock.sleep_ms(max_ms * (0.5 + self.ids.jitter() / 2))
                return None
            case CheckHeld():
                return None if check_held is None else check_held()
            case _:
                assert_never(effect)
