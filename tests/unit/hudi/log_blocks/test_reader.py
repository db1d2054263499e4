"""Log files with truncated and damaged blocks: the blocks that Hudi skips are skipped, others are
read."""

from __future__ import annotations

import pytest

from tidelock.core.errors import DataCorrupt, NotFound
from tidelock.hudi.file_groups import LogFile
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    CorruptBlock,
    encode_block,
    parse_log,
    read_log,
)
from tidelock.storage.contract import Create
from tidelock.storage.memory import MemoryStore

FIRST = encode_block(Block(BlockType.PARQUET, {0: "1"}, b"first"))
SECOND = encode_block(Block(BlockType.PARQUET, {0: "2"}, b"second"))
THIRD = encode_block(Block(BlockType.PARQUET, {0: "3"}, b"third"))


def seen(data: bytes) -> list[str]:
    """Return the contents of the blocks, with `?size` for corrupt ones."""
    return [
        f"?{found.size_bytes}" if isinstance(found, CorruptBlock) else str(found.content, "ascii")
        for found in parse_log(data, where="f.log")
    ]


def test_consecutive_blocks_are_read() -> None:
    assert seen(FIRST + SECOND + THIRD) == ["first", "second", "third"]
    assert seen(b"") == []


@pytest.mark.parametrize("left", range(6, len(SECOND)))
def test_truncated_last_block_is_skipped_at_any_length(left: int) -> None:
    assert seen(FIRST + SECOND[:left]) == ["first", f"?{left}"]


@pytest.mark.parametrize("left", range(6))
def test_partial_magic_at_the_end_is_not_a_block(left: int) -> None:
    assert seen(FIRST + SECOND[:left]) == ["first"]


@pytest.mark.parametrize("left", range(6, len(SECOND)))
def test_reading_continues_at_the_next_magic_after_a_truncated_block(left: int) -> None:
    assert seen(FIRST + SECOND[:left] + THIRD) == ["first", f"?{left}", "third"]


def test_block_with_inconsistent_lengths_is_skipped() -> None:
    damaged = bytearray(SECOND)
    damaged[-1] ^= 1
    assert seen(FIRST + bytes(damaged) + THIRD) == ["first", f"?{len(SECOND)}", "third"]


@pytest.mark.parametrize("size", ["ffffffffffffffff", "7fffffffffffffff", "0000000000000000"])
def test_impossible_length_makes_the_block_corrupt(size: str) -> None:
    damaged = SECOND[:6] + bytes.fromhex(size) + SECOND[14:]
    assert seen(FIRST + damaged + THIRD) == ["first", f"?{len(SECOND)}", "third"]


def test_block_followed_by_other_bytes_is_corrupt_with_them() -> None:
    assert seen(FIRST + b"garbage" + SECOND) == [f"?{len(FIRST) + 7}", "second"]


def test_corrupt_block_reports_its_position_and_reason() -> None:
    found = list(parse_log(FIRST + SECOND[:20], where="part/f.log"))[1]
    assert isinstance(found, CorruptBlock)
    assert (found.where, found.offset, found.size_bytes) == ("part/f.log", len(FIRST), 20)
    assert "exceeds the file" in found.reason


def test_file_that_does_not_start_with_a_block_is_not_a_log_file() -> None:
    with pytest.raises(DataCorrupt, match=r"f\.log: expected a log block at byte 0"):
        seen(b"PAR1 not a log file")


def test_log_file_is_read_from_the_store_and_a_missing_one_is_reported() -> None:
    store = MemoryStore("lake")
    log = LogFile("part", ".f_1.log.1_0-0-0", "f", "0-0-0", "1", 1, len(FIRST))
    with pytest.raises(NotFound, match=r"memory://lake/part/\.f_1\.log\.1_0-0-0"):
        list(read_log(store, log))
    store.put(log.key, FIRST, Create())
    (found,) = read_log(store, log)
    assert isinstance(found, Block)
    assert bytes(found.content) == b"first"
