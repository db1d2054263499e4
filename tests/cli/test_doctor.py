"""`lock doctor` reports every kind of damage, and repairs it with conditional writes after a
backup."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.program import LOCK_FILE, TOKENS_FILE, Ended, Program, java_record, now_ms, plant
from tidelock.core.clock import Now
from tidelock.core.errors import Conflict, PermissionDenied
from tidelock.core.limits import BROKEN_BYTES_MAX, RECORD_BYTES_MAX
from tidelock.core.system import SystemClock, SystemIds
from tidelock.inspect.findings import Examination, Level
from tidelock.inspect.lock_doctor import examine_lock, repair_lock
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord, TokenCounter, encode, encode_counter
from tidelock.lock.record_store import LOCK_KEY, TOKENS_KEY
from tidelock.storage.contract import Create, ObjectMeta, Overwrite, PutMode, PutReply, StoredObject
from tidelock.storage.memory import MemoryStore

LEASE = Lease(validity_ms=10_000, renew_ms=1_000)
DAMAGE = [
    (b"", "empty"),
    (b'{"expired":false,"validU', "truncated JSON"),
    (b"not json at all", "not JSON"),
    (b"\xff\xfe\x00", "not UTF-8"),
    (b"[]", "got a list"),
    (b"null", "got a null"),
    (b"{}", "field 'expired' is missing"),
    (b'{"expired":"no","validUntil":1,"owner":"x"}', "expected true or false, got a string"),
    (
        b'{"expired":false,"validUntil":"soon","owner":"x"}',
        "'validUntil': expected an integer, got a string",
    ),
    (
        b'{"expired":false,"validUntil":1.5,"owner":"x"}',
        "'validUntil': expected an integer, got a number",
    ),
    (b'{"expired":false,"validUntil":1,"owner":null}', "'owner': expected a string, got a null"),
    (b'{"expired":false,"validUntil":-1,"owner":"x"}', "expected 0 to"),
    (b"{" + b" " * RECORD_BYTES_MAX + b"}", "larger than"),
]


BEYOND_ANY_RANGE = 10**15
"""Without its counter a lock continues from the clock: a range above the record may be in use."""


def _finding(ended: Ended, about: str) -> dict[str, str]:
    found: dict[str, str] = next(f for f in ended.facts["findings"] if f["about"] == about)
    return found


def _copies(table: Path) -> list[Path]:
    return sorted((table / ".hoodie/.locks").glob("*.broken-*"))


@pytest.mark.parametrize(("body", "says"), DAMAGE)
def test_damage_is_reported_and_not_repaired_by_default(
    tidelock: Program, table: Path, body: bytes, says: str
) -> None:
    path = plant(table, body)
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert ended.code == 7
    assert says in _finding(ended, "record")["message"]
    assert _finding(ended, "record")["fix"]
    assert path.read_bytes() == body
    assert "--fix" in tidelock("lock", "doctor", str(table)).out


@pytest.mark.parametrize(("body", "says"), DAMAGE)
def test_fix_backs_up_and_repairs_damage_and_the_lock_is_acquirable(
    tidelock: Program, table: Path, body: bytes, says: str
) -> None:
    del says
    last = tidelock("lock", "acquire", str(table), "--detach", "--json").facts["token"]
    plant(table, body)
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    assert ended.code == 0
    assert [copy.read_bytes() for copy in _copies(table)] == [body]
    assert json.loads((table / LOCK_FILE).read_bytes())["expired"] is True
    again = tidelock("lock", "acquire", str(table), "--no-wait", "--detach", "--json").facts
    assert again["token"] > last


def test_fix_reports_each_step_as_text(tidelock: Program, table: Path) -> None:
    plant(table, b"")
    ended = tidelock("lock", "doctor", str(table), "--fix")
    assert ended.code == 0
    assert "PROBLEM" in ended.out
    assert "saved the old bytes" in ended.out
    assert "replaced the record" in ended.out


def test_record_of_a_newer_format_is_never_repaired(tidelock: Program, table: Path) -> None:
    body = b'{"expired":true,"validUntil":1,"owner":"x","format":99}'
    path = plant(table, body)
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    assert ended.code == 7
    assert "format 99" in _finding(ended, "record")["message"]
    assert "upgrade" in _finding(ended, "record")["advice"]
    assert path.read_bytes() == body
    assert ended.facts["fixed"] == []


@pytest.mark.parametrize(
    ("until", "says", "code"),
    [
        (lambda: now_ms() * 1000, "looks like microseconds", 7),
        (lambda: now_ms() * 1_000_000, "looks like nanoseconds", 7),
        (lambda: now_ms() + 40 * 24 * 3_600_000, "clock of java-1 was wrong", 7),
        (lambda: now_ms() // 1000, "looks like seconds", 0),
        (lambda: now_ms() + 60_000, "held by java-1", 0),
        (lambda: now_ms() - 300_000, "can be taken over in", 0),
        (lambda: now_ms() - 3_600_000, "never released", 0),
    ],
)
def test_impossible_time_is_explained(
    tidelock: Program, table: Path, until: Callable[[], int], says: str, code: int
) -> None:
    path = plant(table, java_record(expired=False, valid_until_epoch_ms=until()))
    before = path.read_bytes()
    # Ten minutes of drift: a record that has just expired stays in doubt during this test.
    drift = ["--prop", "tidelock.lock.clock.drift.ms=600000"]
    ended = tidelock("lock", "doctor", str(table), *drift, "--fix", "--json")
    assert ended.code == code
    assert says in _finding(ended, "record")["message"]
    assert path.read_bytes() == before


def test_healthy_lock_has_no_findings(tidelock: Program, table: Path) -> None:
    assert tidelock("lock", "doctor", str(table), "--json").facts["healthy"] is True
    tidelock("lock", "acquire", str(table), "--for", "0")
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert ended.code == 0
    assert {found["level"] for found in ended.facts["findings"]} == {"fine"}


def test_missing_folder_is_not_created(tidelock: Program, tmp_path: Path) -> None:
    ended = tidelock("lock", "doctor", str(tmp_path / "typo"), "--fix", "--json")
    assert ended.code == 0
    assert "no such folder" in _finding(ended, "resource")["message"]
    assert not (tmp_path / "typo").exists()


def test_unreadable_counter_is_backed_up_and_set_above_every_token(
    tidelock: Program, table: Path
) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    plant(table, b"garbage", name=TOKENS_FILE)
    assert tidelock("lock", "doctor", str(table)).code == 7
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    assert ended.code == 0
    assert [copy.read_bytes() for copy in _copies(table)] == [b"garbage"]
    assert json.loads((table / TOKENS_FILE).read_bytes())["ceiling"] > BEYOND_ANY_RANGE


def test_counter_below_the_record_is_raised(tidelock: Program, table: Path) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    plant(table, encode_counter(TokenCounter(5, "x:1")), name=TOKENS_FILE)
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert (ended.code, _finding(ended, "tokens")["level"]) == (7, "problem")
    assert tidelock("lock", "doctor", str(table), "--fix").code == 0
    assert json.loads((table / TOKENS_FILE).read_bytes())["ceiling"] == 2000


def test_missing_counter_is_rewritten(tidelock: Program, table: Path) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    (table / TOKENS_FILE).unlink()
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert (ended.code, _finding(ended, "tokens")["level"]) == (0, "note")
    assert tidelock("lock", "doctor", str(table), "--fix").code == 0
    assert json.loads((table / TOKENS_FILE).read_bytes())["ceiling"] > BEYOND_ANY_RANGE


def test_tokens_increase_when_record_and_counter_are_both_damaged(
    tidelock: Program, table: Path
) -> None:
    plant(table, b'{"expired":false,"token":7000,"tokenCeiling":8000')
    plant(table, b'{"ceiling": 12000, oops', name=TOKENS_FILE)
    assert tidelock("lock", "doctor", str(table), "--fix").code == 0
    assert len(_copies(table)) == 2
    taken = tidelock("lock", "acquire", str(table), "--detach", "--json").facts
    assert taken["token"] > 12_000


def test_leftover_files_are_reported(tidelock: Program, table: Path) -> None:
    plant(table, b"x", name=f"{LOCK_FILE}.broken-1")
    plant(table, b"x", name=".hoodie/.locks/.tidelock-probe/dead")
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    messages = [f["message"] for f in ended.facts["findings"] if f["about"] == "leftovers"]
    assert ended.code == 0
    assert "broken-1" in messages[0]
    assert ".tidelock-probe/dead" in messages[1]
    assert (table / f"{LOCK_FILE}.broken-1").exists()


class _ElsewhereStore(MemoryStore):
    """A store that appears to be on another machine, whose clock may differ."""

    skew_ms = 0

    @property
    def uri(self) -> str:
        return "s3://bucket/table"

    def head(self, key: str) -> ObjectMeta | None:
        found = super().head(key)
        if found is None:
            return None
        at_ms = (found.modified_epoch_ms + self.skew_ms) // 1000 * 1000
        return ObjectMeta(key, found.size_bytes, found.version, at_ms)


def _examined(store: MemoryStore) -> Examination:
    return examine_lock(store, LEASE, SystemClock(), SystemIds())


def _messages(examination: Examination, about: str) -> tuple[Level, str]:
    found = next(f for f in examination.findings if f.about == about)
    return found.level, found.message


@pytest.mark.parametrize(
    ("skew_ms", "level", "says"),
    [
        (0, Level.OK, "agree"),
        (-60_000, Level.PROBLEM, "ahead of the store's"),
        (60_000, Level.PROBLEM, "behind the store's"),
    ],
)
def test_local_clock_is_compared_with_the_store_clock(
    skew_ms: int, level: Level, says: str
) -> None:
    store = _ElsewhereStore()
    store.skew_ms = skew_ms
    examination = _examined(store)
    assert _messages(examination, "clock")[0] is level
    assert says in _messages(examination, "clock")[1]
    assert examination.exit_code == (0 if level is Level.OK else 1)
    assert list(store.list("")) == []


class _CarelessStore(MemoryStore):
    """A store that ignores conditions."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return super().put(key, body, Overwrite())


def test_store_that_ignores_conditions_is_detected() -> None:
    examination = _examined(_CarelessStore())
    assert _messages(examination, "store")[0] is Level.PROBLEM
    assert "If-None-Match" in _messages(examination, "store")[1]
    assert examination.exit_code == 10


class _ReadOnlyStore(MemoryStore):
    """A store that refuses writes."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        raise PermissionDenied("403 on put", hint="ask for write access")


class _ClosedStore(_ReadOnlyStore):
    """A store that refuses all access."""

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        raise PermissionDenied("403 on get")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        raise PermissionDenied("403 on list")


@pytest.mark.parametrize(
    ("store", "about"), [(_ReadOnlyStore(), "store"), (_ClosedStore(), "record")]
)
def test_missing_permissions_are_reported(store: MemoryStore, about: str) -> None:
    examination = _examined(store)
    assert "403" in _messages(examination, about)[1]
    assert examination.exit_code == 9


def test_state_that_changed_since_examination_is_not_repaired() -> None:
    store = MemoryStore()
    store.put(LOCK_KEY, b"broken", Create())
    examination = _examined(store)
    live = encode(LockRecord(expired=False, valid_until_epoch_ms=now_ms() + 60_000, owner="o"))
    store.put(LOCK_KEY, live, Overwrite())
    with pytest.raises(Conflict, match="changed"):
        repair_lock(examination, store, SystemClock(), SystemIds())
    found = store.get(LOCK_KEY)
    assert found is not None
    assert found.body == live
    assert store.get(TOKENS_KEY) is None


class _RacingStore(MemoryStore):
    """A store where another client writes the record just before our write."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        if key == LOCK_KEY and not isinstance(mode, Overwrite | Create):
            super().put(key, b"somebody else's", Overwrite())
        return super().put(key, body, mode)


def test_record_changed_just_before_the_write_is_not_replaced() -> None:
    store = _RacingStore()
    store.put(LOCK_KEY, b"broken", Create())
    examination = _examined(store)
    with pytest.raises(Conflict):
        repair_lock(examination, store, SystemClock(), SystemIds())
    found = store.get(LOCK_KEY)
    assert found is not None
    assert found.body == b"somebody else's"


def test_object_too_large_to_back_up_is_not_replaced(tidelock: Program, table: Path) -> None:
    path = plant(table, b"x" * (BROKEN_BYTES_MAX + 1))
    ended = tidelock("lock", "doctor", str(table), "--fix")
    assert ended.code == 10
    assert path.stat().st_size == BROKEN_BYTES_MAX + 1
    assert _copies(table) == []


def test_clock_replaces_the_counter_when_no_token_is_known() -> None:
    class Late(SystemClock):
        def now(self) -> Now:
            return Now(0, 1_800_000_000_000)

    store = MemoryStore()
    store.put(LOCK_KEY, b"", Create())
    repair_lock(_examined(store), store, Late(), SystemIds())
    found = store.get(TOKENS_KEY)
    assert found is not None
    assert json.loads(found.body)["ceiling"] > 1_800_000_000_000_000
