"""Every operation on every kind of table: the resulting rows, and the commit report."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.model import (
    INDEXES,
    LAYOUTS,
    SCHEMA,
    TYPES,
    Model,
    create_table,
    ordered,
    row,
    rows,
    stored_rows,
)
from tidelock.core.errors import ConfigInvalid, Conflict, InvalidInput
from tidelock.hudi.timeline.instant import Action

EVERY_KIND = [(kind, by, index) for kind in TYPES for by in LAYOUTS for index in INDEXES]

kinds = pytest.mark.parametrize(("kind", "by", "index"), EVERY_KIND)


@kinds
def test_upserts_insert_new_rows_and_update_older_ones(
    kind: str, by: str | None, index: str
) -> None:
    table, model = create_table(kind, by, index=index), Model(by)
    for batch in (rows(range(20)), rows(range(10, 30), 2), rows(range(5), 0)):
        table.upsert(batch)
        model.upsert(batch)
        assert stored_rows(table) == model.rows()


@kinds
def test_deleted_rows_are_gone_and_can_be_inserted_again(
    kind: str, by: str | None, index: str
) -> None:
    table, model = create_table(kind, by, index=index), Model(by)
    table.upsert(rows(range(12)))
    model.upsert(rows(range(12)))
    report = table.delete(["k001", "k004", "k999"])
    model.delete(["k001", "k004"])
    assert stored_rows(table) == model.rows()
    assert report.operation == "delete"
    table.upsert([row(1, 5)])
    model.upsert([row(1, 5)])
    assert stored_rows(table) == model.rows()


@kinds
def test_late_row_does_not_restore_a_deleted_one(kind: str, by: str | None, index: str) -> None:
    table = create_table(kind, by, index=index)
    table.upsert([row(n, 5) for n in range(4)])
    table.delete(["k001", "k002"])
    table.upsert([row(1, 2), row(3, 2)])
    assert stored_rows(table) == [row(0, 5), row(1, 2), row(3, 5)]
    table.upsert([row(1, 1), row(2, 9)])
    assert stored_rows(table) == [row(0, 5), row(1, 2), row(2, 9), row(3, 5)]


@kinds
def test_rows_with_the_deleted_flag_delete(kind: str, by: str | None, index: str) -> None:
    table = create_table(kind, by, index=index)
    table.upsert([row(n, _hoodie_is_deleted=False) for n in range(6)])
    table.upsert(
        [
            row(1, 2, _hoodie_is_deleted=True),
            row(2, 0, _hoodie_is_deleted=True),  # older than the row it would delete
            row(9, 2, _hoodie_is_deleted=True),  # absent
            row(5, 2, _hoodie_is_deleted=False),
        ]
    )
    found = [(item["id"], item["ts"]) for item in stored_rows(table)]
    assert found == [("k000", 1), ("k002", 1), ("k003", 1), ("k004", 1), ("k005", 2)]


@kinds
def test_inserts_add_rows_without_key_lookup(kind: str, by: str | None, index: str) -> None:
    table, model = create_table(kind, by, index=index), Model(by)
    for batch in (rows(range(6)), rows(range(6, 12))):
        table.insert(batch)
        model.upsert(batch)
        assert stored_rows(table) == model.rows()
    report = table.bulk_insert(rows(range(12, 20)))
    model.upsert(rows(range(12, 20)))
    assert stored_rows(table) == model.rows()
    assert report.operation == "bulk_insert"


@kinds
def test_overwrite_of_partitions_keeps_the_others(kind: str, by: str | None, index: str) -> None:
    table, model = create_table(kind, by, index=index), Model(by)
    table.upsert(rows(range(12)))
    model.upsert(rows(range(12)))
    batch = [row(30), row(33)]  # both in the region `a`
    table.insert_overwrite(batch)
    model.empty(None if by is None else ["a"])
    model.upsert(batch)
    assert stored_rows(table) == model.rows()
    table.upsert(rows(range(30, 36), 2))
    model.upsert(rows(range(30, 36), 2))
    assert stored_rows(table) == model.rows()


@kinds
def test_overwrite_of_the_table_replaces_all_rows(kind: str, by: str | None, index: str) -> None:
    table = create_table(kind, by, index=index)
    table.upsert(rows(range(12)))
    table.insert_overwrite_table([row(2, 7)])
    assert stored_rows(table) == [row(2, 7)]
    table.upsert(rows(range(3), 8))
    assert stored_rows(table) == ordered(rows(range(3), 8))


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", TYPES)
def test_deleted_partition_is_empty_and_can_be_written_again(kind: str, index: str) -> None:
    table, model = create_table(kind, "region", index=index), Model("region")
    table.upsert(rows(range(12)))
    model.upsert(rows(range(12)))
    table.delete_partition(["a"])
    model.empty(["a"])
    assert stored_rows(table) == model.rows()
    table.upsert(rows(range(6), 3))
    model.upsert(rows(range(6), 3))
    assert stored_rows(table) == model.rows()


@pytest.mark.parametrize("kind", TYPES)
def test_keys_are_deleted_from_one_partition_if_named(kind: str) -> None:
    table = create_table(kind, "region")
    table.upsert([row(1, region="a"), row(1, region="b")])
    table.delete([{"id": "k001", "region": "a"}])
    assert [item["region"] for item in stored_rows(table)] == ["b"]
    table.upsert([row(1, region="a")])
    table.delete(["k001"])
    assert stored_rows(table) == []


@pytest.mark.parametrize("kind", TYPES)
def test_duplicate_keys_in_a_batch_are_merged_by_the_merge_rule(kind: str) -> None:
    by_event, by_commit = create_table(kind), create_table(kind, ordering=None)
    batch = [row(1, 5), row(1, 9), row(1, 7)]
    by_event.upsert(batch)
    by_commit.upsert(batch)
    assert stored_rows(by_event) == [row(1, 9)]
    assert stored_rows(by_commit) == [row(1, 7)]


@pytest.mark.parametrize(
    "setting",
    [
        {"hoodie.datasource.write.insert.drop.duplicates": True},
        {"hoodie.datasource.insert.dup.policy": "drop"},
    ],
    ids=["drop-duplicates", "policy"],
)
@pytest.mark.parametrize("kind", TYPES)
def test_insert_can_repeat_a_key_by_default(kind: str, setting: dict[str, object]) -> None:
    table = create_table(kind, options={"hoodie.datasource.insert.dup.policy": "none"})
    table.insert([row(1)])
    table.insert([row(1, 2), row(2)])
    assert stored_rows(table) == [row(1), row(1, 2), row(2)]
    careful = create_table(kind, options=setting)
    careful.insert([row(1)])
    report = careful.insert([row(1, 2), row(2)])
    assert stored_rows(careful) == [row(1), row(2)]
    assert report.rows_inserted == 1


def test_unsupported_duplicate_policy_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"dup\.policy: expected one of none, drop, got 'fail'"):
        create_table(options={"hoodie.datasource.insert.dup.policy": "fail"}).insert([row(1)])


@pytest.mark.parametrize("kind", TYPES)
def test_duplicated_key_is_updated_and_deleted_everywhere(kind: str) -> None:
    table = create_table(kind, options={"hoodie.parquet.small.file.limit": 0})
    table.insert([row(1), row(2)])
    table.insert([row(1), row(3)])
    assert table.upsert([row(1, 5), row(2, 5), row(4)]).rows_updated == 3
    assert stored_rows(table) == [row(1, 5), row(1, 5), row(2, 5), row(3), row(4)]
    table.delete(["k001"])
    assert stored_rows(table) == [row(2, 5), row(3), row(4)]


def test_all_rows_of_a_key_in_a_batch_are_dropped_if_the_table_has_it() -> None:
    table = create_table(options={"hoodie.datasource.write.insert.drop.duplicates": True})
    table.insert([row(1)])
    table.insert([row(1, 2), row(1, 3), row(2), row(2)])
    assert stored_rows(table) == [row(1), row(2), row(2)]


@pytest.mark.parametrize("kind", TYPES)
def test_duplicates_are_dropped_in_buckets_too(kind: str) -> None:
    dropping = {"hoodie.datasource.write.insert.drop.duplicates": True}
    table = create_table(kind, index="BUCKET", options=dropping)
    table.insert([row(1), row(2)])
    table.insert([row(1, 5), row(3)])
    table.insert([row(3, 5), row(4)])
    assert stored_rows(table) == [row(1), row(2), row(3), row(4)]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", TYPES)
def test_deleted_key_is_not_a_duplicate(kind: str, index: str) -> None:
    dropping = {"hoodie.datasource.write.insert.drop.duplicates": True}
    table = create_table(kind, index=index, options=dropping)
    table.insert(rows(range(4)))
    table.delete(["k001", "k002"])
    table.insert([row(1, 5), row(3, 5)])
    assert stored_rows(table) == [row(0), row(1, 5), row(3)]
    table.delete(["k001"])
    table.insert([row(1, 6), row(2, 6)])
    assert stored_rows(table) == [row(0), row(1, 6), row(2, 6), row(3)]


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
@pytest.mark.parametrize("kind", TYPES)
def test_key_deleted_in_one_file_group_is_updated_only_in_the_other(kind: str, index: str) -> None:
    table = create_table(kind, index=index, options={"hoodie.parquet.small.file.limit": 0})
    table.upsert(rows(range(4)))
    table.delete(["k001", "k002"])
    table.insert([row(1, 5)])
    table.upsert([row(1, 6), row(2, 6), row(3, 6)])
    assert stored_rows(table) == [row(0), row(1, 6), row(2, 6), row(3, 6)]
    table.delete(["k001"])
    assert stored_rows(table) == [row(0), row(2, 6), row(3, 6)]
    table.upsert([row(1, 7)])  # two files have the key, and it is alive in neither
    assert stored_rows(table) == [row(0), row(1, 7), row(2, 6), row(3, 6)]


def test_key_deleted_earlier_in_event_time_is_still_a_duplicate() -> None:
    table = create_table(TYPES[1], options={"hoodie.datasource.write.insert.drop.duplicates": True})
    table.upsert([row(n, 5, _hoodie_is_deleted=False) for n in range(3)])
    table.upsert([row(1, 2, _hoodie_is_deleted=True), row(2, 7, _hoodie_is_deleted=True)])
    report = table.insert([row(n, 9, _hoodie_is_deleted=False) for n in range(3)])
    assert report.rows_inserted == 1
    assert [(item["id"], item["ts"]) for item in stored_rows(table)] == [
        ("k000", 5),
        ("k001", 5),
        ("k002", 9),
    ]


def test_report_counts_rows_and_names_the_commit() -> None:
    table = create_table()
    first = table.upsert(rows(range(5)))
    second = table.upsert(rows(range(3, 8), 2))
    third = table.delete(["k000", "k001", "k777"])
    assert (first.rows_inserted, first.rows_updated, first.files_written) == (5, 0, 1)
    assert (second.rows_inserted, second.rows_updated) == (3, 2)
    assert third.rows_deleted == 2
    assert first.instant < first.completion < second.instant < second.completion
    assert table.latest_completion == third.completion
    replaced = table.insert_overwrite_table([row(1)])
    assert (replaced.files_replaced, replaced.files_written) == (1, 1)


def test_created_table_begins_with_a_completed_empty_commit() -> None:
    for kind, action in zip(TYPES, (Action.COMMIT, Action.DELTA_COMMIT), strict=True):
        table = create_table(kind)
        (first,) = table.timeline
        assert first.is_completed
        assert first.action is action
        assert table.schema.equals(SCHEMA)
        assert table.read().num_rows == 0


def test_existing_table_is_not_created_again() -> None:
    table = create_table()
    table.upsert(rows(range(3)))
    with pytest.raises(Conflict, match="is already a Hudi table"):
        tl.Table.create(table.uri, SCHEMA, key="id")
    again = tl.Table.create(table.uri, SCHEMA, key="id", exist_ok=True)
    assert stored_rows(again) == rows(range(3))


@pytest.mark.parametrize("version", [8, 9])
def test_both_table_versions_are_written(version: int) -> None:
    table = tl.Table.create(
        f"memory://versions/{version}", SCHEMA, key="id", ordering="ts", version=version
    )
    table.upsert(rows(range(3)))
    again = tl.Table.open(table.uri)
    assert again.properties.version == version
    assert stored_rows(again) == rows(range(3))


def test_write_is_visible_to_its_own_table_and_to_others_after_a_refresh() -> None:
    table = create_table()
    other = tl.Table.open(table.uri)
    table.upsert([row(1)])
    assert stored_rows(table) == [row(1)]
    assert stored_rows(other) == []
    other.refresh()
    assert stored_rows(other) == [row(1)]


def test_rows_keep_their_commit() -> None:
    table = create_table()
    first = table.upsert([row(1), row(2)])
    second = table.upsert([row(2, 2)])
    found = table.read(meta_columns=True).to_pylist()
    times = {item["id"]: item["_hoodie_commit_time"] for item in found}
    assert times == {"k001": first.instant, "k002": second.instant}
    changed = table.changes(first.completion)
    assert [item["id"] for item in changed.to_pylist()] == ["k002"]
    assert stored_rows(table) == [row(1), row(2, 2)]
    assert [i["ts"] for i in table.read(as_of=first.instant).to_pylist()] == [1, 1]


@pytest.mark.parametrize("kind", TYPES)
def test_small_base_files_get_inserts_and_large_ones_do_not(kind: str) -> None:
    table = create_table(kind)
    table.upsert([row(1)])
    table.upsert([row(2)])
    assert len(table.files()) == 1
    picky = create_table(kind, options={"hoodie.parquet.small.file.limit": 0})
    picky.upsert([row(1)])
    picky.upsert([row(2)])
    assert len(picky.files()) == 2
    assert stored_rows(picky) == [row(1), row(2)]


def test_merge_on_read_updates_are_log_files_and_inserts_base_files() -> None:
    table = create_table("MERGE_ON_READ", options={"hoodie.parquet.small.file.limit": 0})
    table.upsert(rows(range(4)))
    table.upsert([row(1, 2), row(9)])
    slices = table.files()
    assert sorted(len(piece.logs) for piece in slices) == [0, 1]
    assert all(piece.base is not None for piece in slices)


@pytest.mark.parametrize("kind", TYPES)
def test_bucket_keeps_its_one_group_through_overwrites(kind: str) -> None:
    table = create_table(kind, "region", index="BUCKET")
    table.upsert(rows(range(12)))
    before = {(piece.partition, piece.file_id) for piece in table.files()}
    table.insert_overwrite([row(30), row(33)])
    table.upsert(rows(range(12), 2))
    after = {(piece.partition, piece.file_id) for piece in table.files()}
    assert before <= after
    buckets = [(partition, file_id[:8]) for partition, file_id in after]
    assert len(buckets) == len(set(buckets))


def test_sorted_bulk_insert_writes_key_ranges_to_files() -> None:
    table = create_table(
        options={
            "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
            "hoodie.bulkinsert.shuffle.parallelism": 3,
        }
    )
    shuffled = [row(n) for n in (7, 1, 8, 3, 0, 5, 2, 6, 4)]
    table.bulk_insert(shuffled)
    files: dict[str, list[str]] = {}
    for item in table.read(meta_columns=True).to_pylist():
        files.setdefault(item["_hoodie_file_name"], []).append(item["id"])
    assert sorted(files.values()) == [
        ["k000", "k001", "k002"],
        ["k003", "k004", "k005"],
        ["k006", "k007", "k008"],
    ]


def test_caller_metadata_is_in_the_commit() -> None:
    table = create_table()
    table.upsert([row(1)], metadata={"streamer.checkpoint.key.v2": "42"})
    snapshot = tl.Table.open(table.uri)._snapshot
    latest = snapshot.timeline.writes()[-1]
    extra = snapshot.timeline.commit(latest).extra_metadata
    assert extra["streamer.checkpoint.key.v2"] == "42"
    assert '"name":"orders_record"' in extra["schema"]


def test_failed_write_leaves_nothing() -> None:
    table = create_table()
    table.upsert([row(1)])
    before = [instant.file_name for instant in table.timeline]
    with pytest.raises(InvalidInput):
        table.upsert([row(2) | {"id": None}])
    table.refresh()
    assert [instant.file_name for instant in table.timeline] == before
    assert stored_rows(table) == [row(1)]


def test_arrow_streams_are_accepted() -> None:
    table = create_table()
    all_rows = pa.Table.from_pylist(rows(range(3)), schema=SCHEMA)
    table.upsert(all_rows)
    table.upsert(all_rows.slice(1, 1).to_batches()[0])
    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, all_rows.to_batches()))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_table(all_rows)
    table.upsert(pa.ipc.open_stream(sink.getvalue()))
    assert stored_rows(table) == rows(range(3))
