"""Reading Hudi's audit files: what holdings there were, whether any two met, and clearing up.

The rules are Hudi's (`validate_audit_lock`, `cleanup_audit_lock`), weaknesses included: windows
come from the holders' own wall clocks, so two machines whose clocks differ can seem to overlap.
Such a pair fails the validation here as it does there; it is marked as within the drift.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidelock.base.clock import Clock
from tidelock.base.errors import InvalidInput, OutcomeUnknown, TidelockError, Unavailable
from tidelock.base.limits import AUDIT_BYTES_MAX
from tidelock.base.outcome import Landed
from tidelock.lock.audit import AUDIT_FOLDER, AUDIT_SWITCH_KEY, SWITCH_FIELD
from tidelock.lock.events import AuditState
from tidelock.store.contract import Busy, ObjectMeta, ObjectStore, Overwrite

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
class Entry:
    """One line of an audit file."""

    owner: str
    started_epoch_ms: int
    at_epoch_ms: int
    state: AuditState
    expires_epoch_ms: int
    held: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """One audit file: the life of one holding as its owner wrote it."""

    key: str
    entries: tuple[Entry, ...]
    lines_skipped: int

    @property
    def owner(self) -> str:
        """Who held the lock."""
        return self.entries[0].owner

    @property
    def began_epoch_ms(self) -> int:
        """The first START; without one, the start that the file is named after."""
        starts = [entry.at_epoch_ms for entry in self.entries if entry.state is AuditState.START]
        return starts[0] if starts else self.entries[0].started_epoch_ms

    @property
    def ended_epoch_ms(self) -> int:
        """The last END; without one, when the last lease written would have run out."""
        ends = [entry.at_epoch_ms for entry in self.entries if entry.state is AuditState.END]
        return ends[-1] if ends else self.entries[-1].expires_epoch_ms

    @property
    def was_released(self) -> bool:
        """Tell whether the file has an END."""
        return any(entry.state is AuditState.END for entry in self.entries)

    @property
    def renewals(self) -> int:
        """How often the lease was renewed."""
        return sum(entry.state is AuditState.RENEW for entry in self.entries)


class Verdict(Enum):
    """What a validation ends with, in Hudi's words."""

    PASSED = "PASSED"
    WARNING = "WARNING"
    FAILED = "FAILED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that a validation found."""

    is_error: bool
    says: str
    within_drift: bool = False


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome of a validation. As in Hudi, an ERROR has found -1 issues."""

    verdict: Verdict
    holdings: int
    issues: tuple[Issue, ...]
    cause: TidelockError | None = None

    @property
    def issues_found(self) -> int:
        """How many issues there are; -1 when the trail could not be read."""
        return -1 if self.verdict is Verdict.ERROR else len(self.issues)


def set_enabled(store: ObjectStore, *, enabled: bool) -> None:
    """Write the switch. Holders look at it when they next acquire, within a minute.

    Raises: `Unavailable`, `OutcomeUnknown`, and what `ObjectStore.put` raises.
    """
    body = json.dumps({SWITCH_FIELD: enabled}, separators=(",", ":")).encode()
    reply = store.put(AUDIT_SWITCH_KEY, body, Overwrite())
    where = f"{store.uri}/{AUDIT_SWITCH_KEY}"
    if isinstance(reply, Busy):
        raise Unavailable(f"{where} was not written: {reply.cause}", hint="try again")
    if not isinstance(reply, Landed):
        raise OutcomeUnknown(f"{where} may not have been written", hint="run it again")


def audit_files(store: ObjectStore) -> Iterator[ObjectMeta]:
    """Yield the audit files, oldest holding first as far as their names tell."""
    for meta in store.list(f"{AUDIT_FOLDER}/"):
        if meta.key.endswith(_SUFFIX):
            yield meta


def read_holding(store: ObjectStore, key: str) -> Holding | None:
    """Return the holding in the audit file `key`; None if not one line of it can be read."""
    found = store.get(key, end=AUDIT_BYTES_MAX + 1)
    if found is None or len(found.body) > AUDIT_BYTES_MAX:
        return None
    entries: list[Entry] = []
    skipped = 0
    for line in found.body.splitlines():
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is None:
            skipped += 1
        else:
            entries.append(entry)
    return Holding(key, tuple(entries), skipped) if entries else None


def validate(store: ObjectStore, *, drift_ms: int) -> Validation:
    """Check that every holding ended and that no two of them met, by Hudi's rules."""
    holdings: list[Holding] = []
    issues: list[Issue] = []
    try:
        for meta in audit_files(store):
            holding = read_holding(store, meta.key)
            if holding is None:
                issues.append(Issue(is_error=True, says=f"{_name(meta.key)} cannot be parsed"))
            else:
                holdings.append(holding)
    except TidelockError as error:
        issue = Issue(is_error=True, says=error.message)
        return Validation(Verdict.ERROR, len(holdings), (issue,), error)
    issues += [
        Issue(is_error=False, says=f"{_name(holding.key)} did not end gracefully")
        for holding in holdings
        if not holding.was_released
    ]
    issues += _overlaps(holdings, drift_ms)
    if any(issue.is_error for issue in issues):
        verdict = Verdict.FAILED
    else:
        verdict = Verdict.WARNING if issues else Verdict.PASSED
    return Validation(verdict, len(holdings), tuple(issues))


def clean_up(store: ObjectStore, clock: Clock, *, age_days: int, dry_run: bool) -> list[str]:
    """Delete audit files not modified for `age_days`; return their keys, also in a dry run."""
    if age_days < 0:
        raise InvalidInput(f"an age of {age_days} days cannot be", hint="use 0 or more")
    # The listing runs to its end first: some stores list badly what is deleted meanwhile.
    before_epoch_ms = clock.now().wall_epoch_ms - age_days * _DAY_MS
    old = [meta.key for meta in audit_files(store) if meta.modified_epoch_ms < before_epoch_ms]
    return old if dry_run else _deleted(store, old)


def delete_all(store: ObjectStore) -> list[str]:
    """Delete every audit file; return their keys."""
    return _deleted(store, [meta.key for meta in audit_files(store)])


def _deleted(store: ObjectStore, keys: list[str]) -> list[str]:
    for key in keys:
        store.delete(key)
    return keys


def _overlaps(holdings: list[Holding], drift_ms: int) -> Iterator[Issue]:
    ordered = sorted(holdings, key=lambda holding: (holding.began_epoch_ms, holding.key))
    for number, earlier in enumerate(ordered):
        for later in ordered[number + 1 :]:
            overlap_ms = earlier.ended_epoch_ms - later.began_epoch_ms
            if overlap_ms <= 0:
                break  # sorted by start: whatever comes later starts later still
            within = overlap_ms <= drift_ms
            says = f"{_name(later.key)} began {overlap_ms} ms before {_name(earlier.key)} ended"
            if within:
                says += f"; that is within the clock drift of {drift_ms} ms and may be skew only"
            yield Issue(is_error=True, says=says, within_drift=within)


def _entry(line: bytes) -> Entry | None:
    """Return the entry of one line, read as strictly as Hudi's command line reads it."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.keys() != _FIELDS.keys():
        return None
    if any(type(fields[name]) is not wanted for name, wanted in _FIELDS.items()):
        return None
    if fields["state"] not in AuditState.__members__:
        return None
    return Entry(
        owner=fields["ownerId"],
        started_epoch_ms=fields["transactionStartTime"],
        at_epoch_ms=fields["timestamp"],
        state=AuditState[fields["state"]],
        expires_epoch_ms=fields["lockExpiration"],
        held=fields["lockHeld"],
    )


def _name(key: str) -> str:
    return key.rpartition("/")[2]
