"""Runs a streamer once or continuously, with retries, and provides its Spark session."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from tidelock.core.errors import Conflict, MissingExtra, Retry, TidelockError
from tidelock.streamer import config as c
from tidelock.streamer.batch import Streamer, SyncResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

_REPEATS_MAX: Final = 1_000
"""How many batches of other streamers with this writer id a single run skips before it fails."""


class StopSignal(Protocol):
    """Signals that the streamer should stop."""

    def wait(self, duration_s: float | None) -> bool:
        """Wait for a duration or a stop; return whether the streamer should stop."""
        ...


@dataclass(frozen=True, slots=True)
class StreamerFailed:
    """A failed attempt that will be retried."""

    error: TidelockError
    attempt: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Idle:
    """The source had nothing new."""

    rounds: int


Event = SyncResult | StreamerFailed | Idle
OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a run."""

    batches: int = 0
    rows: int = 0
    malformed: int = 0
    checkpoint: str = ""

    def plus(self, result: SyncResult) -> Totals:
        """Add a batch; one that another streamer wrote is not counted here."""
        if result.repeated:
            return self
        return Totals(
            self.batches + 1,
            self.rows + result.rows,
            self.malformed + result.malformed,
            result.checkpoint,
        )


def run_once(streamer: Streamer, *, stop: StopSignal, on_event: OnEvent) -> Totals:
    """Write one batch, up to `--source-limit`, like one sync of Hudi's streamer.

    A batch that another streamer of the same writer id committed does not count. Raises: the errors
    of `Streamer.sync`, after the configured retries.
    """
    totals = Totals()
    for _ in range(_REPEATS_MAX):
        result = _sync_with_retries(streamer, stop=stop, on_event=on_event)
        if result is None:
            return totals
        totals = totals.plus(result)
        if not result.repeated:
            return totals
    raise Conflict(
        f"writer {streamer.writer_id!r}: {_REPEATS_MAX} batches were committed by other streamers",
        hint="run one streamer per writer id",
    )


def run_continuously(streamer: Streamer, *, stop: StopSignal, on_event: OnEvent) -> Totals:
    """Write batches until `stop` is set, or the source had no data for the configured rounds.

    A stop ends the run between two batches, never within one. Raises: as `run_once`.
    """
    request, totals, idle = streamer.request, Totals(), 0
    while not stop.wait(0):
        started_ms = streamer.clock.now().monotonic_ms
        result = _sync_with_retries(streamer, stop=stop, on_event=on_event)
        if result is None:
            idle += 1
            on_event(Idle(idle))
            if (
                request.rounds_without_data_max is not None
                and idle >= request.rounds_without_data_max
            ):
                break
        else:
            idle, totals = 0, totals.plus(result)
        spent_s = (streamer.clock.now().monotonic_ms - started_ms) / 1_000
        pause_s = request.min_sync_interval_s - spent_s
        if result is None:
            pause_s = max(pause_s, c.IDLE_POLL_MS.required(request.properties) / 1_000)
        if pause_s > 0 and stop.wait(pause_s):
            break
    return totals


def _sync_with_retries(
    streamer: Streamer, *, stop: StopSignal, on_event: OnEvent
) -> SyncResult | None:
    """Write a batch; retry after transient errors, such as a broker restart or a busy store."""
    request, attempt = streamer.request, 0
    while True:
        try:
            result = streamer.sync()
        except TidelockError as error:
            attempt += 1
            if error.retry is Retry.NEVER or attempt > request.retries_max:
                raise
            on_event(StreamerFailed(error, attempt, request.retry_interval_s))
            logger.info("attempt %d failed: %s", attempt, error)
            if stop.wait(request.retry_interval_s):
                return None
            continue
        if result is not None:
            on_event(result)
        return result


_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has already started the JVM and configured the session."""


@contextmanager
def streamer_session(
    app: str, *, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield the session of spark-submit, or a local session; stop it at the end.

    Raises: `MissingExtra` without PySpark.
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from pyspark.sql import SparkSession

    from tidelock.execution.spark.session import check_session, local_session

    # Spark also logs query errors as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    if _SUBMITTED in os.environ:
        builder = SparkSession.builder.appName(app)
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    else:
        spark = local_session(app, memory=memory, settings=settings)
        spark.sparkContext.setLogLevel("FATAL")
    try:
        yield check_session(spark)
    finally:
        spark.stop()
