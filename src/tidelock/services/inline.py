"""Inline and async table services.

They run after a commit when configured; a failure is logged and never fails the commit (H20).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelock.core.errors import TidelockError
from tidelock.core.threads import start_thread
from tidelock.execution.service_tasks import ProgressListener
from tidelock.hudi.properties import TableType
from tidelock.hudi.timeline.instant import Action, Instant, parse_time
from tidelock.operations.read import snapshot_now
from tidelock.operations.write import TableWriter
from tidelock.services import config as c
from tidelock.services.archive import ArchiveService
from tidelock.services.compaction import Compaction, SinceCompaction, is_due
from tidelock.services.runner import clean, clustering, log_compaction
from tidelock.services.ttl import PartitionTtl
from tidelock.txn.entries import Commit, LedgerEntry
from tidelock.txn.queueing import MAINTENANCE_QUEUE_KEY, LocalQueue

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class InlineServices:
    """The table services that a process runs after its writes.

    `owner` is the writer whose commits trigger them, if it is not `writer` itself.
    """

    writer: TableWriter
    options: Mapping[str, object]
    owner: str | None = None
    _followed_to: int | None = field(default=None, init=False)
    _queue: LocalQueue = field(init=False)

    def __post_init__(self) -> None:
        """Open the queue in which processes of this machine take turns at cleaning."""
        txns = self.writer.transactions
        self._queue = LocalQueue(self.writer.store, txns.clock, MAINTENANCE_QUEUE_KEY)

    def after_write(self) -> None:
        """Run the services that are due. Their failures do not affect the commit."""
        if not c.SERVICES_ENABLED.required(self.options):
            return
        self._attempt("compaction", self._compact)
        self._attempt("log compaction", self._log_compact)
        self._attempt("clustering", self._cluster)
        self._attempt("clean and archive", self._clean_if_due)

    def _attempt(self, service: str, run: Callable[[], None]) -> None:
        try:
            run()
        except TidelockError as error:
            # Usually another process runs the same service; a later write tries again.
            logger.info("%s: inline %s was skipped: %s", self.writer.store.uri, service, error)

    def _compact(self) -> None:
        runs = c.COMPACT_INLINE.required(self.options)
        if not (runs or c.COMPACT_SCHEDULE_INLINE.required(self.options)):
            return
        if self.writer.properties.type is not TableType.MERGE_ON_READ:
            return
        service = Compaction(self.writer)
        if runs:
            for instant in service.pending():
                service.execute(instant)
        now_ms = self.writer.transactions.clock.now().wall_epoch_ms
        since = since_compaction(snapshot_now(self.writer.store).timeline.instants, now_ms)
        if not is_due(c.trigger_rule(self.options), since):
            return
        scheduled = service.schedule(
            c.compaction_rule(self.options, self.writer.transactions.clock)
        )
        if scheduled is not None and runs:
            service.execute(scheduled)

    def _log_compact(self) -> None:
        if not c.LOG_COMPACT_INLINE.required(self.options):
            return
        if self.writer.properties.type is not TableType.MERGE_ON_READ:
            return
        timeline = snapshot_now(self.writer.store).timeline
        # As in Hudi, the threshold applies to delta commits first, then to blocks of a file group.
        if commits_since_log_merge(timeline.files) >= c.LOG_COMPACT_BLOCKS.required(self.options):
            log_compaction(self.writer, self.options).run()

    def _cluster(self) -> None:
        runs = c.CLUSTER_INLINE.required(self.options)
        if not (runs or c.CLUSTER_SCHEDULE_INLINE.required(self.options)):
            return
        due = c.CLUSTER_COMMITS.required(self.options)
        if commits_since_clustering(snapshot_now(self.writer.store).timeline.instants) < due:
            return
        service = clustering(self.writer, self.options)
        if runs:
            service.run()
        elif not service.plans.pending():
            service.schedule()

    def _clean_if_due(self) -> None:
        """Clean and archive after every n-th commit of all processes."""
        if not self._is_nth_commit(max(1, c.CLEAN_TRIGGER.required(self.options))):
            return
        with self._queue.try_enter() as acquired:
            if acquired:
                self._clean_and_archive()

    def _clean_and_archive(self) -> None:
        if c.TTL_INLINE.required(self.options) and (when := c.ttl_rule(self.options)) is not None:
            PartitionTtl(self.writer).run(when)
        if c.CLEAN_AUTOMATIC.required(self.options):
            clean(self.writer, self.options).run()
        if c.ARCHIVE_AUTOMATIC.required(self.options):
            ArchiveService(self.writer).run(c.archive_bounds(self.options))

    def _is_nth_commit(self, every: int) -> bool:
        ledger = self.writer.transactions.ledger
        if self.owner is None:
            return is_nth_commit(ledger.view.tail, ledger.owner, every)
        # Several commits may have been made since the last check; none may be missed.
        before, self._followed_to = self._followed_to, ledger.refresh().position
        if before is None:
            return is_nth_commit(ledger.view.tail, self.owner, every)
        return before // every != self._followed_to // every


def is_nth_commit(tail: Sequence[LedgerEntry], owner: str, every: int) -> bool:
    """Return whether the owner's last commit is the first at or after a multiple of `every`.

    About one commit in `every` is, whoever makes it. So one process cleans at a time, and processes
    that end after one write take part.
    """
    commits = (entry for entry in reversed(tail) if isinstance(entry.fact, Commit))
    for entry in commits:
        if entry.owner == owner:
            before = next(commits, None)
            return (before.position if before else 0) // every != entry.position // every
    return False


def since_compaction(instants: tuple[Instant, ...], now_epoch_ms: int) -> SinceCompaction:
    """Return the commits and the time since the last compaction of a timeline."""
    deltas = [i for i in instants if i.is_completed and i.action is Action.DELTA_COMMIT]
    done = [i for i in instants if i.is_completed and i.action is Action.COMMIT]
    requested = [i for i in instants if i.action is Action.COMPACTION] + done
    last_done = max((i.completion for i in done), default="")
    last_requested = max((i.requested for i in requested), default="")
    first = deltas[0].requested if deltas else ""
    began = max((i.requested for i in done), default=first)
    seconds = (now_epoch_ms - parse_time(began)) / 1_000 if began else 0.0
    return SinceCompaction(
        sum(1 for i in deltas if i.completion > last_done),
        sum(1 for i in deltas if i.completion > last_requested),
        seconds,
    )


def commits_since_log_merge(files: Iterable[Instant]) -> int:
    """Return the number of delta commits since the last compaction or log compaction.

    A completed log compaction looks like a delta commit; its plan file identifies it.
    """
    every = list(files)
    planned = {i.requested for i in every if i.action is Action.LOG_COMPACTION}
    done = [i for i in every if i.is_completed]
    merged = [i for i in done if i.action is Action.COMMIT or i.requested in planned]
    last = max((i.completion for i in merged), default="")
    return sum(1 for i in done if i.action is Action.DELTA_COMMIT and i.completion > last)


def commits_since_clustering(instants: tuple[Instant, ...]) -> int:
    """Return the number of writes since file groups were last replaced."""
    done = [i for i in instants if i.is_completed and i.action.writes_data]
    last = max((i.completion for i in done if i.action is Action.REPLACE_COMMIT), default="")
    return sum(1 for i in done if i.completion > last)


def split_options(
    options: Mapping[str, object],
) -> tuple[dict[str, object], dict[str, object] | None]:
    """Return the options of inline services, and of async services or None if there are none.

    A service that runs async does not run inline.
    """
    if not c.SERVICES_ENABLED.required(options):
        return dict(options), None
    inline_options, background = dict(options), dict(options)
    pairs = (
        (c.COMPACT_ASYNC, c.COMPACT_INLINE),
        (c.CLUSTER_ASYNC, c.CLUSTER_INLINE),
        (c.CLEAN_ASYNC, c.CLEAN_AUTOMATIC),
        (c.ARCHIVE_ASYNC, c.ARCHIVE_AUTOMATIC),
    )
    chosen = {key.key: key.required(options) for key, _ in pairs}
    for key, inline in pairs:
        switched = chosen[key.key] and (inline not in _AUTOMATIC or inline.required(options))
        background[inline.key] = switched
        if switched:
            inline_options[inline.key] = False
    background[c.COMPACT_SCHEDULE_INLINE.key] = background[c.CLUSTER_SCHEDULE_INLINE.key] = False
    background[c.LOG_COMPACT_INLINE.key] = background[c.TTL_INLINE.key] = False
    background[c.CLUSTER_COMMITS.key] = c.CLUSTER_ASYNC_COMMITS.required(options)
    return inline_options, background if any(chosen.values()) else None


_AUTOMATIC: Final = (c.CLEAN_AUTOMATIC, c.ARCHIVE_AUTOMATIC)


class AsyncServices:
    """A thread that runs the services that writes make due.

    Guarantees: services that are due when `stop` is called are done when it returns. With `cancel`
    the running service stops between two tasks; its plan is left pending or rolled back.
    """

    def __init__(self, name: str, make: Callable[[ProgressListener], InlineServices]) -> None:
        """Start no thread yet. `make` is called in the thread and returns the services to run."""
        self._name = name
        self._make = make
        self._changed = threading.Condition()
        self._due = False
        self._stopping = False
        self._cancelled = False
        self._join: Callable[[], None] | None = None

    def notify(self) -> None:
        """Report a commit; starts the thread on first use."""
        with self._changed:
            if self._stopping:
                return
            self._due = True
            if self._join is None:
                self._join = start_thread(f"tidelock-services {self._name}", self._run).join
            self._changed.notify_all()

    def stop(self, *, cancel: bool = False) -> None:
        """End the thread. May be called twice."""
        with self._changed:
            self._stopping = True
            self._cancelled = self._cancelled or cancel
            join = self._join
            self._changed.notify_all()
        if join is not None:
            join()

    def _run(self) -> None:
        inline: InlineServices | None = None
        try:
            while self._next_round():
                inline = inline or self._make(ProgressListener(stop_reason=self._stop_reason))
                inline.after_write()
        except Exception:
            # Writes go on; the next Table that is opened starts another thread.
            logger.exception("%s: async table services ended", self._name)
        finally:
            if inline is not None:
                inline.writer.close()

    def _next_round(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._stopping)
            continues = self._due and not self._cancelled
            self._due = False
            return continues

    def _stop_reason(self) -> str | None:
        return "the table was closed" if self._cancelled else None
