"""What an operator may do from the dashboard: cancel a plan, release a lock, run a service.

Each names what it is about, and is refused unless the operator repeats that name. A service runs
in the background; the page shows how it goes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from tidelock.base.clock import Clock
from tidelock.base.errors import Conflict, InvalidInput, TidelockError
from tidelock.base.runtime import start_thread
from tidelock.lock.config import LockSettings
from tidelock.lock.force import Operator
from tidelock.lock.inspect import inspect_lock
from tidelock.lockservice.auth import Permission
from tidelock.ops.ui.watching import TableWatch
from tidelock.store.readback import Patience
from tidelock.tableservice.archive.execute import Archived
from tidelock.tableservice.running import Ran
from tidelock.tableservice.table import Table
from tidelock.txn.transactions import Transactions

logger = logging.getLogger(__name__)

JOBS_KEPT: Final = 50


class Deed(StrEnum):
    """What can be done."""

    CANCEL_PLAN = "cancel-plan"
    FORCE_RELEASE = "force-release"
    RUN_SERVICE = "run-service"

    @property
    def permission(self) -> Permission:
        """What it takes to do it."""
        return Permission.FORCE if self is Deed.FORCE_RELEASE else Permission.ADMIN


SERVICES: Final[Mapping[str, Callable[[Table], Ran | Archived]]] = {
    "compact": Table.compact,
    "cluster": Table.cluster,
    "clean": Table.clean,
    "archive": Table.archive,
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for: the deed, what it is about, and that name once more."""

    deed: Deed
    target: str
    confirm: str

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> Wish:
        """Read a request. Raises: `InvalidInput`."""
        texts = [fields.get(name) for name in ("action", "target", "confirm")]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput("action, target and confirm must be texts")
        action, target, confirm = (str(text) for text in texts)
        if action not in set(Deed):
            raise InvalidInput(f"{action!r} is not one of {', '.join(Deed)}")
        if confirm != target or not target:
            raise InvalidInput(
                "it was not confirmed", hint=f"repeat what it is about: {target or 'a name'}"
            )
        return cls(Deed(action), target, confirm)


@dataclass(frozen=True, slots=True)
class Job:
    """A service that was started from the page."""

    number: int
    service: str
    by: str
    started: int
    ended: int | None = None
    says: str = ""
    failed: bool = False


@dataclass(slots=True)
class Hands:
    """Carries out wishes on one table."""

    watch: TableWatch
    clock: Clock
    settings: Mapping[str, object]
    _jobs: dict[int, Job] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def do(self, wish: Wish, *, by: str) -> str:
        """Do it, or begin to; return what was done. Raises: `Conflict`, `InvalidInput`, …"""
        uri = self.watch.store.uri
        logger.warning("%s asks for %s %s on %s", by, wish.deed, wish.target, uri)
        match wish.deed:
            case Deed.CANCEL_PLAN:
                return self._cancel(wish.target)
            case Deed.FORCE_RELEASE:
                return self._release(wish.target)
            case Deed.RUN_SERVICE:
                return self._run(wish.target, by)
            case _:
                assert_never(wish.deed)

    def jobs(self) -> list[dict[str, object]]:
        """Return what was started, the newest first."""
        with self._mutex:
            return [
                {
                    "number": job.number,
                    "service": job.service,
                    "by": job.by,
                    "started": job.started,
                    "ended": job.ended,
                    "says": job.says,
                    "failed": job.failed,
                }
                for _, job in sorted(self._jobs.items(), reverse=True)
            ]

    def _cancel(self, instant: str) -> str:
        with Transactions(self.watch.store, self.settings, clock=self.clock) as transactions:
            problem = transactions.remove_plan(instant, delay_ms=0)
        if problem is not None:
            raise Conflict(
                f"the plan {instant} was not cancelled: {problem}",
                hint="a compaction's plan stays until it is executed; run the service",
            )
        return f"the plan {instant} is cancelled"

    def _release(self, owner: str) -> str:
        store = self.watch.store
        lease = LockSettings.read(self.settings).lease
        seen = inspect_lock(store, lease, self.clock)
        if seen.record is None or seen.record.owner != owner:
            raise Conflict(f"{seen.uri} is not held by {owner} any more", hint="look again")
        Operator(store, Patience(clock=self.clock)).force_release(seen)
        return f"the lock of {owner} is released; it learns of that at its next renewal"

    def _run(self, service: str, by: str) -> str:
        if service not in SERVICES:
            raise InvalidInput(f"{service!r} is not one of {', '.join(SERVICES)}")
        with self._mutex:
            if any(job.service == service and job.ended is None for job in self._jobs.values()):
                raise Conflict(f"{service} is running already", hint="wait for it")
            number = max(self._jobs, default=0) + 1
            began = self.clock.now().wall_epoch_ms
            self._jobs[number] = Job(number, service, by, began, says="running")
            for old in sorted(self._jobs)[:-JOBS_KEPT]:
                del self._jobs[old]
        start_thread(f"tidelock-ui-{service}", lambda: self._work(number, service))
        return f"{service} has begun"

    def _work(self, number: int, service: str) -> None:
        failed = False
        try:
            with Table.open(self.watch.store.uri, options=self.settings) as table:
                says = _said(SERVICES[service](table))
        except TidelockError as error:
            says, failed = str(error), True
        except Exception as error:
            logger.exception("%s failed", service)
            says, failed = f"{type(error).__name__}: {error}", True
        with self._mutex:
            ended = self.clock.now().wall_epoch_ms
            job = self._jobs[number]
            self._jobs[number] = replace(job, ended=ended, says=says, failed=failed)


def _said(done: Ran | Archived) -> str:
    if isinstance(done, Archived):
        return f"{done.instants} instants archived"
    files = sum(each.files_written for each in done.executed)
    says = f"{len(done.executed)} plans executed, {files} files written"
    if done.rolled_back:
        says += f"; {len(done.rolled_back)} rolled back"
    return says + (f"; left: {done.left[0].why}" if done.left else "")
