"""What each side writes, the other reads."""

from __future__ import annotations

import json
import re

from tests.interop.table import Table
from tidelock.lock.audit import AUDIT_FOLDER, AUDIT_SWITCH_KEY, SWITCH_FIELD
from tidelock.store.contract import Overwrite

HUDI_RECORD = re.compile(
    rb'\{"expired":(true|false),"validUntil":(\d{13}),'
    rb'"owner":"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"\}'
)


def test_hudi_reads_our_record_of_a_held_lock(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    ours.acquire(10)
    record = table.record()
    assert record.is_ours
    assert writer.parse(table.lock_bytes()) == {
        "expired": False,
        "validUntil": record.valid_until_epoch_ms,
        "owner": ours.owner,
    }


def test_hudi_reads_our_record_of_a_released_lock(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    ours.acquire(10)
    ours.release()
    assert writer.parse(table.lock_bytes())["expired"] is True


def test_we_read_the_records_hudi_writes(table: Table) -> None:
    writer = table.java()
    assert writer.try_lock()
    held = table.record()
    assert HUDI_RECORD.fullmatch(table.lock_bytes())
    assert (held.expired, held.owner, held.is_ours) == (False, writer.owner, False)
    writer.unlock()
    released = table.record()
    assert HUDI_RECORD.fullmatch(table.lock_bytes())
    # Hudi renews in between or not; a release never moves the end of the lease.
    assert (released.expired, released.owner) == (True, held.owner)


def test_tokens_grow_over_a_record_that_hudi_rewrote(table: Table) -> None:
    writer, ours, others = table.java(), table.ours(), table.ours()
    tokens = []
    for client in (ours, others, ours):
        tokens.append(client.acquire(10))
        client.release()
        assert writer.try_lock()
        writer.unlock()
        assert not table.record().is_ours
    assert tokens == sorted(set(tokens))


def test_both_write_the_same_audit_entries(table: Table) -> None:
    store = table.store()
    store.put(AUDIT_SWITCH_KEY, json.dumps({SWITCH_FIELD: True}).encode(), Overwrite())
    writer, ours = table.java(), table.ours()
    ours.acquire(10)
    ours.release()
    assert writer.try_lock()
    hudi_owner = writer.owner
    writer.unlock()

    files = {}
    for entry in store.list(f"{AUDIT_FOLDER}/"):
        name = entry.key.rpartition("/")[2]
        found = store.get(entry.key)
        assert found is not None
        started, _, owner = name.removesuffix(".jsonl").partition("_")
        lines = [json.loads(line) for line in found.body.splitlines()]
        assert all(line["transactionStartTime"] == int(started) for line in lines)
        files[owner] = lines
    assert set(files) == {ours.owner, hudi_owner}
    shapes = [
        [{name: type(value) for name, value in line.items()} for line in lines]
        for lines in files.values()
    ]
    assert shapes[0] == shapes[1]
    for lines in files.values():
        assert [line["state"] for line in lines] == ["START", "END"]
