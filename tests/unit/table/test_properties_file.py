"""The properties file: read while it is being replaced, and replaced without a gap."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tidelock.base.errors import (
    Conflict,
    DataCorrupt,
    NotFound,
    OutcomeUnknown,
    RecordFromFuture,
    StoreUnreachable,
    Unavailable,
)
from tidelock.base.ids import SeededIds
from tidelock.base.javaproperties import parse_properties, render_properties
from tidelock.store.contract import Create, Overwrite, Unclear
from tidelock.store.memory import MemoryStore
from tidelock.store.readback import Patience
from tidelock.table import properties as keys
from tidelock.table.properties import TableProperties, new_properties
from tidelock.table.properties_file import (
    BACKUP_KEY,
    KEY,
    create_properties,
    load_properties,
    update_properties,
)

CRC = ".hoodie/.hoodie.properties.crc"
PROPERTIES = new_properties("t", record_keys=["id"])
BODY = render_properties(PROPERTIES.values).encode()
WITHOUT_CHECKSUM = b"".join(
    line for line in BODY.splitlines(keepends=True) if keys.CHECKSUM.encode() not in line
)


@pytest.fixture
def patience() -> Patience:
    return Patience(tries=3, clock=ManualClock(), ids=SeededIds(7))


def store_with(**bodies: bytes) -> ScriptedStore:
    store = MemoryStore("t")
    for name, body in bodies.items():
        store.put({"file": KEY, "backup": BACKUP_KEY, "crc": CRC}[name], body, Create())
    return ScriptedStore(store)


def body_at(store: ScriptedStore, key: str) -> bytes | None:
    found = store.inner.get(key)
    return None if found is None else found.body


def test_no_properties_is_no_table() -> None:
    with pytest.raises(NotFound, match="memory://t is not a Hudi table"):
        load_properties(MemoryStore("t"))


def test_the_backup_serves_while_the_file_is_replaced() -> None:
    assert load_properties(store_with(backup=BODY)).values == PROPERTIES.values


@pytest.mark.parametrize(
    "broken", [b"", BODY[: len(BODY) // 2], BODY[:-1], WITHOUT_CHECKSUM, b"a=\\u12", b"a=b"]
)
def test_the_backup_serves_while_the_file_is_cut_short(broken: bytes) -> None:
    assert load_properties(store_with(file=broken, backup=BODY)).values == PROPERTIES.values


@pytest.mark.parametrize("body", [BODY[:-1], WITHOUT_CHECKSUM])
def test_without_a_backup_a_file_edited_by_hand_serves(body: bytes, patience: Patience) -> None:
    store = store_with(file=body)
    assert load_properties(store).name == "t"
    assert not update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience).is_utc
    assert keys.CHECKSUM in load_properties(store).values


def test_no_beginning_of_a_file_we_write_passes_for_the_whole(patience: Patience) -> None:
    created = store_with()
    create_properties(created, PROPERTIES, patience=patience)
    body = body_at(created, KEY)
    assert body is not None
    backup = render_properties(PROPERTIES.changed({keys.TIMEZONE: "LOCAL"}).values).encode()
    for end in range(len(body)):
        found = load_properties(store_with(file=body[:end], backup=backup))
        assert not found.is_utc, body[:end]


@pytest.mark.parametrize("broken", [b"", b"a=\\u12"])
def test_without_a_backup_a_broken_file_is_refused_by_name(broken: bytes) -> None:
    with pytest.raises(DataCorrupt, match=f"memory://t/{KEY}"):
        load_properties(store_with(file=broken))


def test_a_newer_table_is_not_replaced_by_its_backup() -> None:
    newer = BODY.replace(b"hoodie.table.version=9", b"hoodie.table.version=10")
    with pytest.raises(RecordFromFuture):
        load_properties(store_with(file=newer, backup=BODY))


def test_a_file_that_comes_back_between_two_looks_is_found() -> None:
    inner = MemoryStore("t")

    class Replacing(ScriptedStore):
        def get(self, key: str, *, start: int = 0, end: int | None = None):  # type: ignore[no-untyped-def]
            found = self.inner.get(key)
            if key == BACKUP_KEY:
                # Java has written the file anew and deleted the backup just before this look.
                self.inner.put(KEY, BODY, Overwrite())
            return found

    assert load_properties(Replacing(inner)).name == "t"


def test_creating_writes_what_is_loaded(patience: Patience) -> None:
    store = store_with()
    created = create_properties(store, PROPERTIES, patience=patience)
    assert created.values == PROPERTIES.values
    body = body_at(store, KEY)
    assert body is not None
    assert body.startswith(b"#Properties saved on 2023-11-14T")


def test_a_table_is_created_once(patience: Patience) -> None:
    store = store_with(file=BODY)
    with pytest.raises(Conflict, match="already is a Hudi table"):
        create_properties(store, PROPERTIES, patience=patience)
    assert body_at(store, KEY) == BODY


def test_a_creation_with_a_lost_reply_is_known_to_have_happened(patience: Patience) -> None:
    store = store_with()
    store.puts.append(landing(Unclear("reset")))
    assert create_properties(store, PROPERTIES, patience=patience).name == "t"


def test_an_update_changes_what_it_should_and_leaves_no_backup(patience: Patience) -> None:
    store = store_with(file=BODY, crc=b"stale")
    changes = {keys.METADATA_PARTITIONS: "", keys.HIVE_STYLE: None}
    updated = update_properties(store, changes, patience=patience)
    assert updated.values == PROPERTIES.changed(changes).values
    assert body_at(store, BACKUP_KEY) is None
    # Hadoop would refuse the file over the checksum of its former bytes.
    assert body_at(store, CRC) is None


def test_an_update_never_leaves_a_moment_without_properties(patience: Patience) -> None:
    store = store_with(file=BODY)
    seen: list[TableProperties] = []

    def look(through):  # type: ignore[no-untyped-def]
        seen.append(load_properties(store.inner))
        reply = through()
        seen.append(load_properties(store.inner))
        return reply

    store.puts.extend([look, look])
    updated = update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience)
    assert [each.values for each in seen] == [PROPERTIES.values] * 3 + [updated.values]


def test_a_crash_before_the_change_leaves_the_old_properties(patience: Patience) -> None:
    store = store_with(file=BODY)
    store.puts.extend([None, failing(StoreUnreachable("down"))])
    with pytest.raises(StoreUnreachable):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience)
    assert load_properties(store).values == PROPERTIES.values
    assert body_at(store, BACKUP_KEY) == BODY
    assert not update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience).is_utc
    assert body_at(store, BACKUP_KEY) is None


@pytest.mark.parametrize("broken", [None, b"", BODY[:100], BODY[:-1]])
def test_an_update_first_repairs_what_another_left(
    broken: bytes | None, patience: Patience
) -> None:
    store = store_with(backup=BODY) if broken is None else store_with(file=broken, backup=BODY)
    updated = update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience)
    assert updated.values == PROPERTIES.changed({keys.TIMEZONE: "LOCAL"}).values
    assert body_at(store, BACKUP_KEY) is None


def test_an_update_does_not_overwrite_somebody_elses(patience: Patience) -> None:
    store = store_with(file=BODY)
    other = BODY + b"a=b\n"

    def overtaken(through):  # type: ignore[no-untyped-def]
        store.inner.put(KEY, other, Overwrite())
        return through()

    store.puts.extend([None, overtaken])
    with pytest.raises(Conflict, match="changed by somebody else"):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience)
    assert body_at(store, KEY) == other
    assert body_at(store, BACKUP_KEY) is None


def test_a_lost_reply_is_settled_by_reading_back(patience: Patience) -> None:
    store = store_with(file=BODY)
    store.puts.extend([None, landing(Unclear("reset"))])
    assert not update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience).is_utc


def test_an_outcome_that_stays_unknown_keeps_the_backup(patience: Patience) -> None:
    store = store_with(file=BODY)
    store.puts.extend([None, *[answer(Unclear("reset"))] * 3])
    with pytest.raises(OutcomeUnknown, match="may or may not be changed"):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience)
    assert body_at(store, BACKUP_KEY) == BODY


def test_without_a_backup_nothing_is_changed(patience: Patience) -> None:
    store = store_with(file=BODY)
    store.puts.extend([answer(Unclear("reset"))] * 3)
    with pytest.raises(Unavailable, match="was not changed"):
        update_properties(store, {keys.TIMEZONE: "LOCAL"}, patience=patience)
    assert body_at(store, KEY) == BODY


def test_what_is_not_a_table_cannot_be_updated(patience: Patience) -> None:
    with pytest.raises(NotFound):
        update_properties(store_with(), {}, patience=patience)
    with pytest.raises(DataCorrupt):
        update_properties(store_with(file=b"a=b"), {}, patience=patience)


def test_no_two_writes_have_the_same_bytes(patience: Patience) -> None:
    store = store_with(file=BODY)
    update_properties(store, {}, patience=patience)
    first = body_at(store, KEY)
    update_properties(store, {}, patience=patience)
    second = body_at(store, KEY)
    assert first is not None
    assert second is not None
    assert first != second
    assert parse_properties(first.decode()) == parse_properties(second.decode())
