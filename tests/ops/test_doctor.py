"""`lock doctor`: every kind of damage is named, and mended only by condition and after a copy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ops.program import (
    LOCK_FILE,
    TOKENS_FILE,
    Ended,
    Program,
    java_record,
    now_ms,
    plant,
)
from tidelock.base.clock import Now, SystemClock
from tidelock.base.errors import Conflict, PermissionDenied
from tidelock.base.ids import SystemIds
from tidelock.base.limits import BROKEN_BYTES_MAX, RECORD_BYTES_MAX
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LOCK_KEY, TOKENS_KEY
from tidelock.lock.record import Counter, Record, encode, encode_counter
from tidelock.ops.doctor.examining import cure, examine
from tidelock.ops.doctor.findings import Examination, Level
from tidelock.store.contract import (
    Create,
    ObjectMeta,
    Overwrite,
    PutMode,
    PutReply,
    StoredObject,
)
from tidelock.store.memory import MemoryStore

LEASE = Lease(validity_ms=10_000, renew_ms=1_000)
DAMAGE = [
    (b"", "is empty"),
    (b'{"expired":false,"validU', "ends too early"),
    (b"not json at all", "is not JSON"),
    (b"\xff\xfe\x00", "not UTF-8"),
    (b"[]", "a JSON list"),
    (b"null", "a JSON null"),
    (b"{}", "no field 'expired'"),
    (b'{"expired":"no","validUntil":1,"owner":"x"}', "'expired' is a string"),
    (b'{"expired":false,"validUntil":"soon","owner":"x"}', "'validUntil' is a string"),
    (b'{"expired":false,"validUntil":1.5,"owner":"x"}', "'validUntil' is a number"),
    (b'{"expired":false,"validUntil":1,"owner":null}', "'owner' is a null"),
    (b'{"expired":false,"validUntil":-1,"owner":"x"}', "outside 0"),
    (b"{" + b" " * RECORD_BYTES_MAX + b"}", "larger than"),
]


BEYOND_ANY_RANGE = 10**15
"""Without its counter a lock goes on from the clock: a range above the record may be under way."""


def _finding(ended: Ended, about: str) -> dict[str, str]:
    found: dict[str, str] = next(f for f in ended.facts["findings"] if f["about"] == about)
    return found


def _copies(table: Path) -> list[Path]:
    return sorted((table / ".hoodie/.locks").glob("*.broken-*"))


@pytest.mark.parametrize(("body", "says"), DAMAGE)
def test_damage_is_named_and_left_alone(
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
def test_damage_is_saved_and_mended_and_the_lock_can_be_taken(
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


def test_a_fix_is_told_step_by_step_to_people(tidelock: Program, table: Path) -> None:
    plant(table, b"")
    ended = tidelock("lock", "doctor", str(table), "--fix")
    assert ended.code == 0
    assert "PROBLEM" in ended.out
    assert "saved the old bytes" in ended.out
    assert "replaced the record" in ended.out


def test_a_record_from_the_future_is_never_mended(tidelock: Program, table: Path) -> None:
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
        (lambda: now_ms() - 300, "may be taken over in", 0),
        (lambda: now_ms() - 60_000, "never released", 0),
    ],
)
def test_a_time_that_cannot_be_is_explained(
    tidelock: Program, table: Path, until: Callable[[], int], says: str, code: int
) -> None:
    path = plant(table, java_record(expired=False, valid_until_epoch_ms=until()))
    before = path.read_bytes()
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    assert ended.code == code
    assert says in _finding(ended, "record")["message"]
    assert path.read_bytes() == before


def test_a_healthy_lock_is_healthy(tidelock: Program, table: Path) -> None:
    assert tidelock("lock", "doctor", str(table), "--json").facts["healthy"] is True
    tidelock("lock", "acquire", str(table), "--for", "0")
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert ended.code == 0
    assert {found["level"] for found in ended.facts["findings"]} == {"fine"}


def test_a_folder_that_does_not_exist_is_not_made(tidelock: Program, tmp_path: Path) -> None:
    ended = tidelock("lock", "doctor", str(tmp_path / "typo"), "--fix", "--json")
    assert ended.code == 0
    assert "no such folder" in _finding(ended, "resource")["message"]
    assert not (tmp_path / "typo").exists()


def test_an_unreadable_counter_is_saved_and_mended_above_every_token(
    tidelock: Program, table: Path
) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    plant(table, b"garbage", name=TOKENS_FILE)
    assert tidelock("lock", "doctor", str(table)).code == 7
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    assert ended.code == 0
    assert [copy.read_bytes() for copy in _copies(table)] == [b"garbage"]
    assert json.loads((table / TOKENS_FILE).read_bytes())["ceiling"] > BEYOND_ANY_RANGE


def test_a_counter_below_the_record_is_raised(tidelock: Program, table: Path) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    plant(table, encode_counter(Counter(5, "x:1")), name=TOKENS_FILE)
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert (ended.code, _finding(ended, "tokens")["level"]) == (7, "problem")
    assert tidelock("lock", "doctor", str(table), "--fix").code == 0
    assert json.loads((table / TOKENS_FILE).read_bytes())["ceiling"] == 2000


def test_a_missing_counter_is_written_again(tidelock: Program, table: Path) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    (table / TOKENS_FILE).unlink()
    ended = tidelock("lock", "doctor", str(table), "--json")
    assert (ended.code, _finding(ended, "tokens")["level"]) == (0, "note")
    assert tidelock("lock", "doctor", str(table), "--fix").code == 0
    assert json.loads((table / TOKENS_FILE).read_bytes())["ceiling"] > BEYOND_ANY_RANGE


def test_with_record_and_counter_both_damaged_tokens_still_grow(
    tidelock: Program, table: Path
) -> None:
    plant(table, b'{"expired":false,"token":7000,"tokenCeiling":8000')
    plant(table, b'{"ceiling": 12000, oops', name=TOKENS_FILE)
    assert tidelock("lock", "doctor", str(table), "--fix").code == 0
    assert len(_copies(table)) == 2
    taken = tidelock("lock", "acquire", str(table), "--detach", "--json").facts
    assert taken["token"] > 12_000


def test_leftovers_are_mentioned(tidelock: Program, table: Path) -> None:
    plant(table, b"x", name=f"{LOCK_FILE}.broken-1")
    plant(table, b"x", name=".hoodie/.locks/.tidelock-probe/dead")
    ended = tidelock("lock", "doctor", str(table), "--fix", "--json")
    said = [f["message"] for f in ended.facts["findings"] if f["about"] == "leftovers"]
    assert ended.code == 0
    assert "broken-1" in said[0]
    assert ".tidelock-probe/dead" in said[1]
    assert (table / f"{LOCK_FILE}.broken-1").exists()


class _ElsewhereStore(MemoryStore):
    """A store that seems to be on another machine, whose clock may differ."""

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
    return examine(store, LEASE, SystemClock(), SystemIds())


def _said(examination: Examination, about: str) -> tuple[Level, str]:
    found = next(f for f in examination.findings if f.about == about)
    return found.level, found.says


@pytest.mark.parametrize(
    ("skew_ms", "level", "says"),
    [
        (0, Level.FINE, "agree"),
        (-60_000, Level.PROBLEM, "ahead of the store's"),
        (60_000, Level.PROBLEM, "behind the store's"),
    ],
)
def test_the_clock_is_compared_with_the_stores(skew_ms: int, level: Level, says: str) -> None:
    store = _ElsewhereStore()
    store.skew_ms = skew_ms
    examination = _examined(store)
    assert _said(examination, "clock")[0] is level
    assert says in _said(examination, "clock")[1]
    assert examination.exit_code == (0 if level is Level.FINE else 1)
    assert list(store.list("")) == []


class _CarelessStore(MemoryStore):
    """A store that ignores conditions."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return super().put(key, body, Overwrite())


def test_a_store_that_ignores_conditions_is_found_out() -> None:
    examination = _examined(_CarelessStore())
    assert _said(examination, "store")[0] is Level.PROBLEM
    assert "If-None-Match" in _said(examination, "store")[1]
    assert examination.exit_code == 10


class _ReadOnlyStore(MemoryStore):
    """A store that lets nobody write."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        raise PermissionDenied("403 on put", hint="ask for write access")


class _ClosedStore(_ReadOnlyStore):
    """A store that lets nobody in."""

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        raise PermissionDenied("403 on get")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        raise PermissionDenied("403 on list")


@pytest.mark.parametrize(
    ("store", "about"), [(_ReadOnlyStore(), "store"), (_ClosedStore(), "record")]
)
def test_missing_permissions_are_named(store: MemoryStore, about: str) -> None:
    examination = _examined(store)
    assert "403" in _said(examination, about)[1]
    assert examination.exit_code == 9


def test_nothing_is_mended_that_changed_since_it_was_examined() -> None:
    store = MemoryStore()
    store.put(LOCK_KEY, b"broken", Create())
    examination = _examined(store)
    live = encode(Record(expired=False, valid_until_epoch_ms=now_ms() + 60_000, owner="o"))
    store.put(LOCK_KEY, live, Overwrite())
    with pytest.raises(Conflict, match="changed"):
        cure(examination, store, SystemClock(), SystemIds())
    found = store.get(LOCK_KEY)
    assert found is not None
    assert found.body == live
    assert store.get(TOKENS_KEY) is None


class _RacingStore(MemoryStore):
    """Somebody else writes the record just before we do."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        if key == LOCK_KEY and not isinstance(mode, Overwrite | Create):
            super().put(key, b"somebody else's", Overwrite())
        return super().put(key, body, mode)


def test_a_record_that_changes_at_the_last_moment_is_not_replaced() -> None:
    store = _RacingStore()
    store.put(LOCK_KEY, b"broken", Create())
    examination = _examined(store)
    with pytest.raises(Conflict):
        cure(examination, store, SystemClock(), SystemIds())
    found = store.get(LOCK_KEY)
    assert found is not None
    assert found.body == b"somebody else's"


def test_an_object_too_large_to_copy_is_not_replaced(tidelock: Program, table: Path) -> None:
    path = plant(table, b"x" * (BROKEN_BYTES_MAX + 1))
    ended = tidelock("lock", "doctor", str(table), "--fix")
    assert ended.code == 10
    assert path.stat().st_size == BROKEN_BYTES_MAX + 1
    assert _copies(table) == []


def test_without_any_trace_of_tokens_the_clock_stands_in() -> None:
    class Late(SystemClock):
        def now(self) -> Now:
            return Now(0, 1_800_000_000_000)

    store = MemoryStore()
    store.put(LOCK_KEY, b"", Create())
    cure(_examined(store), store, Late(), SystemIds())
    found = store.get(TOKENS_KEY)
    assert found is not None
    assert json.loads(found.body)["ceiling"] > 1_800_000_000_000_000
