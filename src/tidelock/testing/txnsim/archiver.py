"""A simulated process that moves the boundary and deletes what lies behind it (F28)."""

from __future__ import annotations

from tidelock.base.errors import TidelockError
from tidelock.testing.txnsim.writer import Writer
from tidelock.txn.appending import Appended, No
from tidelock.txn.entry import Boundary, Fact, entry_key
from tidelock.txn.fold import lawful
from tidelock.txn.publishing import write_checkpoint
from tidelock.txn.view import View

_EVERY_MS = 400.0


class Archiver(Writer):
    """Boundary first, then the checkpoint that holds it, then the deletion, oldest first (S7)."""

    def archive(self) -> None:
        """Go on until killed."""
        while not self.world.healed:
            self.sleep_ms(_EVERY_MS * (0.5 + self.world.random()))
            try:
                self._once()
            except TidelockError as error:
                self.world.say(self.name, f"archives nothing: {error}")
        self.idle = True

    def _once(self) -> None:
        ledger = self.txns.ledger
        ledger.refresh()

        def propose(view: View) -> Fact | No[str]:
            fact = Boundary(min(view.published, view.position - 1))
            if fact.position <= view.fold.boundary + 1:
                return No("nothing to archive")
            problem = lawful(fact, view.fold)
            return fact if problem is None else No(problem)

        result = ledger.append(propose)
        if not isinstance(result, Appended):
            return
        ledger.publish()
        view = ledger.run(write_checkpoint(ledger.view, every=1))
        ledger.adopt(view)
        # Only a checkpoint that is known to hold the boundary makes names below it void.
        for position in range(1, view.boundary + 1):
            self.client.delete(entry_key(position))
