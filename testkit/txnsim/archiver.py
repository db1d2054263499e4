"""A simulated process that moves the boundary and deletes the entries below it (F28)."""

from __future__ import annotations

from testkit.txnsim.writer import Writer
from tidelock.core.errors import TidelockError
from tidelock.txn.entries import Boundary, Fact, entry_key
from tidelock.txn.ledger_io import Appended, Decline, write_checkpoint
from tidelock.txn.state import View, validate_entry

_EVERY_MS = 400.0


class Archiver(Writer):
    """Moves the boundary, writes the checkpoint with it, then deletes entries in order (S7)."""

    def archive(self) -> None:
        """Run until killed."""
        while not self.world.healed:
            self.sleep_ms(_EVERY_MS * (0.5 + self.world.random()))
            try:
                self._once()
            except TidelockError as error:
                self.world.log(self.name, f"archives nothing: {error}")
        self.idle = True

    def _once(self) -> None:
        ledger = self.txns.ledger
        ledger.refresh()

        def propose(view: View) -> Fact | Decline[str]:
            fact = Boundary(min(view.published, view.position - 1))
            if fact.position <= view.state.boundary + 1:
                return Decline("nothing to archive")
            problem = validate_entry(fact, view.state)
            return fact if problem is None else Decline(problem)

        result = ledger.append(propose)
        if not isinstance(result, Appended):
            return
        ledger.publish()
        view = ledger.run(write_checkpoint(ledger.view, every=1))
        ledger.advance(view)
        # Keys below the boundary are invalid only once the checkpoint is known to contain it.
        for position in range(1, view.boundary + 1):
            self.client.delete(entry_key(position))
