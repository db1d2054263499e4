"""The journal: one instance at a time, nothing lost, nothing added."""

from __future__ import annotations

import json

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tidelock.core.errors import DataCorrupt, StoreUnreachable
from tidelock.core.system import SeededIds, SystemIds
from tidelock.lock.server import journal as journals
from tidelock.lock.server.entries import (
    GrantEnded,
    JournalEntry,
    JournalOpened,
    KeepAliveMode,
    LockGranted,
    chained,
)
from tidelock.lock.server.errors import InstanceFenced
from tidelock.lock.server.journal import BatchPosition, JournalHistory, LockJournal
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import Busy, Create, Match, Overwrite, Refused, Unclear
from tidelock.storage.memory import MemoryStore


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(MemoryStore())


def journal_on(store: ScriptedStore) -> LockJournal:
    clock = ManualClock()
    return LockJournal(store, SystemIds(), ReadbackPolicy(clock=clock, ids=SeededIds(1)))


class Instance:
    """A journal that numbers its entries as the state machine does."""

    def __init__(self, store: ScriptedStore) -> None:
        self.journal = journal_on(store)
        self.past = self.journal.read()
        self.number, self.hash = self.past.number, self.past.hash

    def entry(self, decision: LockGranted | JournalOpened | GrantEnded) -> JournalEntry:
        entry = chained(self.number + 1, 0, decision, self.hash)
        self.number, self.hash = entry.number, entry.hash
        return entry

    def open(self) -> bool:
        return self.journal.seal(self.entry(JournalOpened("i", self.past.last.epoch + 1)))

    def grant(self, key: str) -> JournalEntry:
        entry = self.entry(
            LockGranted(key, "id", self.number + 1, "p", "", 1_000, KeepAliveMode.AUTO_RENEWED)
        )
        self.journal.append([entry])
        return entry


def opened(store: ScriptedStore) -> Instance:
    instance = Instance(store)
    assert instance.open()
    return instance


def numbers(past: JournalHistory) -> list[int]:
    return [entry.number for entry in past.entries]


def test_appended_entries_are_read_back_in_order(store: ScriptedStore) -> None:
    instance = opened(store)
    for key in "abc":
        instance.grant(key)
    past = journal_on(store).read()
    assert numbers(past) == [1, 2, 3, 4]
    assert (past.number, past.hash) == (instance.number, instance.hash)


def test_replaced_instance_cannot_append(store: ScriptedStore) -> None:
    first = opened(store)
    first.grant("a")
    second = opened(store)
    with pytest.raises(InstanceFenced):
        first.grant("b")
    second.grant("b")
    assert numbers(journal_on(store).read()) == [1, 2, 3, 4]


def test_replaced_instance_sees_the_seal(store: ScriptedStore) -> None:
    first = opened(store)
    assert not first.journal.is_sealed()
    opened(store)
    assert first.journal.is_sealed()


def test_one_of_two_concurrent_starts_reads_again(store: ScriptedStore) -> None:
    one, other = Instance(store), Instance(store)
    assert one.open()
    assert not other.open()


def test_batch_written_before_the_seal_counts(store: ScriptedStore) -> None:
    first = opened(store)
    second = Instance(store)
    first.grant("a")
    assert not second.open()
    third = opened(store)
    assert [type(e.decision) for e in third.past.entries] == [JournalOpened, LockGranted]


@pytest.mark.parametrize(
    "script",
    [
        landing(Unclear("the reply was lost")),
        landing(Refused()),
        answer(Unclear("the request was lost")),
        answer(Busy()),
        failing(StoreUnreachable("away")),
    ],
)
def test_lost_request_or_reply_writes_a_batch_once(store: ScriptedStore, script: object) -> None:
    instance = opened(store)
    store.puts.append(script)  # type: ignore[arg-type]
    instance.grant("a")
    instance.grant("b")
    assert numbers(journal_on(store).read()) == [1, 2, 3]


def test_persistently_busy_store_is_not_treated_as_a_replacement(store: ScriptedStore) -> None:
    instance = opened(store)
    store.puts.extend([answer(Busy())] * 20)
    instance.grant("a")
    assert numbers(journal_on(store).read()) == [1, 2]


def test_checkpoint_shortens_what_is_read(store: ScriptedStore) -> None:
    instance = opened(store)
    entry = instance.grant("a")
    fields = {"number": instance.number, "hash": instance.hash}
    grants = [{**json.loads(store.bodies[-1])["entries"][0], "at": 77}]
    instance.journal.checkpoint({**fields, "grants": grants}, instance.journal.last)
    instance.grant("b")
    past = journal_on(store).read()
    assert past.grants == [(entry.decision, 77)]
    assert numbers(past) == [3]
    assert [e.number for e in past.earlier_entries] == [1, 2]


def test_checkpoint_deletes_old_batches_and_no_seal(
    store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "JOURNAL_BATCHES_KEPT", 2)
    first = opened(store)
    for key in "abc":
        first.grant(key)
    second = opened(store)
    for key in "defgh":
        second.grant(key)
    fields = {"number": second.number, "hash": second.hash, "grants": []}
    second.journal.checkpoint(fields, second.journal.last)
    left = [meta.key for meta in store.list("journal/")]
    assert BatchPosition(0, 1).key in left, "the seal of the epoch before the first"
    assert BatchPosition(1, 4).key in left, "the seal of the first instance's epoch"
    assert BatchPosition(1, 1).key not in left
    assert [key for key in left if "/00000002/" in key] == [
        BatchPosition(2, n).key for n in (3, 4, 5)
    ]
    with pytest.raises(InstanceFenced):
        first.grant("z")
    assert numbers(journal_on(store).read()) == []


def test_seal_on_a_name_that_was_used_and_deleted_is_invalid(store: ScriptedStore) -> None:
    # The new instance has read up to a batch; then the old one writes, checkpoints and deletes it.
    instance = opened(store)
    late = Instance(store)
    instance.grant("a")
    instance.grant("b")
    fields = {"number": instance.number, "hash": instance.hash, "grants": []}
    instance.journal.checkpoint(fields, instance.journal.last)
    store.delete(BatchPosition(1, 1).key)
    assert not late.open()
    instance.grant("c")


def test_checkpoint_of_a_replaced_instance_is_harmless(store: ScriptedStore) -> None:
    first = opened(store)
    first.grant("a")
    fields = {"number": first.number, "hash": first.hash, "grants": []}
    second = opened(store)
    second.grant("b")
    second.journal.checkpoint(
        {"number": second.number, "hash": second.hash, "grants": []}, second.journal.last
    )
    first.journal.checkpoint(fields, first.journal.last)
    assert journal_on(store).read().number == second.number


def test_altered_batch_is_detected(store: ScriptedStore) -> None:
    instance = opened(store)
    instance.grant("a")
    key = BatchPosition(1, 1).key
    found = store.get(key)
    assert found is not None
    store.put(key, found.body.replace(b'"key":"a"', b'"key":"z"'), Match(found.version))
    with pytest.raises(DataCorrupt, match="hash chain"):
        journal_on(store).read()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"format":2}', b'{"format":1}'])
def test_invalid_batch_is_corrupt(store: ScriptedStore, body: bytes) -> None:
    opened(store)
    store.put(BatchPosition(1, 1).key, body, Overwrite())
    with pytest.raises(DataCorrupt):
        journal_on(store).read()


@pytest.mark.parametrize("body", [b'{"format":1}', b'{"format":1,"epoch":"x","batch":1}'])
def test_invalid_checkpoint_is_corrupt(store: ScriptedStore, body: bytes) -> None:
    store.put("checkpoint.json", body, Create())
    with pytest.raises(DataCorrupt):
        journal_on(store).read()


def test_closed_journal_gives_up_a_write_that_does_not_land(store: ScriptedStore) -> None:
    instance = opened(store)
    store.puts.extend([answer(Unclear("away"))] * 100)
    instance.journal.closing.set()
    with pytest.raises(StoreUnreachable):
        instance.grant("a")
