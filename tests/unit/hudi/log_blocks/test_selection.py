"""Selection of the valid blocks of a slice: time limits, rollbacks, log compactions."""

from __future__ import annotations

import pytest

from tests.unit.hudi.table_builder import rollback_block
from tidelock.core.errors import DataCorrupt, Unsupported
from tidelock.hudi.log_blocks import Block, BlockType, Header, blocks_to_merge


def data(instant: str, name: str = "", **headers: str) -> Block:
    """Return a data block whose content is its name."""
    more = {int(Header[key]): value for key, value in headers.items()}
    return Block(BlockType.AVRO, {0: instant, **more}, (name or instant).encode())


def chosen(*blocks: Block, as_of: str | None = None) -> list[str]:
    """Return the contents of the selected blocks."""
    return [str(b.content, "ascii") for b in blocks_to_merge(blocks, as_of=as_of, where="f.log")]


def test_blocks_are_selected_in_log_order() -> None:
    assert chosen(data("1"), data("2", "2a"), data("2", "2b"), data("3")) == ["1", "2a", "2b", "3"]


def test_blocks_after_the_limit_are_ignored_and_the_limit_is_inclusive() -> None:
    assert chosen(data("1"), data("2"), data("3"), as_of="2") == ["1", "2"]


def test_rollback_removes_every_earlier_block_of_its_target() -> None:
    log = (data("1"), data("2", "2a"), data("3"), data("2", "2b"))
    assert chosen(*log, rollback_block(instant="4", target="2"), data("5")) == ["1", "3", "5"]


def test_rollback_of_an_absent_target_changes_nothing() -> None:
    assert chosen(data("1"), rollback_block(instant="4", target="2")) == ["1"]


def test_log_compaction_takes_the_position_of_the_newest_block_it_replaced() -> None:
    merged = data("5", "1+2", COMPACTED_BLOCK_TIMES="1,2")
    assert chosen(data("1"), data("2"), data("3"), merged, data("6")) == ["1+2", "3", "6"]


def test_compaction_of_a_compaction_replaces_both() -> None:
    inner = data("3", "1+2", COMPACTED_BLOCK_TIMES="1,2")
    outer = data("6", "1+2+4", COMPACTED_BLOCK_TIMES="3,4")
    log = (data("1"), data("2"), inner, data("4"), data("5"), outer)
    assert chosen(*log) == ["1+2+4", "5"]


@pytest.mark.parametrize("kind", [BlockType.HFILE, BlockType.CDC, BlockType.CORRUPT])
def test_block_without_table_rows_is_refused(kind: BlockType) -> None:
    with pytest.raises(Unsupported, match=rf"f\.log.*{kind.name}"):
        chosen(Block(kind, {0: "1"}, b""))


def test_unknown_command_is_refused() -> None:
    command = Block(BlockType.COMMAND, {0: "1", int(Header.COMMAND_BLOCK_TYPE): "9"}, b"")
    with pytest.raises(Unsupported, match="unknown command '9'"):
        chosen(command)


def test_block_without_an_instant_is_corrupt() -> None:
    with pytest.raises(DataCorrupt, match="has no instant"):
        chosen(Block(BlockType.AVRO, {}, b""))
