"""A past snapshot is complete unless a clean deleted files of it."""

from __future__ import annotations

from tests.unit.hudi.table_builder import Built, base, time
from tidelock.hudi.properties import TableType
from tidelock.hudi.snapshot import open_table
from tidelock.hudi.timeline.metadata import CleanMetadata, CleanPartition, encode
from tidelock.services.rollback import lost_files


def test_file_deleted_by_two_cleans_is_lost_once() -> None:
    table = Built(TableType.COPY_ON_WRITE)
    table.commit(1, 2, [base("g-0", 1)])
    table.commit(3, 4, [base("g-0", 3)])
    gone = (base("g-0", 1),)
    table.store.delete(gone[0])
    for at in (5, 7):
        cleaned = CleanPartition("p", "KEEP_LATEST_COMMITS", gone, gone)
        clean = CleanMetadata(time(at), 1, 1, time(3), partition_metadata={"p": cleaned})
        table.put(f".hoodie/timeline/{time(at)}_{time(at + 1)}.clean", encode(clean))
    snapshot = open_table(table.store)
    assert lost_files(snapshot, time(2)) == gone
    assert lost_files(snapshot, time(4)) == ()
