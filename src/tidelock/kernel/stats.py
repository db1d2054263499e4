"""The write stat of each kind of file, as Hudi's own writers fill it."""

from __future__ import annotations

from dataclasses import replace

from tidelock.kernel.basewriter import BaseWritten
from tidelock.kernel.incoming import Tally
from tidelock.kernel.stored import Stored
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.timeline.metadata import NO_COMMIT, WriteStat


def created_stat(partition: str, file_id: str, written: BaseWritten) -> WriteStat:
    """Return the stat of a group's first base file."""
    return WriteStat(
        file_id=file_id,
        path=path_of(partition, written.name),
        prev_commit=NO_COMMIT,
        partition_path=partition,
        num_writes=written.rows,
        num_inserts=written.rows,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
    )


def merged_stat(piece: FileSlice, written: BaseWritten, tally: Tally) -> WriteStat:
    """Return the stat of a base file that took in changes."""
    stat = replace(
        created_stat(piece.partition, piece.file_id, written),
        num_inserts=tally.inserted,
        num_update_writes=tally.updated,
        num_deletes=tally.deleted,
    )
    return _replacing(piece, stat)


def compacted_stat(piece: FileSlice, written: BaseWritten, stored: Stored) -> WriteStat:
    """Return the stat of a base file that took in its group's log files."""
    stat = replace(
        created_stat(piece.partition, piece.file_id, written),
        num_inserts=0,
        total_log_records=stored.log_records,
        total_log_blocks=stored.log_blocks,
        total_corrupt_log_block=stored.corrupt_blocks,
        total_updated_records_compacted=0 if stored.changes is None else len(stored.changes.keys),
        total_log_files_compacted=len(piece.logs),
        total_log_size_compacted=sum(log.size_bytes for log in piece.logs),
    )
    return _replacing(piece, stat)


def appended_stat(
    partition: str,
    file_id: str,
    *,
    name: str,
    instant: str,
    size_bytes: int,
    tally: Tally,
    base_file: str = "",
) -> WriteStat:
    """Return the stat of a log file: its previous commit is its own, as Hudi has it.

    `base_file` is the one that the writer found the keys in, "" if there is none.
    """
    return WriteStat(
        file_id=file_id,
        path=path_of(partition, name),
        prev_commit=instant,
        partition_path=partition,
        num_writes=tally.inserted + tally.updated,
        num_inserts=tally.inserted,
        num_update_writes=tally.updated,
        num_deletes=tally.deleted,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
        log_version=1,
        log_offset=0,
        base_file=base_file,
        log_files=(name,),
    )


def path_of(partition: str, name: str) -> str:
    """Return a file's path below the table."""
    return f"{partition}/{name}" if partition else name


def _replacing(piece: FileSlice, stat: WriteStat) -> WriteStat:
    if piece.base is None:
        return stat
    return replace(stat, prev_commit=piece.base.instant, prev_base_file=piece.base.name)
