"""Whether log files are whole: every block intact, and of the write that its file is of."""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.base.errors import TidelockError
from tidelock.ops.validate.findings import Finding, problem
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.reader import CorruptBlock, read_log

CHECK = "logs"


def check_log(store: ObjectStore, log: LogFile) -> Iterator[Finding]:
    """Yield what is wrong with a log file of a completed write."""
    blocks = 0
    try:
        for block in read_log(store, log):
            blocks += 1
            if isinstance(block, CorruptBlock):
                yield problem(
                    CHECK,
                    log.key,
                    f"a block of {block.size_bytes:,} bytes at byte {block.offset:,} is torn"
                    f" ({block.reason}); readers pass over it, and its rows are lost",
                    f"restore it from a copy, or roll back the write {log.instant}",
                )
            elif block.instant != log.instant:
                yield problem(
                    CHECK,
                    log.key,
                    f"it is of the write {log.instant}, but has a block of {block.instant}",
                    "readers that go back in time misplace it: compact this file group",
                )
    except TidelockError as error:
        said = error.message.removeprefix(f"{store.uri}/")
        step = error.hint or f"restore it from a copy, or roll back the write {log.instant}"
        yield problem(CHECK, log.key, f"it cannot be read: {said}", step)
        return
    if not blocks:
        yield problem(
            CHECK,
            log.key,
            "it has no block at all",
            f"restore it from a copy, or roll back the write {log.instant}",
        )
