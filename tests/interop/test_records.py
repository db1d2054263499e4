"""Each side reads the records that the other writes."""

from __future__ import annotations

import re

from tests.interop.table import Table
from tidelock.lock import audit as trail

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


def test_we_read_the_records_that_hudi_writes(table: Table) -> None:
    writer = table.java()
    assert writer.try_lock()
    held = table.record()
    assert HUDI_RECORD.fullmatch(table.lock_bytes())
    assert (held.expired, held.owner, held.is_ours) == (False, writer.owner, False)
    writer.unlock()
    released = table.record()
    assert HUDI_RECORD.fullmatch(table.lock_bytes())
    # Hudi may or may not renew in between; a release never moves the end of the lease.
    assert (released.expired, released.owner) == (True, held.owner)


def test_tokens_increase_over_a_record_that_hudi_rewrote(table: Table) -> None:
    writer, ours, others = table.java(), table.ours(), table.ours()
    tokens = []
    for client in (ours, others, ours):
        tokens.append(client.acquire(10))
        client.release()
        assert writer.try_lock()
        writer.unlock()
        assert not table.record().is_ours
    assert tokens == sorted(set(tokens))


def test_audit_files_of_both_pass_one_validation(table: Table) -> None:
    store = table.store()
    trail.set_enabled(store, enabled=True)
    writer, ours = table.java(), table.ours()
    ours.acquire(10)
    ours.release()
    assert writer.try_lock()
    hudi_owner = writer.owner
    writer.unlock()

    # The audit log is parsed as strictly as Hudi's command line does: an extra field is an error.
    validation = trail.validate(store, drift_ms=0)
    assert (validation.verdict, validation.holdings) == (trail.AuditVerdict.PASSED, 2), validation
    owners = [
        meta.key.removesuffix(".jsonl").rpartition("_")[2] for meta in trail.audit_files(store)
    ]
    assert owners == [ours.owner, hudi_owner]
