"""Log files with torn and damaged blocks: what Hudi skips is skipped, the rest is read."""

from __future__ import annotations

import pytest

from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.store.contract import Create
from tidelock.store.memory import MemoryStore
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.block import Block, BlockType, encode_block
from tidelock.table.logfile.reader import CorruptBlock, blocks_of, read_log

FIRST = encode_block(Block(BlockType.PARQUET, {0: "1"}, b"first"))
SECOND = encode_block(Block(BlockType.PARQUET, {0: "2"}, b"second"))
THIRD = encode_block(Block(BlockType.PARQUET, {0: "3"}, b"third"))


def seen(data: bytes) -> list[str]:
    """Return the contents of the blocks, with `?size` for corrupt ones."""
    return [
        f"?{found.size_bytes}" if isinstance(found, CorruptBlock) else str(found.content, "ascii")
        for found in blocks_of(data, where="f.log")
    ]


def test_blocks_follow_each_other() -> None:
    assert seen(FIRST + SECOND + THIRD) == ["first", "second", "third"]
    assert seen(b"") == []


@pytest.mark.parametrize("left", range(6, len(SECOND)))
def test_a_torn_last_block_is_skipped_wherever_it_was_torn(left: int) -> None:
    assert seen(FIRST + SECOND[:left]) == ["first", f"?{left}"]


@pytest.mark.parametrize("left", range(6))
def test_less_than_a_magic_at_the_end_is_no_block(left: int) -> None:
    assert seen(FIRST + SECOND[:left]) == ["first"]


@pytest.mark.parametrize("left", range(6, len(SECOND)))
def test_reading_goes_on_at_the_next_magic_after_a_torn_block(left: int) -> None:
    assert seen(FIRST + SECOND[:left] + THIRD) == ["first", f"?{left}", "third"]


def test_a_block_whose_two_lengths_differ_is_skipped() -> None:
    damaged = bytearray(SECOND)
    damaged[-1] ^= 1
    assert seen(FIRST + bytes(damaged) + THIRD) == ["first", f"?{len(SECOND)}", "third"]


@pytest.mark.parametrize("size", ["ffffffffffffffff", "7fffffffffffffff", "0000000000000000"])
def test_a_length_that_cannot_be_makes_the_block_corrupt(size: str) -> None:
    damaged = SECOND[:6] + bytes.fromhex(size) + SECOND[14:]
    assert seen(FIRST + damaged + THIRD) == ["first", f"?{len(SECOND)}", "third"]


def test_a_block_followed_by_other_bytes_is_corrupt_with_them() -> None:
    assert seen(FIRST + b"garbage" + SECOND) == [f"?{len(FIRST) + 7}", "second"]


def test_a_corrupt_block_says_where_it_is_and_why() -> None:
    found = list(blocks_of(FIRST + SECOND[:20], where="part/f.log"))[1]
    assert isinstance(found, CorruptBlock)
    assert (found.where, found.offset, found.size_bytes) == ("part/f.log", len(FIRST), 20)
    assert "past the end" in found.reason


def test_a_file_that_does_not_start_with_a_block_is_no_log_file() -> None:
    with pytest.raises(DataCorrupt, match=r"f\.log: no log block starts at byte 0"):
        seen(b"PAR1 not a log file")


def test_a_log_file_is_read_from_the_store_and_a_missing_one_is_named() -> None:
    store = MemoryStore("lake")
    log = LogFile("part", ".f_1.log.1_0-0-0", "f", "0-0-0", "1", 1, len(FIRST))
    with pytest.raises(NotFound, match=r"memory://lake/part/\.f_1\.log\.1_0-0-0"):
        list(read_log(store, log))
    store.put(log.key, FIRST, Create())
    (found,) = read_log(store, log)
    assert isinstance(found, Block)
    assert bytes(found.content) == b"first"
