"""The metadata table lists the files that Hudi's readers see: valid blocks in their order."""

from __future__ import annotations

import pytest

from tests.unit.hudi.metadata_table.metadata_builder import INIT, BuiltMetadata, records
from tests.unit.hudi.table_builder import Built, base, time
from tidelock.core.errors import DataCorrupt, NotFound
from tidelock.hudi.metadata_table import FilesListing, open_metadata_table
from tidelock.hudi.timeline.instant import Action, Instant, InstantState

BUILT = {"p": {"a": 1}}


@pytest.fixture
def table() -> Built:
    """Return a table with a write at 1 from which the metadata table was built."""
    built = Built()
    built.commit(1, 2, [base("a-0", 1)])
    return built


@pytest.fixture
def metadata(table: Built) -> BuiltMetadata:
    return BuiltMetadata(table, BUILT)


def listing(metadata: BuiltMetadata, rolled_back: tuple[str, ...] = ()) -> FilesListing:
    table = metadata.table.open()
    return open_metadata_table(table.store, table.timeline, rolled_back).files()


def files(metadata: BuiltMetadata, rolled_back: tuple[str, ...] = ()) -> dict[str, int]:
    return dict(listing(metadata, rolled_back).sizes.get("p", {}))


def test_initial_files_are_listed(metadata: BuiltMetadata) -> None:
    assert files(metadata) == {"a": 1}
    assert listing(metadata).partitions == {"p"}


def test_log_files_add_and_delete(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6)
    metadata.write(3, 5, {"p": {"b": 2}, "q": {"c": 3}})
    metadata.table.commit(7, 10, action=Action.CLEAN)
    metadata.write(7, 9, {"p": {"a": None}}, partitions={})
    assert files(metadata) == {"b": 2}
    assert listing(metadata).partitions == {"p", "q"}


def test_deleted_partition_is_not_listed(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6, action=Action.CLEAN)
    metadata.write(3, 5, {}, partitions={"p": None}, deleted=["p"])
    assert listing(metadata) == FilesListing(frozenset(), {})
    metadata.compaction(7, 8, records({}))
    metadata.table.commit(9, 12)
    metadata.write(9, 11, {"p": {"b": 2}})
    assert listing(metadata) == FilesListing(frozenset({"p"}), {"p": {"b": 2}})


def test_deletion_is_lost_by_a_later_record_over_the_base_file(
    metadata: BuiltMetadata,
) -> None:
    metadata.table.commit(3, 6, action=Action.CLEAN)
    metadata.write(3, 5, {}, partitions={"p": None}, deleted=["p"])
    metadata.table.commit(7, 10)
    metadata.write(7, 9, {"p": {"b": 2}})
    # Java and the package `hudi` list the deleted file as well.
    assert files(metadata) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("own", "data", "counts"),
    [
        ("complete", "complete", True),
        ("complete", "pending", False),
        ("complete", "absent", True),
        ("pending", "complete", False),
        ("absent", "complete", False),
        ("complete", "rolled back", True),
    ],
)
def test_valid_blocks_are_selected(
    own: str, data: str, *, counts: bool, metadata: BuiltMetadata
) -> None:
    if data == "complete":
        metadata.table.commit(3, 6)
    elif data == "pending":
        metadata.table.pending(3)
    metadata.write(3, 5 if own == "complete" else None, {"p": {"b": 2}})
    if own == "absent":
        requested = Instant(time(3), Action.DELTA_COMMIT, InstantState.REQUESTED)
        for instant in (requested, requested.started()):
            metadata.table.store.delete(metadata.key(instant))
    undone = (time(3),) if data == "rolled back" else ()
    assert files(metadata, undone) == ({"a": 1, "b": 2} if counts else {"a": 1})


def test_instant_missing_from_both_timelines_is_ignored(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6)
    metadata.write(3, 5, {"p": {"b": 2}})
    metadata.table.commit(7, 10)
    metadata.write(7, 9, {"p": {"c": 3}})
    requested = Instant(time(3), Action.DELTA_COMMIT, InstantState.REQUESTED)
    built = Instant(INIT, Action.DELTA_COMMIT, InstantState.COMPLETED, time(2))
    for instant in (built, requested, requested.started(), requested.done(time(5))):
        metadata.table.store.delete(metadata.key(instant))
    assert files(metadata) == {"a": 1, "b": 2, "c": 3}, "the data table still has it"
    metadata.table.forget(requested.done(time(6)))
    assert files(metadata) == {"a": 1, "c": 3}


def test_records_are_merged_by_request_time(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 12)
    metadata.table.commit(5, 8, action=Action.CLEAN)
    metadata.write(5, 7, {"p": {"b": None}}, partitions={})
    metadata.write(3, 11, {"p": {"b": 2}})
    assert files(metadata) == {"a": 1}


def test_compaction_replaces_the_files_it_merged(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6)
    metadata.write(3, 5, {"p": {"b": 2}})
    metadata.compaction(7, None, {})
    assert files(metadata) == {"a": 1, "b": 2}
    # Requested before the compaction and completed after it: it stays on top.
    metadata.table.commit(4, 10)
    metadata.write(4, 9, {"p": {"c": 3}})
    assert files(metadata) == {"a": 1, "b": 2, "c": 3}
    metadata.compaction(7, 8, records({"p": {"merged": 7}}))
    assert files(metadata) == {"merged": 7, "c": 3}


def test_missing_metadata_table_is_reported(metadata: BuiltMetadata) -> None:
    metadata.table.store.delete(".hoodie/metadata/.hoodie/hoodie.properties")
    with pytest.raises(NotFound, match=r"\.hoodie/metadata"):
        listing(metadata)


def test_damaged_file_is_named(metadata: BuiltMetadata) -> None:
    key = f".hoodie/metadata/files/files-0000-0_0-0-0_{INIT}.hfile"
    metadata.table.put(key, b"no HFile")
    with pytest.raises(DataCorrupt, match=key):
        listing(metadata)
    metadata.table.store.delete(key)
    with pytest.raises(DataCorrupt, match=r"\.hoodie/metadata/files has no file"):
        listing(metadata)
