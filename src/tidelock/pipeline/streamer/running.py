"""The streamer at work: once or for as long as it is let, with patience for what passes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tidelock.base.errors import Conflict, Retry, TidelockError
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.sync import Streamer, Synced

logger = logging.getLogger(__name__)

_REPEATS_MAX: Final = 1_000
"""How often others of one's own id may be first before a single run gives up."""


class Stop(Protocol):
    """Hears whether the streamer is to end."""

    def wait(self, duration_s: float | None) -> bool:
        """Wait so long, or until the streamer is to end; return whether it is."""
        ...


@dataclass(frozen=True, slots=True)
class Failed:
    """A batch that did not come through, and is tried again."""

    error: TidelockError
    attempt: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Idle:
    """The source had nothing new."""

    rounds: int


Event = Synced | Failed | Idle
Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run did."""

    batches: int = 0
    rows: int = 0
    malformed: int = 0
    checkpoint: str = ""

    def plus(self, done: Synced) -> Totals:
        """Add a batch; one that another streamer wrote is not counted here."""
        if done.repeated:
            return self
        return Totals(
            self.batches + 1,
            self.rows + done.rows,
            self.malformed + done.malformed,
            done.checkpoint,
        )


def run_once(streamer: Streamer, *, stop: Stop, tell: Tell) -> Totals:
    """Take one batch, or all that `--source-limit` leaves of one sync, as Hudi's streamer does.

    A batch that another streamer of the same id was first with does not count as one's own.
    Raises: what `Streamer.sync` raises, once it has been tried again as often as was asked.
    """
    totals = Totals()
    for _ in range(_REPEATS_MAX):
        done = _patiently(streamer, stop=stop, tell=tell)
        if done is None:
            return totals
        totals = totals.plus(done)
        if not done.repeated:
            return totals
    raise Conflict(
        f"other streamers of the writer id {streamer.writer_id!r} are always first",
        hint="run one streamer for each writer id",
    )


def run_on(streamer: Streamer, *, stop: Stop, tell: Tell) -> Totals:
    """Take batch after batch until `stop` says so, or nothing came for as long as was allowed.

    A stop ends the run between two batches, never within one. Raises: as `run_once`.
    """
    asked, totals, idle = streamer.asked, Totals(), 0
    while not stop.wait(0):
        begun_ms = streamer.clock.now().monotonic_ms
        done = _patiently(streamer, stop=stop, tell=tell)
        if done is None:
            idle += 1
            tell(Idle(idle))
            if asked.rounds_without_data_max is not None and idle >= asked.rounds_without_data_max:
                break
        else:
            idle, totals = 0, totals.plus(done)
        spent_s = (streamer.clock.now().monotonic_ms - begun_ms) / 1_000
        pause_s = asked.min_sync_interval_s - spent_s
        if done is None:
            pause_s = max(pause_s, c.IDLE_POLL_MS.required(asked.properties) / 1_000)
        if pause_s > 0 and stop.wait(pause_s):
            break
    return totals


def _patiently(streamer: Streamer, *, stop: Stop, tell: Tell) -> Synced | None:
    """Take a batch, and try again after what may pass: a broker that restarts, a busy store."""
    asked, attempt = streamer.asked, 0
    while True:
        try:
            done = streamer.sync()
        except TidelockError as error:
            attempt += 1
            if error.retry is Retry.NEVER or attempt > asked.retries_max:
                raise
            tell(Failed(error, attempt, asked.retry_interval_s))
            logger.info("attempt %d failed: %s", attempt, error)
            if stop.wait(asked.retry_interval_s):
                return None
            continue
        if done is not None:
            tell(done)
        return done
