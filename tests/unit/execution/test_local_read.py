"""The local read engine: slices in threads, rows in order, errors at once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.operations.small_tables import Filled, two_writes
from tidelock.core.errors import DataCorrupt
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.local import read
from tidelock.execution.local.read import BATCHES_AHEAD, SLICES_PER_WORKER, LocalEngine, Scan
from tidelock.hudi.file_groups import FileSlice
from tidelock.storage.memory import MemoryStore

SCHEMA = pa.schema([("slice", pa.string()), ("batch", pa.int64())])

Reader = Callable[[str], Iterator[pa.Table]]


def scan(slices: int) -> Scan:
    """Return a scan of this many slices, named "0", "1" …"""
    pieces = [FileSlice("p", str(number), "1", None) for number in range(slices)]
    return Scan(MemoryStore("lake"), pieces, SCHEMA, MergeRule())


def batch(piece: str, number: int) -> pa.Table:
    return pa.table({"slice": [piece], "batch": [number]}, schema=SCHEMA)


def seen(batches: list[pa.Table]) -> list[tuple[str, int]]:
    return [(row["slice"], row["batch"]) for each in batches for row in each.to_pylist()]


@pytest.fixture
def slice_reader(monkeypatch: pytest.MonkeyPatch) -> Callable[[Reader], None]:
    """Return a function that replaces the reader of file slices."""

    def put(reader: Reader) -> None:
        def slice_batches(store: object, piece: FileSlice, *_: Any, **__: Any) -> Any:
            return reader(piece.file_id)

        monkeypatch.setattr(read, "slice_batches", slice_batches)

    return put


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)


def test_rows_are_in_slice_order_whichever_is_read_first(
    slice_reader: Callable[[Reader], None],
) -> None:
    last_read = threading.Event()

    def reader(piece: str) -> Iterator[pa.Table]:
        if piece == "0":
            assert last_read.wait(60), "the slices are not read side by side"
        yield batch(piece, 0)
        yield batch(piece, 1)
        if piece == "2":
            last_read.set()

    slice_reader(reader)
    expected = [(piece, number) for piece in "012" for number in (0, 1)]
    assert seen(LocalEngine(2).read(scan(3))) == expected
    last_read.set()
    assert seen(list(LocalEngine(2).batches(scan(3)))) == expected


def test_slow_caller_gets_bounded_buffering(slice_reader: Callable[[Reader], None]) -> None:
    made: list[tuple[str, int]] = []

    def reader(piece: str) -> Iterator[pa.Table]:
        for number in range(50):
            made.append((piece, number))
            yield batch(piece, number)

    slice_reader(reader)
    with closing(LocalEngine(2).batches(scan(20))) as rows:
        next(rows)
        bound = 2 * SLICES_PER_WORKER * BATCHES_AHEAD + 1
        eventually(lambda: len(made) == bound)
        assert len(list(zip(range(49), rows, strict=False))) == 49
        eventually(lambda: len(made) == 50 + bound - 3)
    assert len(made) == 50 + bound - 3


def test_first_error_ends_every_read(slice_reader: Callable[[Reader], None]) -> None:
    begun: list[str] = []

    def reader(piece: str) -> Iterator[pa.Table]:
        begun.append(piece)
        if piece == "1":
            raise DataCorrupt("slice 1 is broken")
        number = 0
        while True:  # only the error of another slice can end this read
            yield batch(piece, number)
            number += 1
            time.sleep(0.001)

    slice_reader(reader)
    with pytest.raises(DataCorrupt, match="slice 1 is broken") as caught:
        LocalEngine(2).read(scan(10))
    assert caught.value.__notes__ == ["while reading memory://lake/1"]
    assert set(begun) == {"0", "1"}


def test_arrow_error_becomes_an_error_with_the_object_name(
    slice_reader: Callable[[Reader], None],
) -> None:
    def reader(piece: str) -> Iterator[pa.Table]:
        raise pa.ArrowNotImplementedError("no such encoding")

    slice_reader(reader)
    with pytest.raises(DataCorrupt, match=r"memory://lake/0: .*no such encoding"):
        LocalEngine(2).read(scan(1))


def test_corrupt_base_file_is_named_among_many() -> None:
    table = Filled()
    for number in range(8):
        table.insert(2 * number + 1, 2 * number + 2, f"g-{number}", [("a", 1, "Ann")])
    broken = table.open().slices()[5].base
    assert broken is not None
    table.put(broken.key, b"PAR1 is not enough")
    with pytest.raises(DataCorrupt, match=broken.name):
        table.table().read()


def test_corrupt_log_block_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    table = two_writes()
    key = table.open().slices()[0].logs[0].key
    original = table.store.get(key)
    assert original is not None
    table.put(key, original.body + original.body[:-20])
    with caplog.at_level(logging.WARNING):
        assert table.table().read().num_rows == 3
    assert key in caplog.text
    assert "corrupt block" in caplog.text


def test_no_slices_give_no_rows() -> None:
    assert LocalEngine(2).read(scan(0)) == []


def test_caller_that_stops_halfway_does_not_block_exit() -> None:
    code = (
        "from tests.unit.operations.small_tables import Filled\n"
        "table = Filled()\n"
        "for n in range(9):\n"
        "    rows = [(f'{n}-{i}', 1, 'x') for i in range(50)]\n"
        "    table.insert(2 * n + 1, 2 * n + 2, f'g-{n}', rows)\n"
        "batches = table.table().batches(batch_rows=1)\n"
        "print(next(batches).num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_memory_is_released_after_a_small_read(
    slice_reader: Callable[[Reader], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(read, "release_memory", lambda: given_back.append("yes"))
    slice_reader(lambda piece: iter([batch(piece, 0)]))
    LocalEngine(2).read(scan(3))
    assert given_back == ["yes"]
    monkeypatch.setattr(read, "RELEASE_BYTES_MAX", -1)
    LocalEngine(2).read(scan(3))
    assert given_back == ["yes"]
