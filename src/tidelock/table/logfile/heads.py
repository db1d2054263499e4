"""What the blocks of a log file say of themselves, without fetching what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.block import MAGIC, Block, decode_head
from tidelock.table.logfile.reader import read_log

_WHOLE_BYTES: Final = 64 * 1024
"""Files up to this size are fetched at once; of a larger one as much as a head may take."""

_LENGTH_AT: Final = len(MAGIC)
_FRAME_BYTES: Final = len(MAGIC) + 8


def read_heads(store: ObjectStore, log: LogFile) -> Iterator[Block]:
    """Yield the blocks of a log file, each without its content.

    Raises: `NotFound`, `DataCorrupt`.
    """
    found = None if log.size_bytes <= _WHOLE_BYTES else _jumped(store, log)
    if found is not None:
        yield from found
        return
    for block in read_log(store, log):
        if isinstance(block, Block):
            yield replace(block, content=b"")


def _jumped(store: ObjectStore, log: LogFile) -> list[Block] | None:
    """Go from block to block; None where the file is not one whole block after the other."""
    blocks: list[Block] = []
    position = 0
    where = f"{store.uri}/{log.key}"
    while position < log.size_bytes:
        end = min(log.size_bytes, position + _WHOLE_BYTES)
        part = store.get(log.key, start=position, end=end)
        if part is None or len(part.body) <= _FRAME_BYTES or not part.body.startswith(MAGIC):
            return None
        size = int.from_bytes(part.body[_LENGTH_AT:_FRAME_BYTES], "big", signed=True)
        after = position + _FRAME_BYTES + size
        if size < 28 or after > log.size_bytes:
            return None
        try:
            blocks.append(decode_head(memoryview(part.body)[_FRAME_BYTES:], where=where))
        except DataCorrupt:
            # Its headers are longer than what was fetched, or it is no block.
            return None
        position = after
    return blocks
