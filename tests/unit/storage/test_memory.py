"""The memory store beyond the contract: shared by name, with observable requests."""

from __future__ import annotations

from tests.unit.doubles import ManualClock
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Create, Match, Overwrite
from tidelock.storage.memory import MemoryStore, shared_memory


def test_one_name_is_one_store_in_a_process() -> None:
    assert shared_memory("lake", "orders") is shared_memory("lake", "orders/")
    assert shared_memory("lake", "orders") is not shared_memory("lake", "returns")


def test_identities_of_deleted_stores_are_not_used_again() -> None:
    # What a process remembers of a store (the probe, the audit switch) is kept by its identity.
    assert len({MemoryStore().identity for _ in range(100)}) == 100


def test_versions_never_repeat_even_after_a_delete() -> None:
    store = MemoryStore()
    versions = []
    for _ in range(5):
        reply = store.put("a", b"same", Create())
        assert isinstance(reply, Landed)
        versions.append(reply.version)
        store.delete("a")
    assert len(set(versions)) == 5


def test_every_request_is_observed_by_its_verb() -> None:
    verbs: list[str] = []
    store = MemoryStore(observe=verbs.append)
    store.put("a", b"1", Create())
    found = store.get("a")
    assert found is not None
    store.put("a", b"2", Match(found.version))
    store.head("a")
    list(store.list(""))
    store.delete("a")
    assert verbs == ["put", "get", "put", "head", "list", "delete"]


def test_modifying_a_body_later_does_not_change_the_object() -> None:
    store = MemoryStore(clock=ManualClock())
    body = bytearray(b"one")
    store.put("a", memoryview(body), Overwrite())  # type: ignore[arg-type]
    body[:] = b"two"
    found = store.get("a")
    assert found is not None
    assert found.body == b"one"
