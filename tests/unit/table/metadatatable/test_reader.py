"""The metadata table lists what Hudi's readers see: which blocks count, and in which order."""

from __future__ import annotations

import pytest

from tests.unit.table.building import Built, base, time
from tests.unit.table.metadatatable.building import INIT, BuiltMetadata, records
from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.table.metadatatable.files import FilesListing
from tidelock.table.metadatatable.reader import open_metadata_table
from tidelock.table.timeline.instant import Action, Instant, State

BUILT = {"p": {"a": 1}}


@pytest.fixture
def table() -> Built:
    """Return a table with a write at 1 that the metadata table was built from."""
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


def test_what_it_was_built_from_is_listed(metadata: BuiltMetadata) -> None:
    assert files(metadata) == {"a": 1}
    assert listing(metadata).partitions == {"p"}


def test_log_files_add_and_delete(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6)
    metadata.write(3, 5, {"p": {"b": 2}, "q": {"c": 3}})
    metadata.table.commit(7, 10, action=Action.CLEAN)
    metadata.write(7, 9, {"p": {"a": None}}, partitions={})
    assert files(metadata) == {"b": 2}
    assert listing(metadata).partitions == {"p", "q"}


def test_a_deleted_partition_is_not_listed(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6, action=Action.CLEAN)
    metadata.write(3, 5, {}, partitions={"p": None}, deleted=["p"])
    assert listing(metadata) == FilesListing(frozenset(), {})
    metadata.compaction(7, 8, records({}))
    metadata.table.commit(9, 12)
    metadata.write(9, 11, {"p": {"b": 2}})
    assert listing(metadata) == FilesListing(frozenset({"p"}), {"p": {"b": 2}})


def test_a_deletion_is_forgotten_by_a_later_record_over_the_base_file(
    metadata: BuiltMetadata,
) -> None:
    metadata.table.commit(3, 6, action=Action.CLEAN)
    metadata.write(3, 5, {}, partitions={"p": None}, deleted=["p"])
    metadata.table.commit(7, 10)
    metadata.write(7, 9, {"p": {"b": 2}})
    # Java and the package `hudi` see the file that is gone as well.
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
def test_which_blocks_count(own: str, data: str, *, counts: bool, metadata: BuiltMetadata) -> None:
    if data == "complete":
        metadata.table.commit(3, 6)
    elif data == "pending":
        metadata.table.pending(3)
    metadata.write(3, 5 if own == "complete" else None, {"p": {"b": 2}})
    if own == "absent":
        requested = Instant(time(3), Action.DELTA_COMMIT, State.REQUESTED)
        for instant in (requested, requested.started()):
            metadata.table.store.delete(metadata.key(instant))
    undone = (time(3),) if data == "rolled back" else ()
    assert files(metadata, undone) == ({"a": 1, "b": 2} if counts else {"a": 1})


def test_an_instant_that_left_both_timelines_does_not_count(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6)
    metadata.write(3, 5, {"p": {"b": 2}})
    metadata.table.commit(7, 10)
    metadata.write(7, 9, {"p": {"c": 3}})
    requested = Instant(time(3), Action.DELTA_COMMIT, State.REQUESTED)
    built = Instant(INIT, Action.DELTA_COMMIT, State.COMPLETED, time(2))
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


def test_a_compaction_takes_the_place_of_what_it_merged(metadata: BuiltMetadata) -> None:
    metadata.table.commit(3, 6)
    metadata.write(3, 5, {"p": {"b": 2}})
    metadata.compaction(7, None, {})
    assert files(metadata) == {"a": 1, "b": 2}
    # Requested before the compaction, and completed after it: it lies on top.
    metadata.table.commit(4, 10)
    metadata.write(4, 9, {"p": {"c": 3}})
    assert files(metadata) == {"a": 1, "b": 2, "c": 3}
    metadata.compaction(7, 8, records({"p": {"merged": 7}}))
    assert files(metadata) == {"merged": 7, "c": 3}


def test_a_table_without_one_is_told(metadata: BuiltMetadata) -> None:
    metadata.table.store.delete(".hoodie/metadata/.hoodie/hoodie.properties")
    with pytest.raises(NotFound, match=r"\.hoodie/metadata"):
        listing(metadata)


def test_damage_names_the_file(metadata: BuiltMetadata) -> None:
    key = f".hoodie/metadata/files/files-0000-0_0-0-0_{INIT}.hfile"
    metadata.table.put(key, b"no HFile")
    with pytest.raises(DataCorrupt, match=key):
        listing(metadata)
    metadata.table.store.delete(key)
    with pytest.raises(DataCorrupt, match=r"\.hoodie/metadata/files has no file"):
        listing(metadata)
