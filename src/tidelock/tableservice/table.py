"""`tl.Table`: a Hudi table, read, written and kept in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelock.operation.job import Job
from tidelock.operation.report import WriteReport
from tidelock.operation.table import Table as WrittenTable
from tidelock.operation.writer import TableWriter
from tidelock.tableservice.archive.execute import Archived, Archiving
from tidelock.tableservice.config import archive_bounds
from tidelock.tableservice.inline import Inline
from tidelock.tableservice.running import Ran, Service, clean, clustering, compaction


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

    def compact(self) -> Ran:
        """Merge log files into base files, pending plans first, and say what was done.

        Which file groups are compacted is for `hoodie.compaction.strategy` and its settings. Plans
        that another process is executing are left to it. Raises: `ConfigInvalid`.
        """
        return self._serve(compaction)

    def cluster(self) -> Ran:
        """Move rows to fewer, or better sorted, file groups, and say what was done.

        Which files are clustered, and by which columns rows are sorted, is for
        `hoodie.clustering.plan.strategy.*`. Where a writer came between, the clustering gave way:
        its plan is undone, and `left` of what is returned says who it was.
        Raises: `Unsupported` for a table with a bucket index, `ConfigInvalid`.
        """
        return self._serve(clustering)

    def clean(self) -> Ran:
        """Roll back what dead writers left, then delete files that nobody needs any more.

        How much of the past stays readable is for `hoodie.clean.policy` and its settings. Plans
        that another process is executing are left to it. Raises: `ConfigInvalid`.
        """
        return self._serve(clean)

    def archive(self) -> Archived:
        """Move the oldest instants from the active timeline to the history.

        How many stay is for `hoodie.keep.min.commits` and `hoodie.keep.max.commits`.
        Raises: `Conflict` if other processes archive this table all the time.
        """
        done = Archiving(self.writer()).run(archive_bounds(self._options))
        self.refresh()
        return done

    def _serve(self, service: Callable[[TableWriter, Mapping[str, object]], Service]) -> Ran:
        done = service(self.writer(), self._options).run()
        self.refresh()
        return done
