"""Services right after a write, as the settings ask: they never fail the write (H20)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelock.base.errors import TidelockError
from tidelock.operation.reads import snapshot_now
from tidelock.operation.writer import TableWriter
from tidelock.table.properties import TableType
from tidelock.table.timeline.instant import Action, Instant, parse_time
from tidelock.tableservice import config as c
from tidelock.tableservice.archive.execute import Archiving
from tidelock.tableservice.clustering import config as cc
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.compaction.plan import Since, is_due
from tidelock.tableservice.running import clean, clustering, log_compaction
from tidelock.tableservice.ttl.config import TTL_INLINE, expiry
from tidelock.tableservice.ttl.execute import PartitionTtl
from tidelock.txn.entry import Commit, Entry
from tidelock.txn.lining import KEEPING_KEY, Line

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Inline:
    """What one process does beside its writes to a table.

    `owner` is whose writes are followed, if not those of `writer` itself.
    """

    writer: TableWriter
    options: Mapping[str, object]
    owner: str | None = None
    _followed_to: int | None = field(default=None, init=False)
    _line: Line = field(init=False)

    def __post_init__(self) -> None:
        """Know whom to leave the cleaning to."""
        home = self.writer.transactions
        self._line = Line(self.writer.store, home.clock, KEEPING_KEY)

    def after_write(self) -> None:
        """Do what is due. A write that has been made stands, whatever happens here."""
        if not c.SERVICES_ENABLED.required(self.options):
            return
        self._attempt("compaction", self._compact)
        self._attempt("log compaction", self._log_compact)
        self._attempt("clustering", self._cluster)
        self._attempt("clean and archive", self._keep_short)

    def _attempt(self, what: str, run: Callable[[], None]) -> None:
        try:
            run()
        except TidelockError as error:
            # Mostly another process is at the same work, or it is tried again after a later write.
            logger.info("%s: %s after a write was left: %s", self.writer.store.uri, what, error)

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
        if not is_due(c.compaction_due(self.options), since):
            return
        scheduled = service.schedule(
            c.compaction_choice(self.options, self.writer.transactions.clock)
        )
        if scheduled is not None and runs:
            service.execute(scheduled)

    def _log_compact(self) -> None:
        if not c.LOG_COMPACT_INLINE.required(self.options):
            return
        if self.writer.properties.type is not TableType.MERGE_ON_READ:
            return
        timeline = snapshot_now(self.writer.store).timeline
        # As Hudi has it, the threshold counts blocks of a group, and delta commits before that.
        if commits_since_logs_merged(timeline.files) >= c.LOG_COMPACT_BLOCKS.required(self.options):
            log_compaction(self.writer, self.options).run()

    def _cluster(self) -> None:
        runs = cc.CLUSTER_INLINE.required(self.options)
        if not (runs or cc.CLUSTER_SCHEDULE_INLINE.required(self.options)):
            return
        due = cc.CLUSTER_COMMITS.required(self.options)
        if commits_since_clustering(snapshot_now(self.writer.store).timeline.instants) < due:
            return
        service = clustering(self.writer, self.options)
        if runs:
            service.run()
        elif not service.plans.pending():
            service.schedule()

    def _keep_short(self) -> None:
        """Clean and archive, if this was one write in so many of all processes'."""
        if not self._is_turn(max(1, c.CLEAN_TRIGGER.required(self.options))):
            return
        with self._line.unless_taken() as mine:
            if mine:
                self._clean_and_archive()

    def _clean_and_archive(self) -> None:
        if TTL_INLINE.required(self.options) and (when := expiry(self.options)) is not None:
            PartitionTtl(self.writer).run(when)
        if c.CLEAN_AUTOMATIC.required(self.options):
            clean(self.writer, self.options).run()
        if c.ARCHIVE_AUTOMATIC.required(self.options):
            Archiving(self.writer).run(c.archive_bounds(self.options))

    def _is_turn(self, every: int) -> bool:
        ledger = self.writer.transactions.ledger
        if self.owner is None:
            return passes_mark(ledger.view.tail, ledger.owner, every)
        # Several writes may have been made since this one looked; none of them may be missed.
        before, self._followed_to = self._followed_to, ledger.refresh().position
        if before is None:
            return passes_mark(ledger.view.tail, self.owner, every)
        return before // every != self._followed_to // every


def passes_mark(tail: Sequence[Entry], owner: str, every: int) -> bool:
    """Tell whether the owner's last commit is the first at or after a multiple of `every`.

    Of all commits one in about so many is, whoever makes it; so one process cleans at a time, and
    processes that end after a write take their part.
    """
    commits = (entry for entry in reversed(tail) if isinstance(entry.fact, Commit))
    for entry in commits:
        if entry.owner == owner:
            before = next(commits, None)
            return (before.position if before else 0) // every != entry.position // every
    return False


def since_compaction(instants: tuple[Instant, ...], now_epoch_ms: int) -> Since:
    """Return what happened on a timeline since its last compaction."""
    deltas = [i for i in instants if i.is_completed and i.action is Action.DELTA_COMMIT]
    done = [i for i in instants if i.is_completed and i.action is Action.COMMIT]
    asked = [i for i in instants if i.action is Action.COMPACTION] + done
    last_done = max((i.completion for i in done), default="")
    last_asked = max((i.requested for i in asked), default="")
    first = deltas[0].requested if deltas else ""
    began = max((i.requested for i in done), default=first)
    seconds = (now_epoch_ms - parse_time(began)) / 1_000 if began else 0.0
    return Since(
        sum(1 for i in deltas if i.completion > last_done),
        sum(1 for i in deltas if i.completion > last_asked),
        seconds,
    )


def commits_since_logs_merged(files: Iterable[Instant]) -> int:
    """Return how many delta commits were completed since log files were merged, in either way.

    A completed log compaction looks like a delta commit; the file of its plan tells it apart.
    """
    every = list(files)
    planned = {i.requested for i in every if i.action is Action.LOG_COMPACTION}
    done = [i for i in every if i.is_completed]
    merged = [i for i in done if i.action is Action.COMMIT or i.requested in planned]
    last = max((i.completion for i in merged), default="")
    return sum(1 for i in done if i.action is Action.DELTA_COMMIT and i.completion > last)


def commits_since_clustering(instants: tuple[Instant, ...]) -> int:
    """Return how many writes were completed since file groups were replaced for the last time."""
    done = [i for i in instants if i.is_completed and i.action.writes_data]
    last = max((i.completion for i in done if i.action is Action.REPLACE_COMMIT), default="")
    return sum(1 for i in done if i.completion > last)
