"""An object as a file: ranges, places, and objects that are not what the listing said."""

from __future__ import annotations

import io

import pytest

from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.kernel.objectfile import ObjectFile
from tidelock.store.contract import Create
from tidelock.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    """Return a store with one object of ten bytes."""
    made = MemoryStore("lake")
    made.put("f", b"0123456789", Create())
    return made


def test_it_reads_on_from_where_it_is(store: MemoryStore) -> None:
    file = ObjectFile(store, "f", 10)
    assert (file.read(3), file.tell(), file.read(3), file.size()) == (b"012", 3, b"345", 10)
    assert file.read() == b"6789"
    assert file.read(5) == b""


def test_it_seeks_from_the_start_the_place_and_the_end(store: MemoryStore) -> None:
    file = ObjectFile(store, "f", 10)
    assert file.seekable()
    assert file.readable()
    assert (file.seek(4), file.read(1)) == (4, b"4")
    assert (file.seek(2, io.SEEK_CUR), file.read(1)) == (7, b"7")
    assert (file.seek(-2, io.SEEK_END), file.read(9)) == (8, b"89")
    assert (file.seek(99), file.read(1)) == (99, b"")


def test_each_read_asks_for_its_range_only() -> None:
    asked: list[str] = []
    store = MemoryStore("lake", observe=asked.append)
    store.put("f", b"0123456789", Create())
    file = ObjectFile(store, "f", 10)
    file.seek(0, io.SEEK_END)
    file.read()
    assert asked == ["put"]
    file.seek(2)
    file.read(3)
    assert asked == ["put", "get"]


def test_an_object_that_is_gone_is_named(store: MemoryStore) -> None:
    with pytest.raises(NotFound, match="memory://lake/gone"):
        ObjectFile(store, "gone", 10).read(1)


def test_an_object_shorter_than_listed_is_corrupt(store: MemoryStore) -> None:
    with pytest.raises(DataCorrupt, match=r"memory://lake/f.*shorter"):
        ObjectFile(store, "f", 12).read()
