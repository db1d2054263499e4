"""Hudi's audit log of a lock: one JSON-lines object per holding, switched on by an object.

The format is Hudi's to the field: its command line refuses records with any field more.
Writing never fails a holder; a record that could not be written is logged and lost.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.base.limits import AUDIT_SWITCH_AGE_MS
from tidelock.lock.events import Audit, AuditState
from tidelock.lock.objects import LOCKS_FOLDER
from tidelock.store.contract import ObjectStore, Overwrite

AUDIT_SWITCH_KEY = f"{LOCKS_FOLDER}/audit_enabled.json"
AUDIT_FOLDER = f"{LOCKS_FOLDER}/audit"
SWITCH_FIELD = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"

logger = logging.getLogger(__name__)


class AuditLog:
    """Writes the audit records of one client.

    The switch is read when a lock is granted, at most once a minute in one process.
    """

    def __init__(self, store: ObjectStore, *, owner: str, validity_ms: int, clock: Clock) -> None:
        """Write nothing until the switch has been seen on."""
        self._store = store
        self._owner = owner
        self._validity_ms = validity_ms
        self._clock = clock
        self._enabled = False
        self._started_epoch_ms = 0
        self._lines: list[str] = []

    def note(self, entry: Audit, *, held: bool) -> None:
        """Record one change of a holding, if the switch is on."""
        if entry.state is AuditState.START:
            self._refresh()
            self._started_epoch_ms = entry.at_epoch_ms
            self._lines = []
        if not self._enabled:
            return
        self._lines.append(
            json.dumps(
                {
                    "ownerId": self._owner,
                    "transactionStartTime": self._started_epoch_ms,
                    "timestamp": entry.at_epoch_ms,
                    "state": entry.state.value,
                    "lockExpiration": entry.at_epoch_ms + self._validity_ms,
                    "lockHeld": held,
                },
                separators=(",", ":"),
            )
        )
        key = f"{AUDIT_FOLDER}/{self._started_epoch_ms}_{self._owner}.jsonl"
        body = "".join(f"{line}\n" for line in self._lines).encode()
        try:
            self._store.put(key, body, Overwrite())
        except TidelockError as error:
            logger.warning("audit record %s not written: %s", key, error)

    def _refresh(self) -> None:
        now_ms = self._clock.now().monotonic_ms
        seen = _switches.get(self._store.identity)
        if seen is None or not 0 <= now_ms - seen.at_ms < AUDIT_SWITCH_AGE_MS:
            seen = _Switch(now_ms, is_enabled(self._store))
            _switches[self._store.identity] = seen
        self._enabled = seen.enabled


@dataclass(frozen=True, slots=True)
class _Switch:
    at_ms: int
    enabled: bool


_switches: dict[str, _Switch] = {}
"""What this process last read of each store's switch: a fleet of short holdings reads it once."""


def is_enabled(store: ObjectStore) -> bool:
    """Tell whether auditing is switched on. As in Hudi, whatever cannot be read is off."""
    try:
        found = store.get(AUDIT_SWITCH_KEY)
        value = json.loads(found.body) if found is not None else {}
    except (TidelockError, ValueError) as error:
        logger.warning("audit switch %s not readable: %s", AUDIT_SWITCH_KEY, error)
        return False
    return isinstance(value, dict) and value.get(SWITCH_FIELD) is True
