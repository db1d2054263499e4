"""The store contract, on every implementation."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier, Event
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.stores import StoreLocation
from tidelock.core.errors import InvalidInput, NotFound, PermissionDenied, StoreUnreachable
from tidelock.core.outcome import Landed
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    ObjectStore,
    Overwrite,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)

RACERS = 8

T = TypeVar("T")


def put(store: ObjectStore, key: str, body: bytes) -> str:
    """Overwrite an object, and return its version."""
    reply = store.put(key, body, Overwrite())
    assert isinstance(reply, Landed)
    return reply.version


def found(store: ObjectStore, key: str) -> StoredObject:
    """Return an object that must exist."""
    stored = store.get(key)
    assert stored is not None
    return stored


def race(work: Callable[[int], T]) -> list[T]:
    """Run all racers at the same moment, and return each result."""
    start = Barrier(RACERS)

    def run(racer: int) -> T:
        start.wait()
        return work(racer)

    with ThreadPoolExecutor(RACERS) as threads:
        return list(threads.map(run, range(RACERS)))


# Conditional writes


def test_create_writes_an_absent_object(store: ObjectStore) -> None:
    reply = store.put("a/lock", b"one", Create())
    assert isinstance(reply, Landed)
    assert found(store, "a/lock").body == b"one"
    assert found(store, "a/lock").version == reply.version


def test_create_is_refused_when_the_object_exists_and_keeps_it(store: ObjectStore) -> None:
    first = store.put("lock", b"one", Create())
    assert store.put("lock", b"two", Create()) == Refused()
    assert isinstance(first, Landed)
    assert found(store, "lock").body == b"one"
    assert found(store, "lock").version == first.version


def test_create_works_again_after_delete(store: ObjectStore) -> None:
    store.put("lock", b"one", Create())
    store.delete("lock")
    assert isinstance(store.put("lock", b"two", Create()), Landed)
    assert found(store, "lock").body == b"two"


def test_match_replaces_the_object_and_gives_it_another_version(store: ObjectStore) -> None:
    first = put(store, "lock", b"one")
    reply = store.put("lock", b"two", Match(first))
    assert isinstance(reply, Landed)
    assert reply.version != first
    assert found(store, "lock").body == b"two"
    assert found(store, "lock").version == reply.version


def test_match_of_a_stale_version_is_refused_and_changes_nothing(store: ObjectStore) -> None:
    stale = put(store, "lock", b"one")
    current = put(store, "lock", b"two")
    assert store.put("lock", b"three", Match(stale)) == Refused()
    assert found(store, "lock").body == b"two"
    assert found(store, "lock").version == current


def test_match_of_a_missing_object_is_refused_and_creates_nothing(store: ObjectStore) -> None:
    version = put(store, "lock", b"one")
    store.delete("lock")
    assert store.put("lock", b"two", Match(version)) == Refused()
    assert store.get("lock") is None


def test_overwrite_replaces_whatever_is_there(store: ObjectStore) -> None:
    first = put(store, "lock", b"one")
    second = put(store, "lock", b"two")
    assert first != second
    assert found(store, "lock").body == b"two"


def test_conditional_write_is_one_request(location: StoreLocation) -> None:
    sent: Counter[str] = Counter()
    store = location.open(observe=lambda verb: sent.update([verb]))
    reply = store.put("lock", b"one", Create())
    assert isinstance(reply, Landed)
    store.put("lock", b"two", Match(reply.version))
    store.put("lock", b"three", Match(reply.version))
    store.put("lock", b"four", Create())
    assert sent == {"put": 4}
    store.close()


# Reading


def test_get_and_head_of_an_absent_object_return_none(store: ObjectStore) -> None:
    assert store.get("nothing") is None
    assert store.head("nothing") is None


def test_get_head_and_list_agree(store: ObjectStore) -> None:
    version = put(store, "a/lock", b"seven b")
    got = found(store, "a/lock")
    head = store.head("a/lock")
    assert head is not None
    [listed] = store.list("a/")
    assert (head.key, head.size_bytes, head.version) == ("a/lock", 7, version)
    assert (listed.key, listed.size_bytes, listed.version) == ("a/lock", 7, version)
    assert got.version == version
    # Some replies have times in seconds, others in milliseconds.
    ages = [got.modified_epoch_ms, head.modified_epoch_ms, listed.modified_epoch_ms]
    assert max(ages) - min(ages) <= 1_000
    assert abs(time.time() * 1000 - max(ages)) < 60_000


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (0, 4, b"0123"),
        (2, 5, b"234"),
        (8, 100, b"89"),
        (9, 10, b"9"),
        (4, 4, b""),
        (10, None, b""),
        (10, 20, b""),
        (50, 60, b""),
    ],
)
def test_get_returns_the_requested_range(
    store: ObjectStore, start: int, end: int | None, expected: bytes
) -> None:
    version = put(store, "digits", b"0123456789")
    stored = store.get("digits", start=start, end=end)
    assert stored is not None
    assert stored.body == expected
    assert stored.version == version


def test_range_of_an_absent_object_is_none(store: ObjectStore) -> None:
    assert store.get("nothing", start=3, end=5) is None
    assert store.get("nothing", start=3, end=3) is None


@pytest.mark.parametrize("mode", [Create(), Overwrite()], ids=["create", "overwrite"])
def test_empty_body_is_an_object(store: ObjectStore, mode: Create | Overwrite) -> None:
    assert isinstance(store.put("empty", b"", mode), Landed)
    assert found(store, "empty").body == b""
    head = store.head("empty")
    assert head is not None
    assert head.size_bytes == 0
    assert found(store, "empty").version == head.version
    ranged = store.get("empty", start=0, end=10)
    assert ranged is not None
    assert ranged.body == b""


def test_body_of_five_megabytes_round_trips(store: ObjectStore) -> None:
    body = bytes(range(256)) * (5 * 4096)
    version = put(store, "large", body)
    stored = found(store, "large")
    assert stored.body == body
    assert stored.version == version
    part = store.get("large", start=4_999_999, end=5_000_003)
    assert part is not None
    assert part.body == body[4_999_999:5_000_003]


# Deleting


def test_delete_removes_the_object(store: ObjectStore) -> None:
    put(store, "a/lock", b"one")
    store.delete("a/lock")
    assert store.get("a/lock") is None
    assert list(store.list("")) == []


def test_delete_of_an_absent_object_succeeds(store: ObjectStore) -> None:
    store.delete("nothing")
    store.delete("no/folder/nothing")
    assert list(store.list("")) == []


# Listing

LISTED = ["a/b", "a/c", "a/d/e", "a/d/f/g", "a/h", "a0", "aa", "b", "ä"]


def test_list_yields_keys_in_byte_order(store: ObjectStore) -> None:
    for key in reversed(LISTED):
        put(store, key, key.encode())
    assert [meta.key for meta in store.list("")] == LISTED


def test_list_orders_a_folder_by_the_slash_after_its_name(store: ObjectStore) -> None:
    for key in ("a/b", "a0", "a.b", "a b", "a-b"):
        put(store, key, b"x")
    assert [meta.key for meta in store.list("")] == ["a b", "a-b", "a.b", "a/b", "a0"]
    assert [meta.key for meta in store.list("", start_after="a-b")] == ["a.b", "a/b", "a0"]
    assert next(meta.key for meta in store.list("", start_after="a")) == "a b"


def test_list_orders_non_bmp_characters_by_their_bytes(store: ObjectStore) -> None:
    # In UTF-16 the second of these begins with the smaller code unit.
    rare = ["\uff5e", "\U0001f30a"]
    for key in rare:
        put(store, key, b"x")
    assert [meta.key for meta in store.list("")] == rare


def test_list_yields_only_keys_with_the_prefix(store: ObjectStore) -> None:
    for key in LISTED:
        put(store, key, b"x")
    for prefix in ("a", "a/", "a/d", "a/d/", "a/d/f", "b", "c", "ä"):
        expected_keys = [key for key in LISTED if key.startswith(prefix)]
        assert [meta.key for meta in store.list(prefix)] == expected_keys, prefix


def test_list_starts_after_a_key_whether_it_exists_or_not(store: ObjectStore) -> None:
    for key in LISTED:
        put(store, key, b"x")
    for after in ("a/b", "a/bb", "a/d/", "a/d/e", "a/d/f/g", "a/dd", "b", "ä", "ö"):
        expected_keys = [key for key in LISTED if key > after]
        assert [meta.key for meta in store.list("", start_after=after)] == expected_keys, after
    assert [meta.key for meta in store.list("a/", start_after="a/d/e")] == ["a/d/f/g", "a/h"]


def test_list_of_nothing_is_empty(store: ObjectStore) -> None:
    assert list(store.list("")) == []
    assert list(store.list("no/such/folder/")) == []


def test_list_does_not_show_siblings_of_its_prefix(location: StoreLocation) -> None:
    store = location.open()
    put(store, "mine", b"x")
    assert [meta.key for meta in store.list("")] == ["mine"]
    store.close()


def test_list_of_cloud_stores_reads_all_pages(cloud_location: StoreLocation) -> None:
    sent: Counter[str] = Counter()
    store = cloud_location.open(observe=lambda verb: sent.update([verb]), page_size=3)
    keys = [f"part/{number:02}" for number in range(8)]
    for key in keys:
        put(store, key, b"x")
    assert [meta.key for meta in store.list("part/")] == keys
    assert sent["list"] == 3
    assert [meta.key for meta in store.list("part/", start_after="part/04")] == keys[5:]
    store.close()


def test_list_of_many_keys_is_complete(embedded_location: StoreLocation) -> None:
    store = embedded_location.open()
    keys = [f"part/{number:04}" for number in range(1_005)]
    for key in keys:
        put(store, key, b"x")
    assert [meta.key for meta in store.list("part/")] == keys


# Keys

ODD_KEYS = [
    "a b",
    " a",
    "a ",
    "a+b",
    "100%",
    "a%2Fb",
    "a%20b",
    "a#b",
    "a?b=c&d",
    "it's",
    '"quoted"',
    "<tag>&amp;",
    "(x)[y]{z}",
    "a;b,c:d@e$f!g*h",
    "a~b_c-d",
    "~",
    "back\\slash",
    "..a/b..",
    ".hidden",
    "ünï/cödé",
    "e\u0301",
    "\u00e9",
    "日本/語",
    "🌊",
    "=",
    "^|`",
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_key_with_unusual_characters_is_preserved(store: ObjectStore, key: str) -> None:
    check_key(store, key)


_PARTS = st.text(
    st.characters(
        exclude_categories=("Cc", "Cs", "Cn"), exclude_characters="/\\", max_codepoint=0x1FFFF
    ),
    min_size=1,
    max_size=12,
).filter(lambda part: part not in (".", ".."))
_KEYS = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)


@given(key=_KEYS)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_key_is_preserved(store: ObjectStore, key: str) -> None:
    # One example's object may be another's folder, which a file system cannot store.
    check_key(store, f"{uuid.uuid4().hex}/{key}")


def check_key(store: ObjectStore, key: str) -> None:
    """Check that get, head and list find an object by exactly this key, and delete it."""
    version = put(store, key, key.encode())
    folder = key.rpartition("/")[0]
    assert found(store, key).body == key.encode()
    head = store.head(key)
    assert head is not None
    assert (head.key, head.version) == (key, version)
    assert [meta.key for meta in store.list(f"{folder}/" if folder else "")] == [key]
    assert [meta.key for meta in store.list(key)] == [key]
    assert list(store.list(key, start_after=key)) == []
    assert store.put(key, b"other", Create()) == Refused()
    store.delete(key)
    assert store.get(key) is None


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b", "a\nb", "\ud800"]
)
def test_invalid_key_is_refused_by_every_verb(store: ObjectStore, key: str) -> None:
    verbs: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.put(key, b"x", Overwrite()),
        lambda: store.delete(key),
    ]
    for verb in verbs:
        with pytest.raises(InvalidInput):
            verb()


# Races


def test_one_of_many_racing_creates_wins(location: StoreLocation) -> None:
    store = location.open()
    for attempt in range(5):
        key = f"lock-{attempt}"

        def create(racer: int, key: str = key) -> PutReply:
            return store.put(key, b"by %d" % racer, Create())

        replies = race(create)
        winners = [racer for racer, reply in enumerate(replies) if isinstance(reply, Landed)]
        assert len(winners) == 1, replies
        assert found(store, key).body == b"by %d" % winners[0]
        assert all(isinstance(reply, Landed | Refused | Busy) for reply in replies), replies
    store.close()


def test_one_of_many_racing_matches_wins(location: StoreLocation) -> None:
    store = location.open()
    version = put(store, "lock", b"free")
    for attempt in range(5):

        def replace(racer: int, was: str = version, repetition: int = attempt) -> PutReply:
            # Bodies differ, as lock records do: where a version is a hash, equal bodies share it.
            return store.put("lock", b"%d in turn %d" % (racer, repetition), Match(was))

        replies = race(replace)
        winners = [reply for reply in replies if isinstance(reply, Landed)]
        assert len(winners) == 1, replies
        assert all(isinstance(reply, Landed | Refused | Busy) for reply in replies), replies
        version = winners[0].version
        assert found(store, "lock").version == version
    store.close()


def test_counter_incremented_by_racing_matches_loses_no_increment(location: StoreLocation) -> None:
    stores = [location.open() for _ in range(2)]
    put(stores[0], "counter", b"0 start")

    def raise_once(store: ObjectStore, nonce: str) -> None:
        while True:
            now = found(store, "counter")
            raised = int(now.body.split()[0]) + 1
            reply = store.put("counter", f"{raised} {nonce}".encode(), Match(now.version))
            assert not isinstance(reply, Unclear)
            if isinstance(reply, Landed):
                return

    def work(racer: int) -> None:
        for repetition in range(5):
            raise_once(stores[racer % 2], f"{racer}-{repetition}")

    race(work)
    assert found(stores[0], "counter").body.split()[0] == b"%d" % (RACERS * 5)
    for store in stores:
        store.close()


def test_reader_never_sees_a_partial_object(location: StoreLocation) -> None:
    store = location.open()
    put(store, "page", b"\0" * 100_000)
    done = Event()

    def read() -> int:
        reads = 0
        while not done.is_set() or reads == 0:
            body = found(store, "page").body
            # The first byte of a page is in all pages, and gives their number.
            assert body == body[:1] * (100_000 + 1_000 * body[0])
            reads += 1
        return reads

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(read) for _ in range(3)]
        try:
            for number in range(1, 31):
                put(store, "page", bytes([number]) * (100_000 + 1_000 * number))
        finally:
            done.set()
        assert all(reader.result() > 0 for reader in readers)
    store.close()


# Buckets, credentials, and closing


def test_missing_bucket_is_reported_by_every_verb(cloud_location: StoreLocation) -> None:
    assert cloud_location.open_absent is not None
    verbs: list[Callable[[ObjectStore], object]] = [
        lambda store: store.get("lock"),
        lambda store: store.head("lock"),
        lambda store: store.put("lock", b"x", Create()),
        lambda store: store.put("lock", b"x", Overwrite()),
        lambda store: store.delete("lock"),
        lambda store: list(store.list("")),
    ]
    for verb in verbs:
        store = cloud_location.open_absent()
        with pytest.raises(NotFound, match="tidelock-absent"):
            verb(store)
        store.close()


def test_wrong_credentials_are_denied_by_every_verb(guarded_location: StoreLocation) -> None:
    assert guarded_location.open_denied is not None
    store = guarded_location.open_denied()
    verbs: list[Callable[[], object]] = [
        lambda: store.get("lock"),
        lambda: store.head("lock"),
        lambda: store.put("lock", b"x", Create()),
        lambda: store.delete("lock"),
        lambda: list(store.list("")),
    ]
    for verb in verbs:
        with pytest.raises(PermissionDenied) as caught:
            verb()
        assert caught.value.hint
    store.close()


def test_closing_twice_succeeds(location: StoreLocation) -> None:
    store = location.open()
    put(store, "lock", b"one")
    store.close()
    store.close()
    with closing(location.open()) as again:
        assert found(again, "lock").body == b"one"


def test_closed_cloud_store_sends_nothing(cloud_location: StoreLocation) -> None:
    sent: list[str] = []
    store = cloud_location.open(observe=sent.append)
    store.close()
    with pytest.raises(StoreUnreachable, match="closed"):
        store.put("lock", b"one", Create())
    assert sent == []
