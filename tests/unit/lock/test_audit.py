"""The audit log: Hudi's format and validation rules; failures never affect holders."""

from __future__ import annotations

import json

import pytest

from tidelock.core.clock import Now
from tidelock.core.errors import StoreUnreachable
from tidelock.lock import audit as trail
from tidelock.lock.audit import AUDIT_FOLDER, AUDIT_SWITCH_KEY, AuditLog, is_enabled
from tidelock.lock.events import Audit, AuditState
from tidelock.storage.contract import Create, Overwrite, PutMode, PutReply
from tidelock.storage.memory import MemoryStore

FIELDS = {
    "ownerId",
    "transactionStartTime",
    "timestamp",
    "state",
    "lockExpiration",
    "lockHeld",
}


class _HandClock:
    """A clock that is set manually."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now(self) -> Now:
        return Now(self.at_ms, self.at_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.at_ms += int(duration_ms)


def _log(store: MemoryStore, clock: _HandClock, owner: str = "me") -> AuditLog:
    return AuditLog(store, owner=owner, validity_ms=10_000, clock=clock)


def _lines(store: MemoryStore, key: str) -> list[dict[str, object]]:
    found = store.get(key)
    assert found is not None
    return [json.loads(line) for line in found.body.splitlines()]


def test_holding_is_one_file_with_hudis_six_fields() -> None:
    store, clock = MemoryStore(), _HandClock()
    trail.set_enabled(store, enabled=True)
    log = _log(store, clock)
    log.record(Audit(AuditState.START, 1_000), held=True)
    log.record(Audit(AuditState.RENEW, 2_000), held=True)
    log.record(Audit(AuditState.END, 3_000), held=True)
    lines = _lines(store, f"{AUDIT_FOLDER}/1000_me.jsonl")
    assert [line.keys() for line in lines] == [FIELDS] * 3
    assert [line["state"] for line in lines] == ["START", "RENEW", "END"]
    assert [line["timestamp"] for line in lines] == [1_000, 2_000, 3_000]
    assert [line["lockExpiration"] for line in lines] == [11_000, 12_000, 13_000]
    assert {line["transactionStartTime"] for line in lines} == {1_000}


def test_nothing_is_written_while_the_switch_is_off() -> None:
    store, clock = MemoryStore(), _HandClock()
    _log(store, clock).record(Audit(AuditState.START, 1_000), held=True)
    assert list(store.list("")) == []


def test_switch_is_read_again_after_a_minute() -> None:
    store, clock = MemoryStore(), _HandClock()
    log = _log(store, clock)
    log.record(Audit(AuditState.START, 1_000), held=True)
    trail.set_enabled(store, enabled=True)
    log.record(Audit(AuditState.START, 2_000), held=True)
    assert list(trail.audit_files(store)) == []
    clock.at_ms += 60_000
    log.record(Audit(AuditState.START, 3_000), held=True)
    assert [meta.key for meta in trail.audit_files(store)] == [f"{AUDIT_FOLDER}/3000_me.jsonl"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"true", b"{}", b'{"x":true}', b"\xff"])
def test_unreadable_switch_is_off(body: bytes) -> None:
    store = MemoryStore()
    store.put(AUDIT_SWITCH_KEY, body, Create())
    assert is_enabled(store) is False


class _FullStore(MemoryStore):
    """A store that accepts only the switch."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        if key.startswith(f"{AUDIT_FOLDER}/"):
            raise StoreUnreachable("disk full")
        return super().put(key, body, mode)


def test_failed_audit_write_does_not_affect_the_holder() -> None:
    store = _FullStore()
    trail.set_enabled(store, enabled=True)
    log = _log(store, _HandClock())
    log.record(Audit(AuditState.START, 1_000), held=True)
    assert list(trail.audit_files(store)) == []


def _entry(at: int, state: str, **changes: object) -> str:
    fields: dict[str, object] = {
        "ownerId": "me",
        "transactionStartTime": at,
        "timestamp": at,
        "state": state,
        "lockExpiration": at + 10_000,
        "lockHeld": True,
    }
    return json.dumps(fields | changes)


def _file(store: MemoryStore, name: str, *lines: str) -> None:
    body = "".join(f"{line}\n" for line in lines).encode()
    store.put(f"{AUDIT_FOLDER}/{name}.jsonl", body, Overwrite())


def _verdict(store: MemoryStore) -> tuple[trail.AuditVerdict, int, int]:
    found = trail.validate(store, drift_ms=500)
    return found.verdict, found.holdings, found.issues_found


def test_consecutive_holdings_pass() -> None:
    store = MemoryStore()
    _file(store, "a", _entry(1_000, "START"), _entry(5_000, "END"))
    _file(store, "b", _entry(5_000, "START"), _entry(9_000, "END"))
    assert _verdict(store) == (trail.AuditVerdict.PASSED, 2, 0)


def test_each_overlapping_pair_is_an_issue() -> None:
    store = MemoryStore()
    _file(store, "a", _entry(1_000, "START"), _entry(20_000, "END"))
    _file(store, "b", _entry(5_000, "START"), _entry(6_000, "END"))
    _file(store, "c", _entry(7_000, "START"), _entry(8_000, "END"))
    assert _verdict(store) == (trail.AuditVerdict.FAILED, 3, 2)


def test_window_without_an_end_extends_to_the_last_expiration() -> None:
    store = MemoryStore()
    _file(store, "a", _entry(1_000, "START"), _entry(2_000, "RENEW"))
    assert _verdict(store) == (trail.AuditVerdict.WARNING, 1, 1)
    _file(store, "b", _entry(11_500, "START"), _entry(13_000, "END"))
    assert _verdict(store) == (trail.AuditVerdict.FAILED, 2, 2)
    _file(store, "b", _entry(12_000, "START"), _entry(13_000, "END"))
    assert _verdict(store) == (trail.AuditVerdict.WARNING, 2, 1)


def test_window_without_a_start_begins_at_the_time_in_the_file_name() -> None:
    store = MemoryStore()
    _file(store, "a", _entry(1_000, "START"), _entry(5_000, "END"))
    _file(store, "b", _entry(6_000, "RENEW", transactionStartTime=4_000), _entry(9_000, "END"))
    assert _verdict(store) == (trail.AuditVerdict.FAILED, 2, 1)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        _entry(1_000, "START", extra=1),
        _entry(1_000, "PAUSE"),
        _entry(1_000, "START", timestamp="1000"),
        _entry(1_000, "START", timestamp=True),
        _entry(1_000, "START", lockHeld=1),
    ],
)
def test_file_without_a_valid_line_is_an_error(line: str) -> None:
    store = MemoryStore()
    _file(store, "a", line)
    assert _verdict(store) == (trail.AuditVerdict.FAILED, 0, 1)


def test_invalid_line_next_to_valid_ones_is_skipped_as_in_hudi() -> None:
    store = MemoryStore()
    _file(store, "a", _entry(1_000, "START"), "garbage", _entry(2_000, "END"))
    assert _verdict(store) == (trail.AuditVerdict.PASSED, 1, 0)
    holding = trail.read_holding(store, f"{AUDIT_FOLDER}/a.jsonl")
    assert holding is not None
    assert holding.lines_skipped == 1


def test_other_files_in_the_folder_are_ignored() -> None:
    store = MemoryStore()
    store.put(f"{AUDIT_FOLDER}/readme.txt", b"hello", Create())
    assert _verdict(store) == (trail.AuditVerdict.PASSED, 0, 0)
