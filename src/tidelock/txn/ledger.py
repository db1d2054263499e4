"""The ledger of a table, for threads: runs the protocol's steps and remembers what was read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.ids import IdSource, SystemIds
from tidelock.store.contract import ObjectStore
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.txn.appending import Appended, Declined, Doubtful, Proposer, append
from tidelock.txn.effects import Steps, World
from tidelock.txn.entry import Entry
from tidelock.txn.fold import Fold
from tidelock.txn.foreign import import_foreign
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
        owner: str = "",
    ) -> None:
        """Read nothing yet. `owner` names this process in entries; drawn if not given."""
        self.world = World(store, clock or SystemClock(), ids or SystemIds())
        self.owner = owner or self.world.ids.uuid()
        self.publisher = Publisher(timeline_folder)
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
    def fold(self) -> Fold:
        """The fold as far as it is known."""
        return self.view.fold

    def refresh(self, *, foreign: bool = False) -> Fold:
        """Read what is new, publish what is not on the timeline, and return the fold.

        With `foreign` commits on the timeline that have no entry get one.
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

    def refresh_steps(self, *, foreign: bool = False) -> Steps[Fold]:
        """Return the steps of `refresh`. Whoever comes cold looks for foreign commits, too."""
        if self._view is None:
            view = yield from load()
            foreign = True
        else:
            view = yield from forward(self._view)
        view = yield from self.publisher.publish(view)
        if foreign:
            view = yield from import_foreign(
                view, folder=self.publisher.folder, owner=self.owner, publisher=self.publisher
            )
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
