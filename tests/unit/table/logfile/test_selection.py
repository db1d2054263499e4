"""Which blocks of a slice count: limits in time, rollbacks, log compactions."""

from __future__ import annotations

import pytest

from tidelock.base.errors import DataCorrupt, Unsupported
from tidelock.table.logfile.block import Block, BlockType, Header
from tidelock.table.logfile.selection import counting
from tidelock.table.logfile.writer import rollback_block


def data(instant: str, name: str = "", **headers: str) -> Block:
    """Return a data block whose content is its name."""
    more = {int(Header[key]): value for key, value in headers.items()}
    return Block(BlockType.AVRO, {0: instant, **more}, (name or instant).encode())


def chosen(*blocks: Block, as_of: str | None = None) -> list[str]:
    """Return the contents of the blocks that count."""
    return [str(b.content, "ascii") for b in counting(blocks, as_of=as_of, where="f.log")]


def test_blocks_count_in_the_order_of_the_log() -> None:
    assert chosen(data("1"), data("2", "2a"), data("2", "2b"), data("3")) == ["1", "2a", "2b", "3"]


def test_blocks_after_the_limit_do_not_count_and_the_limit_itself_does() -> None:
    assert chosen(data("1"), data("2"), data("3"), as_of="2") == ["1", "2"]


def test_a_rollback_voids_every_earlier_block_of_its_target() -> None:
    log = (data("1"), data("2", "2a"), data("3"), data("2", "2b"))
    assert chosen(*log, rollback_block(instant="4", target="2"), data("5")) == ["1", "3", "5"]


def test_a_rollback_of_what_is_not_there_changes_nothing() -> None:
    assert chosen(data("1"), rollback_block(instant="4", target="2")) == ["1"]


def test_a_log_compaction_stands_in_for_the_newest_block_it_replaced() -> None:
    merged = data("5", "1+2", COMPACTED_BLOCK_TIMES="1,2")
    assert chosen(data("1"), data("2"), data("3"), merged, data("6")) == ["1+2", "3", "6"]


def test_a_compaction_of_a_compaction_replaces_both() -> None:
    inner = data("3", "1+2", COMPACTED_BLOCK_TIMES="1,2")
    outer = data("6", "1+2+4", COMPACTED_BLOCK_TIMES="3,4")
    log = (data("1"), data("2"), inner, data("4"), data("5"), outer)
    assert chosen(*log) == ["1+2+4", "5"]


@pytest.mark.parametrize("kind", [BlockType.HFILE, BlockType.CDC, BlockType.CORRUPT])
def test_a_block_that_holds_no_rows_of_a_table_is_refused(kind: BlockType) -> None:
    with pytest.raises(Unsupported, match=rf"f\.log.*{kind.name}"):
        chosen(Block(kind, {0: "1"}, b""))


def test_an_unknown_command_is_refused() -> None:
    command = Block(BlockType.COMMAND, {0: "1", int(Header.COMMAND_BLOCK_TYPE): "9"}, b"")
    with pytest.raises(Unsupported, match="unknown command '9'"):
        chosen(command)


def test_a_block_without_an_instant_is_corrupt() -> None:
    with pytest.raises(DataCorrupt, match="names no instant"):
        chosen(Block(BlockType.AVRO, {}, b""))
