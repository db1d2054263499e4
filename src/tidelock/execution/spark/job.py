"""Spark jobs: outcomes of tasks in workers, and cancellation."""

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

from tidelock.core.errors import Conflict, Retry, TidelockError, Unavailable
from tidelock.core.threads import start_thread
from tidelock.execution.engine import IsCancelled

T = TypeVar("T")

_EXCEPTION_LINE: Final = re.compile(r"([\w.$]+(?:Error|Exception): [^\n]*)")

CANCEL_POLL_S: Final = 0.25
"""The interval at which a running job is checked for cancellation."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The error of a task that would fail again if retried."""

    error: TidelockError


def run_outcome(run: Callable[[], object]) -> object:
    """Run a task in a worker, and return its value, or `TaskFailed`.

    Retryable errors are raised, so that Spark retries the task.
    """
    try:
        return run()
    except TidelockError as error:
        if error.retry is not Retry.NEVER:
            raise
        return TaskFailed(error)


def decode_outcome(data: bytes) -> Any:
    """Return the value of a pickled outcome sent by a worker. Raises its error."""
    outcome = pickle.loads(data)  # noqa: S301 - our own worker wrote it
    if isinstance(outcome, TaskFailed):
        raise outcome.error
    return outcome


def run_job(
    spark: SparkSession,
    what: str,
    action: Callable[[], T],
    *,
    group: str,
    is_cancelled: IsCancelled | None = None,
) -> T:
    """Run a Spark action, and cancel its jobs once the write can no longer commit.

    Raises: `Conflict` if it was cancelled, `Unavailable` if Spark failed, and the errors of
    `action`.
    """
    with _job_group(spark, what, group, is_cancelled) as reasons:
        try:
            return action()
        except (Py4JError, PySparkException) as error:
            if reasons:
                raise Conflict(
                    f"{what}: the Spark job was cancelled: {reasons[0]}",
                    hint="the write is retried on the latest version of the table",
                ) from error
            raise Unavailable(
                f"{what}: the Spark job failed: {_root_cause(error)}",
                hint="see the logs of the executors; the write is not visible",
            ) from error


@contextmanager
def _job_group(
    spark: SparkSession, what: str, group: str, is_cancelled: IsCancelled | None
) -> Iterator[list[str]]:
    context = spark.sparkContext
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, what, interruptOnCancel=True)
    finished = threading.Event()
    reasons: list[str] = []

    def poll() -> None:
        while is_cancelled is not None and not finished.wait(CANCEL_POLL_S):
            reason = reasons[0] if reasons else is_cancelled()
            if reason is not None:
                reasons[:] = [reason]
                # Repeated, because it has no effect on a job that has not begun.
                context.cancelJobGroup(group)

    thread = None if is_cancelled is None else start_thread("tidelock-cancel", poll)
    try:
        yield reasons
    finally:
        finished.set()
        if thread is not None:
            thread.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


def _root_cause(error: BaseException) -> str:
    """Return the first line of the root cause in a Spark error."""
    text = str(error)
    named = [found for found in _EXCEPTION_LINE.findall(text) if "org.apache.spark." not in found]
    return str((named or text.splitlines() or [type(error).__name__])[0])[:300]
