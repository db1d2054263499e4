"""Hudi's audit log of a lock: one JSON Lines object per holding, enabled by a switch object.

The format is exactly Hudi's: its command line rejects records with additional fields. A failure to
write an audit record is logged and never fails the holder.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidelock.core.clock import Clock
from tidelock.core.errors import InvalidInput, OutcomeUnknown, TidelockError, Unavailable
from tidelock.core.limits import AUDIT_BYTES_MAX, AUDIT_SWITCH_AGE_MS
from tidelock.core.outcome import Landed
from tidelock.lock.events import Audit, AuditState
from tidelock.lock.record_store import LOCKS_FOLDER
from tidelock.storage.contract import Busy, ObjectMeta, ObjectStore, Overwrite

AUDIT_SWITCH_KEY = f"{LOCKS_FOLDER}/audit_enabled.json"
AUDIT_FOLDER = f"{LOCKS_FOLDER}/audit"
SWITCH_FIELD = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"

logger = logging.getLogger(__name__)


class AuditLog:
    """Writes the audit records of one client.

    The switch is read when a lock is granted, at most once a minute per process.
    """

    def __init__(self, store: ObjectStore, *, owner: str, validity_ms: int, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._validity_ms = validity_ms
        self._clock = clock
        self._enabled = False
        self._started_epoch_ms = 0
        self._lines: list[str] = []

    def record(self, entry: Audit, *, held: bool) -> None:
        """Record one change of a holding, if auditing is enabled."""
        if entry.state is AuditState.START:
            self._refresh()
            self._started_epoch_ms = entry.at_epoch_ms
            self._lines = []
        if not self._enabled:
            return
        fields = {
            "ownerId": self._owner,
            "transactionStartTime": self._started_epoch_ms,
            "timestamp": entry.at_epoch_ms,
            "state": entry.state.value,
            "lockExpiration": entry.at_epoch_ms + self._validity_ms,
            "lockHeld": held,
        }
        self._lines.append(json.dumps(fields, separators=(",", ":")))
        key = f"{AUDIT_FOLDER}/{self._started_epoch_ms}_{self._owner}.jsonl"
        body = "".join(f"{line}\n" for line in self._lines).encode()
        try:
            self._store.put(key, body, Overwrite())
        except TidelockError as error:
            logger.warning("audit record %s was not written: %s", key, error)

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
"""The last read switch of each store, shared by all clients of this process."""


def is_enabled(store: ObjectStore) -> bool:
    """Return whether auditing is enabled. As in Hudi, an unreadable switch means disabled."""
    try:
        found = store.get(AUDIT_SWITCH_KEY)
        value = json.loads(found.body) if found is not None else {}
    except (TidelockError, ValueError) as error:
        logger.warning("audit switch %s cannot be read: %s", AUDIT_SWITCH_KEY, error)
        return False
    return isinstance(value, dict) and value.get(SWITCH_FIELD) is True


_SUFFIX = ".jsonl"
_FIELDS: dict[str, type] = {
    "ownerId": str,
    "transactionStartTime": int,
    "timestamp": int,
    "state": str,
    "lockExpiration": int,
    "lockHeld": bool,
}
_DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of an audit file."""

    owner: str
    started_epoch_ms: int
    at_epoch_ms: int
    state: AuditState
    expires_epoch_ms: int
    held: bool


@dataclass(frozen=True, slots=True)
class AuditedHolding:
    """One audit file: the history of one holding, written by its owner."""

    key: str
    entries: tuple[AuditEntry, ...]
    lines_skipped: int

    @property
    def owner(self) -> str:
        return self.entries[0].owner

    @property
    def began_epoch_ms(self) -> int:
        """Time of the first START; without one, the start time of the first entry."""
        starts = [entry.at_epoch_ms for entry in self.entries if entry.state is AuditState.START]
        return starts[0] if starts else self.entries[0].started_epoch_ms

    @property
    def ended_epoch_ms(self) -> int:
        """Time of the last END; without one, the end of the last lease."""
        ends = [entry.at_epoch_ms for entry in self.entries if entry.state is AuditState.END]
        return ends[-1] if ends else self.entries[-1].expires_epoch_ms

    @property
    def was_released(self) -> bool:
        return any(entry.state is AuditState.END for entry in self.entries)

    @property
    def renewals(self) -> int:
        return sum(entry.state is AuditState.RENEW for entry in self.entries)


class AuditVerdict(Enum):
    """The result of a validation, in Hudi's terms."""

    PASSED = "PASSED"
    WARNING = "WARNING"
    FAILED = "FAILED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class AuditIssue:
    """One finding of a validation."""

    is_error: bool
    message: str
    within_drift: bool = False


@dataclass(frozen=True, slots=True)
class AuditValidation:
    """The outcome of a validation."""

    verdict: AuditVerdict
    holdings: int
    issues: tuple[AuditIssue, ...]
    cause: TidelockError | None = None

    @property
    def issues_found(self) -> int:
        """Number of issues; as in Hudi, -1 if the audit files could not be read."""
        return -1 if self.verdict is AuditVerdict.ERROR else len(self.issues)


def set_enabled(store: ObjectStore, *, enabled: bool) -> None:
    """Write the switch. Holders read it at their next acquire, at most a minute later.

    Raises: `Unavailable`, `OutcomeUnknown`, and the errors of `ObjectStore.put`.
    """
    body = json.dumps({SWITCH_FIELD: enabled}, separators=(",", ":")).encode()
    reply = store.put(AUDIT_SWITCH_KEY, body, Overwrite())
    where = f"{store.uri}/{AUDIT_SWITCH_KEY}"
    if isinstance(reply, Busy):
        raise Unavailable(f"{where} was not written: {reply.cause}", hint="try again")
    if not isinstance(reply, Landed):
        raise OutcomeUnknown(f"{where} may not have been written", hint="run the command again")


def audit_files(store: ObjectStore) -> Iterator[ObjectMeta]:
    """Yield the audit files, ordered by the start of the holding in their names."""
    for meta in store.list(f"{AUDIT_FOLDER}/"):
        if meta.key.endswith(_SUFFIX):
            yield meta


def read_holding(store: ObjectStore, key: str) -> AuditedHolding | None:
    """Return the holding in the audit file `key`; None if no line can be parsed."""
    found = store.get(key, end=AUDIT_BYTES_MAX + 1)
    if found is None or len(found.body) > AUDIT_BYTES_MAX:
        return None
    parsed = [_entry(line) for line in found.body.splitlines() if line.strip()]
    entries = tuple(entry for entry in parsed if entry is not None)
    return AuditedHolding(key, entries, len(parsed) - len(entries)) if entries else None


def validate(store: ObjectStore, *, drift_ms: int) -> AuditValidation:
    """Check by Hudi's rules that every holding ended and that no two overlap."""
    holdings: list[AuditedHolding] = []
    issues: list[AuditIssue] = []
    try:
        for meta in audit_files(store):
            holding = read_holding(store, meta.key)
            if holding is None:
                message = f"{_name(meta.key)} cannot be parsed"
                issues.append(AuditIssue(is_error=True, message=message))
            else:
                holdings.append(holding)
    except TidelockError as error:
        issue = AuditIssue(is_error=True, message=error.message)
        return AuditValidation(AuditVerdict.ERROR, len(holdings), (issue,), error)
    issues += [
        AuditIssue(is_error=False, message=f"{_name(holding.key)} did not end gracefully")
        for holding in holdings
        if not holding.was_released
    ]
    issues += _overlaps(holdings, drift_ms)
    if any(issue.is_error for issue in issues):
        verdict = AuditVerdict.FAILED
    else:
        verdict = AuditVerdict.WARNING if issues else AuditVerdict.PASSED
    return AuditValidation(verdict, len(holdings), tuple(issues))


def clean_up(store: ObjectStore, clock: Clock, *, age_days: int, dry_run: bool) -> list[str]:
    """Delete audit files not modified for `age_days`; return their keys, also in a dry run."""
    if age_days < 0:
        raise InvalidInput(f"age: expected 0 or more days, got {age_days}", hint="use 0 or more")
    # List completely before deleting: some stores give wrong listings during deletions.
    before_epoch_ms = clock.now().wall_epoch_ms - age_days * _DAY_MS
    old = [meta.key for meta in audit_files(store) if meta.modified_epoch_ms < before_epoch_ms]
    return old if dry_run else _delete(store, old)


def delete_all(store: ObjectStore) -> list[str]:
    return _delete(store, [meta.key for meta in audit_files(store)])


def _delete(store: ObjectStore, keys: list[str]) -> list[str]:
    for key in keys:
        store.delete(key)
    return keys


def _overlaps(holdings: list[AuditedHolding], drift_ms: int) -> Iterator[AuditIssue]:
    ordered = sorted(holdings, key=lambda holding: (holding.began_epoch_ms, holding.key))
    for number, earlier in enumerate(ordered):
        for later in ordered[number + 1 :]:
            overlap_ms = earlier.ended_epoch_ms - later.began_epoch_ms
            if overlap_ms <= 0:
                break  # sorted by start: all further holdings start later
            within = overlap_ms <= drift_ms
            message = f"{_name(later.key)} began {overlap_ms} ms before {_name(earlier.key)} ended"
            if within:
                message += (
                    f"; this is within the clock drift of {drift_ms} ms and may be clock skew"
                )
            yield AuditIssue(is_error=True, message=message, within_drift=within)


def _entry(line: bytes) -> AuditEntry | None:
    """Return the entry of one line, parsed as strictly as by Hudi's command line."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.keys() != _FIELDS.keys():
        return None
    typed = all(type(fields[name]) is expected for name, expected in _FIELDS.items())
    if not typed or fields["state"] not in AuditState.__members__:
        return None
    return AuditEntry(
        owner=fields["ownerId"],
        started_epoch_ms=fields["transactionStartTime"],
        at_epoch_ms=fields["timestamp"],
        state=AuditState[fields["state"]],
        expires_epoch_ms=fields["lockExpiration"],
        held=fields["lockHeld"],
    )


def _name(key: str) -> str:
    return key.rpartition("/")[2]
