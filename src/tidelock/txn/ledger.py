"""Thread-safe access to a table's ledger: runs protocol steps and caches what was read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tidelock.core.clock import Clock
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.history import HISTORY_FOLDER
from tidelock.hudi.timeline.instant import InstantState
from tidelock.storage.contract import ObjectStore
from tidelock.txn.effects import EffectRunner, Steps
from tidelock.txn.entries import LedgerEntry
from tidelock.txn.external_writers import Importer, TimelineScan
from tidelock.txn.ledger_io import (
    Appended,
    Declined,
    Proposer,
    Publisher,
    Undetermined,
    append,
    forward,
    load,
    write_checkpoint,
)
from tidelock.txn.state import LedgerState, View

D = TypeVar("D")
R = TypeVar("R")


class Ledger:
    """One process's view of a table's ledger, with operations to refresh and extend it.

    Guarantees: the view only moves forward; every entry in it was read, and every commit up to the
    position that `refresh` returns is on the timeline. Safe for use by several threads.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        timeline_folder: str = TIMELINE_FOLDER,
        history_folder: str = HISTORY_FOLDER,
        owner: str = "",
        check_table: Callable[[], Steps[None]] | None = None,
        on_external: Callable[[Sequence[LedgerEntry]], None] | None = None,
        checks_zones: bool = True,
    ) -> None:
        """Create the ledger without reading it. `owner` names this process in entries.

        `check_table` runs before the timeline is scanned for external commits; `on_external`
        receives the entries of imported commits.
        """
        self.runner = EffectRunner(store, clock or SystemClock(), ids or SystemIds())
        self.owner = owner or self.runner.ids.uuid()
        self.publisher = Publisher(timeline_folder)
        self._importer = Importer(
            timeline_folder, history_folder, self.owner, self.publisher, checks_zones
        )
        self._check_table = check_table
        self._on_external = on_external
        self._scan: TimelineScan | None = None
        self._mutex = threading.Lock()
        self._view: View | None = None

    @property
    def store(self) -> ObjectStore:
        return self.runner.store

    @property
    def view(self) -> View:
        """The current view. Reads the ledger on first use."""
        return self._view if self._view is not None else self.run(self.view_steps())

    @property
    def known_position(self) -> int:
        """The position of the last entry that was read, 0 if none. Reads nothing."""
        return 0 if self._view is None else self._view.position

    @property
    def pending_writes(self) -> Mapping[str, tuple[InstantState, int]]:
        """Pending writes that the last timeline scan found, by instant.

        Each has its latest state and the time that state was written.
        """
        return {} if self._scan is None else self._scan.pending

    @property
    def state(self) -> LedgerState:
        return self.view.state

    def refresh(self, *, external: bool = True) -> LedgerState:
        """Read new entries, publish commits that are not on the timeline, and return the state.

        With `external`, commits on the timeline that have no entry are imported, after a check that
        the table may be changed. Without it only the ledger is read; this is enough for a reread
        before anything is decided.
        """
        return self.run(self.refresh_steps(external=external))

    def append(
        self, propose: Proposer[D], *, check_held: Callable[[], object] | None = None
    ) -> Appended | Declined[D] | Undetermined:
        """Append the fact that `propose` returns; see `tidelock.txn.ledger_io`."""
        return self.run(self.append_steps(propose), check_held)

    def publish(self, *, own: int = 0, check_held: Callable[[], object] | None = None) -> None:
        """Put all missing commits on the timeline, and write a checkpoint when one is due."""
        self.run(self.publish_steps(own=own), check_held)

    def since(self, base: int) -> tuple[LedgerEntry, ...] | None:
        """Return the entries after `base`, None if they are no longer in memory."""
        return self.view.since(base)

    def run(self, steps: Steps[R], check_held: Callable[[], object] | None = None) -> R:
        return self.runner.perform(steps, check_held)

    def refresh_steps(self, *, external: bool = True) -> Steps[LedgerState]:
        """Return the steps of `refresh`. The first refresh always imports external commits."""
        external = external or self._scan is None
        if external and self._check_table is not None:
            yield from self._check_table()
        view = yield from (load() if self._view is None else forward(self._view))
        self.advance(view)
        if external:
            # C100: before publishing, since a Java writer may have rolled back what would be
            # published.
            yield from self.import_steps()
        view = yield from self.publisher.publish((yield from self.view_steps()))
        return self.advance(view).state

    def import_steps(self) -> Steps[LedgerState]:
        """Return the steps that import commits on the timeline that have no entry (C34).

        If there are none, this costs one listing and no read of the ledger.
        """
        known = yield from self.view_steps()
        view, scan = yield from self._importer.scan(known, self._scan)
        # The first scan imports the existing table; that is not reported.
        if self._on_external is not None and self._scan is not None:
            self._on_external(view.since(known.position) or ())
        self._scan = scan
        return self.advance(view).state

    def append_steps(self, propose: Proposer[D]) -> Steps[Appended | Declined[D] | Undetermined]:
        view = yield from self.view_steps()
        result = yield from append(view, propose, owner=self.owner)
        self.advance(result.view)
        return result

    def publish_steps(self, *, own: int = 0) -> Steps[None]:
        yield from self.finish_publish_steps(*(yield from self.put_steps(own=own)))

    def put_steps(self, *, own: int = 0) -> Steps[tuple[View, tuple[LedgerEntry, ...]]]:
        """Return the steps that publish all commits.

        The result is for `finish_publish_steps`: the view, and the entries published here.
        """
        view, newly_published = yield from self.publisher.put(
            (yield from self.view_steps()), own=own
        )
        self.advance(view)
        return view, newly_published

    def finish_publish_steps(
        self, view: View, newly_published: Sequence[LedgerEntry]
    ) -> Steps[None]:
        """Return the steps that remove stale files after a publish, and checkpoint when due."""
        view = yield from self.publisher.remove_stale(view, newly_published)
        self.advance(view)
        self.advance((yield from write_checkpoint(view)))

    def view_steps(self) -> Steps[View]:
        """Return the steps that read the ledger if it was not read yet."""
        if self._view is None:
            yield from self.refresh_steps()
        assert self._view is not None
        return self._view

    def advance(self, view: View) -> View:
        """Replace the cached view by `view`, unless the cached one is newer; return the result."""
        with self._mutex:
            self._view = view if self._view is None else view.merged_with(self._view)
            return self._view
