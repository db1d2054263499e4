"""`tl.Table`: a Hudi table, read, written and kept in order."""

from __future__ import annotations

from tidelock.operation.job import Job
from tidelock.operation.report import WriteReport
from tidelock.operation.table import Table as WrittenTable
from tidelock.tableservice.archive.execute import Archived, Archiving
from tidelock.tableservice.claiming import Executed
from tidelock.tableservice.clean.execute import Clean
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.config import (
    archive_bounds,
    clean_keep,
    compaction_choice,
    plan_delay_ms,
)
from tidelock.tableservice.inline import Inline
from tidelock.tableservice.removing import remove_expired
from tidelock.tableservice.running import Ran, clustering


class Table(WrittenTable):
    """A table: reads see it as it was when it was opened, refreshed, or last written from here.

    Guarantees: a write that returns a report happened, on top of every write before it; every
    read sees all of each write, or nothing. Services never change the rows. A table may be used by
    several threads; its writes take their turns.
    """

    _inline: Inline | None = None

    def _run(self, job: Job) -> WriteReport:
        report = super()._run(job)
        if self._inline is None:
            self._inline = Inline(self.writer(), self._options)
        self._inline.after_write()
        return report

    def compact(self) -> tuple[Executed, ...]:
        """Merge log files into base files, pending plans first, and return what was done.

        Which file groups are compacted is for `hoodie.compaction.strategy` and its settings.
        Raises: `Conflict` if another process is executing a pending plan.
        """
        service = Compaction(self.writer())
        planned = service.pending()
        done = [service.execute(instant) for instant in planned]
        scheduled = service.schedule(compaction_choice(self._options))
        if scheduled is not None:
            done.append(service.execute(scheduled))
        self.refresh()
        return tuple(done)

    def cluster(self) -> Ran:
        """Move rows to fewer, or better sorted, file groups, and say what was done.

        Which files are clustered, and by which columns rows are sorted, is for
        `hoodie.clustering.plan.strategy.*`. Where a writer came between, the clustering gave way:
        its plan is undone, and `left` of what is returned says who it was.
        Raises: `Unsupported` for a table with a bucket index, `ConfigInvalid`.
        """
        done = clustering(self.writer(), self._options).run()
        self.refresh()
        return done

    def clean(self) -> tuple[Executed, ...]:
        """Roll back what dead writers left, then delete files that nobody needs any more.

        How much of the past stays readable is for `hoodie.clean.policy` and its settings.
        Raises: `Conflict` if another process is executing a pending plan.
        """
        writer = self.writer()
        writer.transactions.recover()
        remove_expired(writer.transactions, delay_ms=plan_delay_ms(self._options))
        service = Clean(writer)
        done = [service.execute(instant) for instant in service.pending()]
        scheduled = service.schedule(clean_keep(self._options, writer.transactions.clock))
        if scheduled is not None:
            done.append(service.execute(scheduled))
        self.refresh()
        return tuple(done)

    def archive(self) -> Archived:
        """Move the oldest instants from the active timeline to the history.

        How many stay is for `hoodie.keep.min.commits` and `hoodie.keep.max.commits`.
        Raises: `Conflict` if other processes archive this table all the time.
        """
        done = Archiving(self.writer()).run(archive_bounds(self._options))
        self.refresh()
        return done
