"""Operator actions of the dashboard: cancel a plan, release a lock, run a table service.

An action names its target and must be confirmed with the same name. Services run in the background;
the page shows their progress.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict, InvalidInput, TidelockError
from tidelock.core.formatting import fields_of
from tidelock.core.system import SystemIds
from tidelock.core.threads import start_thread
from tidelock.dashboard.watch import TableWatch
from tidelock.lock.admin import Operator, inspect_lock
from tidelock.lock.config import LockSettings
from tidelock.lock.server.auth import Permission
from tidelock.services.archive import ArchiveResult
from tidelock.services.runner import ServiceRun
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.table import Table
from tidelock.txn.transaction_manager import TransactionManager

logger = logging.getLogger(__name__)

JOBS_MAX: Final = 50


class DashboardAction(StrEnum):
    """An operator action."""

    CANCEL_PLAN = "cancel-plan"
    FORCE_RELEASE = "force-release"
    RUN_SERVICE = "run-service"

    @property
    def permission(self) -> Permission:
        """The permission that the action needs."""
        return Permission.FORCE if self is DashboardAction.FORCE_RELEASE else Permission.ADMIN


SERVICES: Final[Mapping[str, Callable[[Table], ServiceRun | ArchiveResult]]] = {
    "compact": Table.compact,
    "cluster": Table.cluster,
    "clean": Table.clean,
    "archive": Table.archive,
}


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """A requested action, its target, and the repeated target as confirmation."""

    action: DashboardAction
    target: str
    confirm: str

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> ActionRequest:
        """Read a request. Raises: `InvalidInput`."""
        texts = [fields.get(name) for name in ("action", "target", "confirm")]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput("action, target and confirm: expected strings")
        action, target, confirm = (str(text) for text in texts)
        if action not in set(DashboardAction):
            raise InvalidInput(
                f"action: expected one of {', '.join(DashboardAction)}, got {action!r}"
            )
        if confirm != target or not target:
            raise InvalidInput(
                "the action was not confirmed", hint=f"repeat the target: {target or 'a name'}"
            )
        return cls(DashboardAction(action), target, confirm)


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """A service run that was started from the page."""

    number: int
    service: str
    by: str
    started: int
    ended: int | None = None
    message: str = ""
    failed: bool = False


@dataclass(slots=True)
class ActionRunner:
    """Runs actions on one table."""

    watch: TableWatch
    clock: Clock
    settings: Mapping[str, object]
    _jobs: dict[int, ServiceJob] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def run(self, request: ActionRequest, *, by: str) -> str:
        """Run an action, or start it; return a message. Raises: `Conflict`, `InvalidInput`, …"""
        uri = self.watch.store.uri
        logger.warning("%s requested %s %s on %s", by, request.action, request.target, uri)
        match request.action:
            case DashboardAction.CANCEL_PLAN:
                return self._cancel(request.target)
            case DashboardAction.FORCE_RELEASE:
                return self._release(request.target)
            case DashboardAction.RUN_SERVICE:
                return self._run_service(request.target, by)
            case _:
                assert_never(request.action)

    def jobs(self) -> list[dict[str, object]]:
        """Return the service runs, newest first."""
        with self._mutex:
            newest_first = sorted(self._jobs.values(), key=lambda job: job.number, reverse=True)
        names = ("number", "service", "by", "started", "ended")
        return [
            {**fields_of(job, *names), "says": job.message, "failed": job.failed}
            for job in newest_first
        ]

    def _cancel(self, instant: str) -> str:
        with TransactionManager(self.watch.store, self.settings, clock=self.clock) as transactions:
            problem = transactions.remove_plan(instant, delay_ms=0)
        if problem is not None:
            raise Conflict(
                f"plan {instant} was not cancelled: {problem}",
                hint="a compaction plan stays until it is executed; run the service",
            )
        return f"plan {instant} was cancelled"

    def _release(self, owner: str) -> str:
        store = self.watch.store
        lease = LockSettings.read(self.settings).lease
        lock = inspect_lock(store, lease, self.clock)
        if lock.record is None or lock.record.owner != owner:
            raise Conflict(f"{lock.uri}: no longer held by {owner}", hint="reload the page")
        Operator(store, ReadbackPolicy(clock=self.clock, ids=SystemIds())).force_release(lock)
        return f"the lock of {owner} was released; its holder notices at the next renewal"

    def _run_service(self, service: str, by: str) -> str:
        if service not in SERVICES:
            raise InvalidInput(f"service: expected one of {', '.join(SERVICES)}, got {service!r}")
        with self._mutex:
            if any(job.service == service and job.ended is None for job in self._jobs.values()):
                raise Conflict(f"{service} is already running", hint="wait until it ends")
            number = max(self._jobs, default=0) + 1
            began = self.clock.now().wall_epoch_ms
            self._jobs[number] = ServiceJob(number, service, by, began, message="running")
            for old in sorted(self._jobs)[:-JOBS_MAX]:
                del self._jobs[old]
        start_thread(f"tidelock-ui-{service}", lambda: self._run_job(number, service))
        return f"{service} was started"

    def _run_job(self, number: int, service: str) -> None:
        failed = False
        try:
            with Table.open(self.watch.store.uri, options=self.settings) as table:
                message = _summary(SERVICES[service](table))
        except TidelockError as error:
            message, failed = str(error), True
        except Exception as error:
            logger.exception("%s failed", service)
            message, failed = f"{type(error).__name__}: {error}", True
        with self._mutex:
            ended = self.clock.now().wall_epoch_ms
            job = self._jobs[number]
            self._jobs[number] = replace(job, ended=ended, message=message, failed=failed)


def _summary(done: ServiceRun | ArchiveResult) -> str:
    if isinstance(done, ArchiveResult):
        return f"{done.instants} instants archived"
    files = sum(each.files_written for each in done.executed)
    summary = f"{len(done.executed)} plans executed, {files} files written"
    if done.rolled_back:
        summary += f"; {len(done.rolled_back)} rolled back"
    return summary + (f"; skipped: {done.skipped[0].why}" if done.skipped else "")
