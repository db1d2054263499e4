"""From the bytes of a log file to its blocks, past whatever a torn write left in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.block import MAGIC, Block, decode_block


@dataclass(frozen=True, slots=True)
class CorruptBlock:
    """Bytes that are no block: the rest of a write that did not finish. Readers skip them."""

    where: str
    offset: int
    size_bytes: int
    reason: str


def read_log(store: ObjectStore, log: LogFile) -> Iterator[Block | CorruptBlock]:
    """Yield the blocks of a log file.

    Torn blocks among the bytes that a completed write has recorded are errors; others are what a
    write left that did not finish. Raises: `NotFound`, `DataCorrupt`.
    """
    found = store.get(log.key)
    if found is None:
        raise NotFound(
            f"{store.uri}/{log.key}: the log file is gone",
            hint="a cleaner may have removed it; open the table again",
        )
    where = f"{store.uri}/{log.key}"
    if len(found.body) < log.size_bytes:
        raise DataCorrupt(
            f"{where} has {len(found.body):,} of {log.size_bytes:,} bytes",
            hint="it was truncated: restore it from a copy, or roll back the write that made it",
        )
    for block in blocks_of(found.body, where=where):
        if isinstance(block, CorruptBlock) and block.offset < log.committed_bytes:
            raise DataCorrupt(
                f"{where}: {block.size_bytes:,} bytes at byte {block.offset:,} are no block:"
                f" {block.reason}; the commit {log.instant} names the file, so they were one",
                hint="restore it from a copy, or restore the table to a commit before that",
            )
        yield block


def blocks_of(data: bytes | memoryview, *, where: str) -> Iterator[Block | CorruptBlock]:
    """Yield the blocks of a log file's bytes.

    What makes a block corrupt, and where reading goes on after it, is Hudi's rule: a length that
    runs past the end, two lengths that differ, or no magic right after the block; and then the next
    magic after the corrupt block's own. Fewer bytes than a magic at the end are no block at all.

    Raises: `DataCorrupt` when the file does not start with a block, or an intact block's inside
    contradicts its frame.
    """
    view, body, position = memoryview(data), bytes(data), 0
    while position + len(MAGIC) <= len(view):
        if not body.startswith(MAGIC, position):
            raise DataCorrupt(
                f"{where}: no log block starts at byte {position}",
                hint="it is not a log file, or not one of this format",
            )
        start = position + len(MAGIC) + 8
        size = int.from_bytes(view[position + len(MAGIC) : start], "big", signed=True)
        reason = _problem(view, start, size)
        if reason:
            after = body.find(MAGIC, position + len(MAGIC))
            after = len(view) if after < 0 else after
            yield CorruptBlock(where, position, after - position, reason)
            position = after
        else:
            yield decode_block(view[start : start + size], where=f"{where} at byte {position}")
            position = start + size


def _problem(view: memoryview, start: int, size: int) -> str:
    """Say what is wrong with the frame of a block, if anything."""
    end = start + size
    if start > len(view) or end > len(view):
        return "it runs past the end of the file"
    if size < 28:
        return f"its length {size} is too small for a block"
    trailer = int.from_bytes(view[end - 8 : end], "big", signed=True)
    if trailer - len(MAGIC) != size:
        return f"its lengths differ: {size} in front, {trailer - len(MAGIC)} behind"
    following = bytes(view[end : end + len(MAGIC)])
    if len(following) == len(MAGIC) and following != MAGIC:
        return "no block follows it, but other bytes do"
    return ""
