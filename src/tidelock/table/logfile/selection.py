"""Which blocks of a slice count, and in which order they are merged."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelock.base.errors import DataCorrupt, Unsupported
from tidelock.table.logfile.block import Block, BlockType, Header

_DATA = (BlockType.AVRO, BlockType.PARQUET, BlockType.DELETE)
_ROLLBACK = "0"


def counting(
    blocks: Iterable[Block],
    *,
    as_of: str | None,
    where: str,
    kinds: Collection[BlockType] = _DATA,
) -> list[Block]:
    """Return the blocks to merge, oldest first, out of the blocks of a slice in log order.

    `kinds` are those that the table has: the metadata table has others than data tables.

    Left out are blocks of instants after `as_of`, blocks that a later command rolled back, and
    blocks that a log compaction replaced: its own block takes the place of the newest of them.

    Raises: `Unsupported` for a kind of block that is no part of a table's rows, `DataCorrupt`.
    """
    by_instant: dict[str, list[Block]] = {}
    for block in blocks:
        if block.type == BlockType.COMMAND:
            _roll_back(block, by_instant, where)
        elif block.type not in kinds:
            expected = ", ".join(kind.name for kind in kinds)
            raise Unsupported(f"{where}: found a block of type {block.type.name}, not {expected}")
        elif not block.instant:
            raise DataCorrupt(f"{where}: a {block.type.name} block names no instant")
        elif as_of is None or block.instant <= as_of:
            by_instant.setdefault(block.instant, []).append(block)
    return _with_compacted(by_instant)


def _roll_back(block: Block, by_instant: dict[str, list[Block]], where: str) -> None:
    command = block.headers.get(Header.COMMAND_BLOCK_TYPE)
    if command != _ROLLBACK:
        raise Unsupported(f"{where}: a command block has the unknown command {command!r}")
    by_instant.pop(block.headers.get(Header.TARGET_INSTANT_TIME, ""), None)


def _with_compacted(by_instant: dict[str, list[Block]]) -> list[Block]:
    """Walk from the newest instant to the oldest: a compaction is newer than what it replaced."""
    final: dict[str, str] = {}
    chosen: list[str] = []
    for instant, blocks in reversed(by_instant.items()):
        replaced = blocks[0].headers.get(Header.COMPACTED_BLOCK_TIMES)
        if replaced is not None:
            for original in replaced.split(","):
                final[original] = final.get(instant, instant)
        else:
            place = final.get(instant, instant)
            if place not in chosen:
                chosen.append(place)
    return [block for instant in reversed(chosen) for block in by_instant[instant]]
