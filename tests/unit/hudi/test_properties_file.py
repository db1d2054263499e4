"""The properties file: read while it is replaced, and replaced atomically."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tidelock.core.errors import (
    Conflict,
    DataCorrupt,
    NotFound,
    OutcomeUnknown,
    RecordFromFuture,
    StoreUnreachable,
    Unavailable,
)
from tidelock.core.javaproperties import parse_properties, render_properties
from tidelock.core.system import SeededIds
from tidelock.hudi import properties as keys
from tidelock.hudi.properties import (
    BACKUP_KEY,
    KEY,
    TableProperties,
    create_properties,
    load_properties,
    new_properties,
    update_properties,
)
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import Create, Overwrite, Unclear
from tidelock.storage.memory import MemoryStore

CRC = ".hoodie/.hoodie.properties.crc"
PROPERTIES = new_properties("t", record_keys=["id"])
BODY = render_properties(PROPERTIES.values).encode()
WITHOUT_CHECKSUM = b"".join(
    line for line in BODY.splitlines(keepends=True) if keys.CHECKSUM.encode() not in line
)


@pytest.fixture
def policy() -> ReadbackPolicy:
    return ReadbackPolicy(tries=3, clock=ManualClock(), ids=SeededIds(7))


def store_with(**bodies: bytes) -> ScriptedStore:
    store = MemoryStore("t")
    for name, body in bodies.items():
        store.put({"file": KEY, "backup": BACKUP_KEY, "crc": CRC}[name], body, Create())
    return ScriptedStore(store)


def body_at(store: ScriptedStore, key: str) -> bytes | None:
    found = store.inner.get(key)
    return None if found is None else found.body


def test_missing_properties_mean_no_table() -> None:
    with pytest.raises(NotFound, match="memory://t is not a Hudi table"):
        load_properties(MemoryStore("t"))


def test_backup_is_read_while_the_file_is_replaced() -> None:
    assert load_properties(store_with(backup=BODY)).values == PROPERTIES.values


@pytest.mark.parametrize(
    "broken", [b"", BODY[: len(BODY) // 2], BODY[:-1], WITHOUT_CHECKSUM, b"a=\\u12", b"a=b"]
)
def test_backup_is_read_while_the_file_is_truncated(broken: bytes) -> None:
    assert load_properties(store_with(file=broken, backup=BODY)).values == PROPERTIES.values


@pytest.mark.parametrize("body", [BODY[:-1], WITHOUT_CHECKSUM])
def test_hand_edited_file_is_read_without_a_backup(body: bytes, policy: ReadbackPolicy) -> None:
    store = store_with(file=body)
    assert load_properties(store).name == "t"
    assert not update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy).is_utc
    assert keys.CHECKSUM in load_properties(store).values


def test_truncated_file_is_not_mistaken_for_a_complete_one(policy: ReadbackPolicy) -> None:
    created = store_with()
    create_properties(created, PROPERTIES, policy=policy)
    body = body_at(created, KEY)
    assert body is not None
    backup = render_properties(PROPERTIES.with_changes({keys.TIMEZONE: "LOCAL"}).values).encode()
    for end in range(len(body)):
        found = load_properties(store_with(file=body[:end], backup=backup))
        assert not found.is_utc, body[:end]


@pytest.mark.parametrize("broken", [b"", b"a=\\u12"])
def test_corrupt_file_without_a_backup_is_refused_by_name(broken: bytes) -> None:
    with pytest.raises(DataCorrupt, match=f"memory://t/{KEY}"):
        load_properties(store_with(file=broken))


def test_newer_table_is_not_replaced_by_its_backup() -> None:
    newer = BODY.replace(b"hoodie.table.version=9", b"hoodie.table.version=10")
    with pytest.raises(RecordFromFuture):
        load_properties(store_with(file=newer, backup=BODY))


def test_file_that_reappears_between_two_reads_is_found() -> None:
    inner = MemoryStore("t")

    class Replacing(ScriptedStore):
        def get(self, key: str, *, start: int = 0, end: int | None = None):  # type: ignore[no-untyped-def]
            found = self.inner.get(key)
            if key == BACKUP_KEY:
                # Java has rewritten the file and deleted the backup just before this read.
                self.inner.put(KEY, BODY, Overwrite())
            return found

    assert load_properties(Replacing(inner)).name == "t"


def test_created_properties_are_loaded(policy: ReadbackPolicy) -> None:
    store = store_with()
    created = create_properties(store, PROPERTIES, policy=policy)
    assert created.values == PROPERTIES.values
    body = body_at(store, KEY)
    assert body is not None
    assert body.startswith(b"#Properties saved on 2023-11-14T")


def test_table_is_created_once(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    with pytest.raises(Conflict, match="is already a Hudi table"):
        create_properties(store, PROPERTIES, policy=policy)
    assert body_at(store, KEY) == BODY


def test_creation_with_a_lost_reply_is_resolved_as_landed(policy: ReadbackPolicy) -> None:
    store = store_with()
    store.puts.append(landing(Unclear("reset")))
    assert create_properties(store, PROPERTIES, policy=policy).name == "t"


def test_update_changes_only_its_keys_and_leaves_no_backup(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY, crc=b"stale")
    changes = {keys.METADATA_PARTITIONS: "", keys.HIVE_STYLE: None}
    updated = update_properties(store, changes, policy=policy)
    assert updated.values == PROPERTIES.with_changes(changes).values
    assert body_at(store, BACKUP_KEY) is None
    # Hadoop would refuse the file because of its stale checksum file.
    assert body_at(store, CRC) is None


def test_properties_stay_readable_throughout_an_update(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    seen: list[TableProperties] = []

    def read_between(through):  # type: ignore[no-untyped-def]
        seen.append(load_properties(store.inner))
        reply = through()
        seen.append(load_properties(store.inner))
        return reply

    store.puts.extend([read_between, read_between])
    updated = update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy)
    assert [each.values for each in seen] == [PROPERTIES.values] * 3 + [updated.values]


def test_crash_before_the_change_leaves_the_old_properties(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    store.puts.extend([None, failing(StoreUnreachable("down"))])
    with pytest.raises(StoreUnreachable):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy)
    assert load_properties(store).values == PROPERTIES.values
    assert body_at(store, BACKUP_KEY) == BODY
    assert not update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy).is_utc
    assert body_at(store, BACKUP_KEY) is None


@pytest.mark.parametrize("broken", [None, b"", BODY[:100], BODY[:-1]])
def test_update_first_repairs_an_interrupted_one(
    broken: bytes | None, policy: ReadbackPolicy
) -> None:
    store = store_with(backup=BODY) if broken is None else store_with(file=broken, backup=BODY)
    updated = update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy)
    assert updated.values == PROPERTIES.with_changes({keys.TIMEZONE: "LOCAL"}).values
    assert body_at(store, BACKUP_KEY) is None


def test_update_does_not_overwrite_a_concurrent_one(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    other = BODY + b"a=b\n"

    def update_concurrently(through):  # type: ignore[no-untyped-def]
        store.inner.put(KEY, other, Overwrite())
        return through()

    store.puts.extend([None, update_concurrently])
    with pytest.raises(Conflict, match="changed concurrently"):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy)
    assert body_at(store, KEY) == other
    assert body_at(store, BACKUP_KEY) is None


def test_lost_reply_is_resolved_by_reading_back(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    store.puts.extend([None, landing(Unclear("reset"))])
    assert not update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy).is_utc


def test_unresolved_outcome_keeps_the_backup(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    store.puts.extend([None, *[answer(Unclear("reset"))] * 3])
    with pytest.raises(OutcomeUnknown, match="the outcome of the update is unknown"):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy)
    assert body_at(store, BACKUP_KEY) == BODY


def test_without_a_backup_nothing_is_changed(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    store.puts.extend([answer(Unclear("reset"))] * 3)
    with pytest.raises(Unavailable, match="was not changed"):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, policy=policy)
    assert body_at(store, KEY) == BODY


def test_missing_table_cannot_be_updated(policy: ReadbackPolicy) -> None:
    with pytest.raises(NotFound):
        update_properties(store_with(), {}, policy=policy)
    with pytest.raises(DataCorrupt):
        update_properties(store_with(file=b"a=b"), {}, policy=policy)


def test_no_two_writes_have_the_same_bytes(policy: ReadbackPolicy) -> None:
    store = store_with(file=BODY)
    update_properties(store, {}, policy=policy)
    first = body_at(store, KEY)
    update_properties(store, {}, policy=policy)
    second = body_at(store, KEY)
    assert first is not None
    assert second is not None
    assert first != second
    assert parse_properties(first.decode()) == parse_properties(second.decode())
