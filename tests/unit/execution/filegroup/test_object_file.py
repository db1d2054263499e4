"""An object as a file: ranges, positions, and objects that differ from the listing."""

from __future__ import annotations

import io

import pytest

from tidelock.core.errors import DataCorrupt, NotFound
from tidelock.execution.filegroup.read import ObjectFile
from tidelock.storage.contract import Create
from tidelock.storage.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    """Return a store with one object of ten bytes."""
    made = MemoryStore("lake")
    made.put("f", b"0123456789", Create())
    return made


def test_read_continues_at_the_current_position(store: MemoryStore) -> None:
    file = ObjectFile(store, "f", 10)
    assert (file.read(3), file.tell(), file.read(3), file.size()) == (b"012", 3, b"345", 10)
    assert file.read() == b"6789"
    assert file.read(5) == b""


def test_seek_is_relative_to_start_position_and_end(store: MemoryStore) -> None:
    file = ObjectFile(store, "f", 10)
    assert file.seekable()
    assert file.readable()
    assert (file.seek(4), file.read(1)) == (4, b"4")
    assert (file.seek(2, io.SEEK_CUR), file.read(1)) == (7, b"7")
    assert (file.seek(-2, io.SEEK_END), file.read(9)) == (8, b"89")
    assert (file.seek(99), file.read(1)) == (99, b"")


def test_each_read_requests_only_its_range() -> None:
    requests: list[str] = []
    store = MemoryStore("lake", observe=requests.append)
    store.put("f", b"0123456789", Create())
    file = ObjectFile(store, "f", 10)
    file.seek(0, io.SEEK_END)
    file.read()
    assert requests == ["put"]
    file.seek(2)
    file.read(3)
    assert requests == ["put", "get"]


def test_missing_object_is_reported(store: MemoryStore) -> None:
    with pytest.raises(NotFound, match="memory://lake/gone"):
        ObjectFile(store, "gone", 10).read(1)


def test_object_shorter_than_listed_is_corrupt(store: MemoryStore) -> None:
    with pytest.raises(DataCorrupt, match=r"memory://lake/f.*shorter"):
        ObjectFile(store, "f", 12).read()
