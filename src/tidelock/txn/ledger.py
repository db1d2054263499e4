"""The ledger of a table, for threads: runs the protocol's steps and remembers what was read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.ids import IdSource, SystemIds
from tidelock.store.contract import ObjectStore
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.archive import HISTORY_FOLDER
from tidelock.table.timeline.instant import State
from tidelock.txn.appending import Appended, Declined, Doubtful, Proposer, append
from tidelock.txn.effects import Steps, World
from tidelock.txn.entry import Entry
from tidelock.txn.fold import Fold
from tidelock.txn.foreign import Importer, Look
from tidelock.txn.publishing import Publisher, write_checkpoint
from tidelock.txn.reading import forward, load
from tidelock.txn.view import View

D = TypeVar("D")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Shown:
    """The ledger when all of it was on the timeline, and what this process put there."""

    view: View
    landed: tuple[Entry, ...] = ()


class Ledger:
    """One process's view of a table's ledger, and the ways to extend it.

    Guarantees: the view only moves forward; every entry in it was read, and every commit up to the
    position that `refresh` returns is on the timeline. May be used by several threads.
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
        admit: Callable[[], Steps[None]] | None = None,
        tell: Callable[[Sequence[Entry]], None] | None = None,
        checks_zones: bool = True,
    ) -> None:
        """Read nothing yet. `owner` names this process in entries; drawn if not given."""
        self.world = World(store, clock or SystemClock(), ids or SystemIds())
        self.owner = owner or self.world.ids.uuid()
        self.publisher = Publisher(timeline_folder)
        self._importer = Importer(
            timeline_folder, history_folder, self.owner, self.publisher, checks_zones
        )
        self._admit = admit
        self._tell = tell
        self._look: Look | None = None
        self._mutex = threading.Lock()
        self._view: View | None = None

    @property
    def store(self) -> ObjectStore:
        """The table's store."""
        return self.world.store

    @property
    def view(self) -> View:
        """What is known by now; reads the ledger if nothing is."""
        return self._view if self._view is not None else self.run(self.view_steps())

    @property
    def known_position(self) -> int:
        """The last entry that was read; 0 if none was. Reads nothing."""
        return 0 if self._view is None else self._view.position

    @property
    def begun(self) -> Mapping[str, tuple[State, int]]:
        """Writes that had begun and were not decided when the timeline was looked at last.

        Of each the furthest state, and when that was written.
        """
        return {} if self._look is None else self._look.begun

    @property
    def fold(self) -> Fold:
        """The fold as far as it is known."""
        return self.view.fold

    def refresh(self, *, foreign: bool = True) -> Fold:
        """Read what is new, publish what is not on the timeline, and return the fold.

        With `foreign` commits on the timeline that have no entry get one; before that it is made
        sure that the table is one that may be changed. Without it only the ledger is read: for
        whoever looks at the table again before anything is decided.
        """
        return self.run(self.refresh_steps(foreign=foreign))

    def append(
        self, propose: Proposer[D], *, check_held: Callable[[], object] | None = None
    ) -> Appended | Declined[D] | Doubtful:
        """Append what `propose` says of the ledger as it is; see `tidelock.txn.appending`."""
        return self.run(self.append_steps(propose), check_held)

    def publish(self, *, own: int = 0, check_held: Callable[[], object] | None = None) -> None:
        """Put every commit on the timeline that is not there, and checkpoint now and then."""
        self.run(self.publish_steps(own=own), check_held)

    def since(self, base: int) -> tuple[Entry, ...] | None:
        """Return the entries after `base` as far as they are known; None if forgotten."""
        return self.view.since(base)

    def run(self, steps: Steps[R], check_held: Callable[[], object] | None = None) -> R:
        """Carry out steps of the protocol."""
        return self.world.perform(steps, check_held)

    def refresh_steps(self, *, foreign: bool = True) -> Steps[Fold]:
        """Return the steps of `refresh`. Whoever comes cold looks for foreign commits, too."""
        foreign = foreign or self._look is None
        if foreign and self._admit is not None:
            yield from self._admit()
        view = yield from (load() if self._view is None else forward(self._view))
        self.adopt(view)
        if foreign:
            # C100: before anything is published, since Java may have taken it back.
            yield from self.look_steps()
        view = yield from self.publisher.publish((yield from self.view_steps()))
        return self.adopt(view).fold

    def look_steps(self) -> Steps[Fold]:
        """Return the steps that look for commits on the timeline that have no entry (C34).

        One listing, if there are none. Of the ledger nothing is read then.
        """
        known = yield from self.view_steps()
        view, look = yield from self._importer.look(known, self._look)
        # Who comes cold adopts what is there; that is no news.
        if self._tell is not None and self._look is not None:
            self._tell(view.since(known.position) or ())
        self._look = look
        return self.adopt(view).fold

    def append_steps(self, propose: Proposer[D]) -> Steps[Appended | Declined[D] | Doubtful]:
        """Return the steps of `append`."""
        view = yield from self.view_steps()
        result = yield from append(view, propose, owner=self.owner)
        self.adopt(result.view)
        return result

    def publish_steps(self, *, own: int = 0) -> Steps[None]:
        """Return the steps of `publish`."""
        yield from self.settle_steps((yield from self.put_steps(own=own)))

    def put_steps(self, *, own: int = 0) -> Steps[Shown]:
        """Return the steps that put every commit on the timeline; `settle_steps` come after."""
        view = yield from self.view_steps()
        view, landed = yield from self.publisher.put(view, own=own)
        self.adopt(view)
        return Shown(view, landed)

    def settle_steps(self, shown: Shown) -> Steps[None]:
        """Return the steps that look back at what was put there, and checkpoint now and then."""
        view = yield from self.publisher.look_back(shown.view, shown.landed)
        self.adopt(view)
        self.adopt((yield from write_checkpoint(view)))

    def view_steps(self) -> Steps[View]:
        """Return the steps that make sure that the ledger was read."""
        if self._view is None:
            yield from self.refresh_steps()
        assert self._view is not None
        return self._view

    def adopt(self, view: View) -> View:
        """Take over what steps have read, unless more is known already."""
        with self._mutex:
            self._view = view if self._view is None else view.joined(self._view)
            return self._view
