"""Running our jobs in Spark: what workers say of a failure, and the end of jobs in vain."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelock.base.errors import Conflict, Retry, TidelockError, Unavailable
from tidelock.base.runtime import start_thread

T = TypeVar("T")

_NAMED: Final = re.compile(r"([\w.$]+(?:Error|Exception): [^\n]*)")

DOOM_POLL_S: Final = 0.25
"""How often it is asked whether a running job is still worth its while."""

Doomed = Callable[[], str | None]
"""Says why the write cannot succeed any more; None while it can."""


@dataclass(frozen=True, slots=True)
class Done:
    """A task's value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A task's error, of a kind that another try of the same task would meet again."""

    error: TidelockError


Outcome = Done | Failed


def outcome_of(run: Callable[[], object]) -> Outcome:
    """Run a task in a worker. What may work the next time is raised, so that Spark tries again."""
    try:
        return Done(run())
    except TidelockError as error:
        if error.retry is not Retry.NEVER:
            raise
        return Failed(error)


def sent(outcome: Outcome) -> bytes:
    """Return the outcome as bytes, for the way from a worker to the driver."""
    return pickle.dumps(outcome)


def value_of(data: bytes) -> Any:
    """Return the value of an outcome that a worker sent. Raises its error."""
    outcome: Outcome = pickle.loads(data)  # noqa: S301 - our own worker wrote it
    match outcome:
        case Done(value):
            return value
        case Failed(error):
            raise error


def run_job(
    spark: SparkSession,
    what: str,
    action: Callable[[], T],
    *,
    group: str,
    doomed: Doomed | None = None,
) -> T:
    """Run an action of Spark's, and cancel its jobs once the write is known to be in vain.

    Raises: `Conflict` when it was cancelled, `Unavailable` when Spark could not finish it, and the
    errors of `action` itself.
    """
    with _watched(spark, what, group, doomed) as verdict:
        try:
            return action()
        except (Py4JError, PySparkException) as error:
            if verdict:
                raise Conflict(
                    f"{what} was cancelled, because it could not succeed: {verdict[0]}",
                    hint="the write is tried again on what the others have written",
                ) from error
            raise Unavailable(
                f"{what}: the Spark job failed: {_first_line(error)}",
                hint="the executors' logs say more; nothing of the write is visible",
            ) from error


@contextmanager
def _watched(
    spark: SparkSession, what: str, group: str, doomed: Doomed | None
) -> Iterator[list[str]]:
    context = spark.sparkContext
    before = {
        name: context.getLocalProperty(name)
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    }
    context.setJobGroup(group, what, interruptOnCancel=True)
    over = threading.Event()
    verdict: list[str] = []

    def watch() -> None:
        while doomed is not None and not over.wait(DOOM_POLL_S):
            reason = doomed()
            if reason is not None:
                verdict.append(reason)
                context.cancelJobGroup(group)
                return

    thread = None if doomed is None else start_thread("tidelock-doom", watch)
    try:
        yield verdict
    finally:
        over.set()
        if thread is not None:
            thread.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


def _first_line(error: BaseException) -> str:
    """Return what went wrong, of all that Spark writes about it."""
    text = str(error)
    named = [found for found in _NAMED.findall(text) if "org.apache.spark." not in found]
    return str((named or text.splitlines() or [type(error).__name__])[0])[:300]
