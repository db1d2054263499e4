"""The upload contract, on every implementation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.stores import StoreLocation
from tidelock.core.errors import InvalidInput, NotFound
from tidelock.core.limits import UPLOAD_PART_BYTES
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Busy, Create, ObjectStore, Refused, Unclear

SMALL = b"a body that fits into one request"
LARGE = bytes(range(256)) * (UPLOAD_PART_BYTES // 128 + 1)
"""Two full parts and a partial one."""

bodies = pytest.mark.parametrize("body", [b"", SMALL, LARGE], ids=["empty", "small", "large"])


@bodies
def test_finished_upload_is_the_object(store: ObjectStore, body: bytes) -> None:
    with store.upload("data/file") as upload:
        for start in range(0, len(body), 3_000_000):
            upload.write(body[start : start + 3_000_000])
        reply = upload.finish()
    assert isinstance(reply, Landed)
    found = store.get("data/file")
    assert found is not None
    assert found.body == body
    assert found.version == reply.version


@bodies
def test_object_is_invisible_before_finish(store: ObjectStore, body: bytes) -> None:
    with store.upload("data/file") as upload:
        upload.write(body)
        assert store.get("data/file") is None
        assert list(store.list("")) == []
        upload.finish()
    assert [meta.key for meta in store.list("")] == ["data/file"]


@bodies
def test_unfinished_upload_leaves_nothing(store: ObjectStore, body: bytes) -> None:
    with store.upload("data/file") as upload:
        upload.write(body)
    assert store.head("data/file") is None
    assert list(store.list("")) == []


@bodies
def test_upload_succeeds_after_an_unfinished_one(store: ObjectStore, body: bytes) -> None:
    with store.upload("data/file") as upload:
        upload.write(body)
    with store.upload("data/file") as upload:
        upload.write(body)
        assert isinstance(upload.finish(), Landed)
    found = store.get("data/file")
    assert found is not None
    assert found.body == body


def test_upload_aborted_by_an_error_leaves_nothing(store: ObjectStore) -> None:
    def give_up() -> None:
        with store.upload("data/file") as upload:
            upload.write(LARGE)
            raise RuntimeError("the rows ran out")

    with pytest.raises(RuntimeError, match="ran out"):
        give_up()
    assert list(store.list("")) == []


@bodies
def test_upload_never_replaces_an_object(store: ObjectStore, body: bytes) -> None:
    store.put("data/file", b"first", Create())
    with store.upload("data/file") as upload:
        upload.write(body)
        assert upload.finish() == Refused()
    found = store.get("data/file")
    assert found is not None
    assert found.body == b"first"


@bodies
def test_one_of_many_uploads_of_a_key_succeeds(location: StoreLocation, body: bytes) -> None:
    racers = 4
    start = threading.Barrier(racers)

    def race(racer: int) -> object:
        store = location.open()
        with store.upload("data/file") as upload:
            upload.write(bytes([racer]))
            upload.write(body)
            start.wait()
            reply = upload.finish()
        store.close()
        return reply

    with ThreadPoolExecutor(racers) as threads:
        replies = list(threads.map(race, range(racers)))
    winners = [racer for racer, reply in enumerate(replies) if isinstance(reply, Landed)]
    assert len(winners) == 1
    assert all(isinstance(reply, Landed | Refused | Busy | Unclear) for reply in replies)
    found = location.open().get("data/file")
    assert found is not None
    assert found.body == bytes([winners[0]]) + body


def test_view_of_any_shape_is_written_as_its_bytes(store: ObjectStore) -> None:
    with store.upload("data/file") as upload:
        upload.write(memoryview(b"abcdefgh").cast("I"))
        upload.write(bytearray(b"ij"))
        upload.finish()
    found = store.get("data/file")
    assert found is not None
    assert found.body == b"abcdefghij"


def test_finished_upload_refuses_more_data(store: ObjectStore) -> None:
    with store.upload("data/file") as upload:
        upload.write(SMALL)
        upload.finish()
        with pytest.raises(InvalidInput, match="finished already"):
            upload.finish()


def test_upload_refuses_an_invalid_key(store: ObjectStore) -> None:
    with pytest.raises(InvalidInput, match="not a key"):
        store.upload("../escape")


def test_upload_to_a_missing_bucket_reports_it(cloud_location: StoreLocation) -> None:
    if cloud_location.open_absent is None:
        pytest.skip("this store has no buckets")
    store = cloud_location.open_absent()

    def begin() -> None:
        with store.upload("data/file") as upload:
            upload.write(LARGE)

    with pytest.raises(NotFound, match="does not exist"):
        begin()


def test_upload_of_a_path_sends_the_whole_file(store: ObjectStore) -> None:
    with store.upload("data/file") as upload:
        if upload.path is None:
            upload.write(LARGE)
        else:
            Path(upload.path).write_bytes(LARGE)
        reply = upload.finish()
    meta = store.head("data/file")
    assert isinstance(reply, Landed)
    assert meta is not None
    assert (meta.size_bytes, meta.version) == (len(LARGE), reply.version)


def test_local_path_reads_the_object(store: ObjectStore) -> None:
    assert store.local_path("data/file") is None
    store.put("data/file", SMALL, Create())
    path = store.local_path("data/file")
    assert path is None or Path(path).read_bytes() == SMALL
