"""The table's lock on the page: who holds it, and who waits for it, as far as anybody can know.

The storage lock's record tells its holder. Any other lock is asked through its provider, if the
dashboard was started with the settings of one; some have a queue, and tell its length. Without one
the waiters leave no trace at the lock: ours say that they wait (C103), and Java's do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.lock.config import LockSettings
from tidelock.lock.inspect import Inspection, inspect_lock
from tidelock.lock.provider import Holder, LockProvider
from tidelock.lockproviders.keys import of_table
from tidelock.lockproviders.registry import is_storage, open_provider, provider_name, short_name
from tidelock.store.contract import ObjectStore
from tidelock.table.properties_file import load_properties
from tidelock.txn.waits import Waiter, waiters

WAITERS_SHOWN: Final = 50
_STORAGE: Final = "storage"


@dataclass(slots=True)
class LockWatch:
    """Looks at the lock of one table, changing nothing."""

    store: ObjectStore
    clock: Clock
    settings: Mapping[str, object]
    _provider: LockProvider | None = field(default=None)

    def look(self) -> dict[str, object]:
        """Return what there is to know. Raises: what the store raises."""
        name = provider_name(self.settings)
        if name is not None and not is_storage(name):
            return self._elsewhere(short_name(name))
        seen = inspect_lock(self.store, LockSettings.read(self.settings).lease, self.clock)
        return _stored(seen, self._waiting() if seen.exists else [])

    def _elsewhere(self, name: str) -> dict[str, object]:
        """Ask another lock; one that does not answer is told on the page."""
        try:
            if self._provider is None:
                table = load_properties(self.store)
                given = of_table(
                    self.settings, self.store.uri, name=table.name, database=table.database
                )
                self._provider = open_provider(given)
            holder = self._provider.holder()
        except TidelockError as error:
            return {**_told(name, None, []), "problem": str(error)}
        queued = holder is None or holder.waiters is not None
        return _told(name, holder, [] if queued else self._waiting())

    def _waiting(self) -> list[Waiter]:
        return waiters(self.store, self.clock.now().wall_epoch_ms)


def _stored(seen: Inspection, waiting: list[Waiter]) -> dict[str, object]:
    record = seen.record
    return {
        "provider": _STORAGE,
        "exists": seen.exists,
        "condition": seen.condition.value,
        "meaning": seen.condition.meaning,
        "owner": "" if record is None else record.owner,
        "token": 0 if record is None else record.token,
        "java": record is not None and not record.is_ours,
        "written": seen.modified_epoch_ms if seen.exists else None,
        "valid_until": None if record is None or record.expired else record.valid_until_epoch_ms,
        "problem": "" if seen.problem is None else str(seen.problem),
        "waiting": [_waiter(each) for each in waiting[:WAITERS_SHOWN]],
        "waiters": len(waiting),
    }


def _waiter(waiter: Waiter) -> dict[str, object]:
    return {
        "owner": waiter.owner,
        "host": waiter.host,
        "pid": waiter.pid,
        "since": waiter.since_epoch_ms,
    }


def _told(provider: str, holder: Holder | None, waiting: list[Waiter]) -> dict[str, object]:
    queued = holder.waiters if holder is not None else 0
    return {
        "provider": provider,
        "exists": True,
        "condition": "free" if holder is None else "held",
        "meaning": "nobody holds it" if holder is None else "as its backend tells",
        "owner": "" if holder is None else holder.owner,
        "token": 0 if holder is None else holder.token or 0,
        "java": False,
        "written": None if holder is None else holder.since_epoch_ms,
        "valid_until": None if holder is None else holder.expires_epoch_ms,
        "problem": "",
        "waiting": [_waiter(each) for each in waiting[:WAITERS_SHOWN]],
        "waiters": len(waiting) if queued is None else queued,
    }
