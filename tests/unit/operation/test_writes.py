"""Every operation on every kind of table: what the table holds afterwards, and what is reported."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operation.model import (
    INDEXES,
    LAYOUTS,
    SCHEMA,
    TYPES,
    Model,
    held,
    made,
    ordered,
    row,
    rows,
)
from tidelock.base.errors import ConfigInvalid, Conflict, InvalidInput
from tidelock.table.timeline.instant import Action

EVERY_KIND = [(kind, by, index) for kind in TYPES for by in LAYOUTS for index in INDEXES]

kinds = pytest.mark.parametrize(("kind", "by", "index"), EVERY_KIND)


@kinds
def test_upserts_insert_new_rows_and_update_older_ones(
    kind: str, by: str | None, index: str
) -> None:
    table, model = made(kind, by, index=index), Model(by)
    for batch in (rows(range(20)), rows(range(10, 30), 2), rows(range(5), 0)):
        table.upsert(batch)
        model.upsert(batch)
        assert held(table) == model.rows()


@kinds
def test_deleted_rows_are_gone_and_may_come_again(kind: str, by: str | None, index: str) -> None:
    table, model = made(kind, by, index=index), Model(by)
    table.upsert(rows(range(12)))
    model.upsert(rows(range(12)))
    report = table.delete(["k001", "k004", "k999"])
    model.delete(["k001", "k004"])
    assert held(table) == model.rows()
    assert report.operation == "delete"
    table.upsert([row(1, 5)])
    model.upsert([row(1, 5)])
    assert held(table) == model.rows()


@kinds
def test_a_deleted_row_does_not_come_back_under_a_late_one(
    kind: str, by: str | None, index: str
) -> None:
    table = made(kind, by, index=index)
    table.upsert([row(n, 5) for n in range(4)])
    table.delete(["k001", "k002"])
    table.upsert([row(1, 2), row(3, 2)])
    assert held(table) == [row(0, 5), row(1, 2), row(3, 5)]
    table.upsert([row(1, 1), row(2, 9)])
    assert held(table) == [row(0, 5), row(1, 2), row(2, 9), row(3, 5)]


@kinds
def test_rows_that_say_so_delete(kind: str, by: str | None, index: str) -> None:
    table = made(kind, by, index=index)
    table.upsert([row(n, _hoodie_is_deleted=False) for n in range(6)])
    table.upsert(
        [
            row(1, 2, _hoodie_is_deleted=True),
            row(2, 0, _hoodie_is_deleted=True),  # older than what it would delete
            row(9, 2, _hoodie_is_deleted=True),  # there is none
            row(5, 2, _hoodie_is_deleted=False),
        ]
    )
    found = [(item["id"], item["ts"]) for item in held(table)]
    assert found == [("k000", 1), ("k002", 1), ("k003", 1), ("k004", 1), ("k005", 2)]


@kinds
def test_inserts_add_rows_without_looking(kind: str, by: str | None, index: str) -> None:
    table, model = made(kind, by, index=index), Model(by)
    for batch in (rows(range(6)), rows(range(6, 12))):
        table.insert(batch)
        model.upsert(batch)
        assert held(table) == model.rows()
    report = table.bulk_insert(rows(range(12, 20)))
    model.upsert(rows(range(12, 20)))
    assert held(table) == model.rows()
    assert report.operation == "bulk_insert"


@kinds
def test_an_overwrite_of_partitions_leaves_the_others(
    kind: str, by: str | None, index: str
) -> None:
    table, model = made(kind, by, index=index), Model(by)
    table.upsert(rows(range(12)))
    model.upsert(rows(range(12)))
    batch = [row(30), row(33)]  # both of the region `a`
    table.insert_overwrite(batch)
    model.empty(None if by is None else ["a"])
    model.upsert(batch)
    assert held(table) == model.rows()
    table.upsert(rows(range(30, 36), 2))
    model.upsert(rows(range(30, 36), 2))
    assert held(table) == model.rows()


@kinds
def test_an_overwrite_of_the_table_leaves_nothing_else(
    kind: str, by: str | None, index: str
) -> None:
    table = made(kind, by, index=index)
    table.upsert(rows(range(12)))
    table.insert_overwrite_table([row(2, 7)])
    assert held(table) == [row(2, 7)]
    table.upsert(rows(range(3), 8))
    assert held(table) == ordered(rows(range(3), 8))


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_deleted_partition_is_empty_and_can_be_filled_again(kind: str, index: str) -> None:
    table, model = made(kind, "region", index=index), Model("region")
    table.upsert(rows(range(12)))
    model.upsert(rows(range(12)))
    table.delete_partition(["a"])
    model.empty(["a"])
    assert held(table) == model.rows()
    table.upsert(rows(range(6), 3))
    model.upsert(rows(range(6), 3))
    assert held(table) == model.rows()


@pytest.mark.parametrize("kind", TYPES)
def test_keys_are_deleted_from_one_partition_if_it_is_named(kind: str) -> None:
    table = made(kind, "region")
    table.upsert([row(1, region="a"), row(1, region="b")])
    table.delete([{"id": "k001", "region": "a"}])
    assert [item["region"] for item in held(table)] == ["b"]
    table.upsert([row(1, region="a")])
    table.delete(["k001"])
    assert held(table) == []


@pytest.mark.parametrize("kind", TYPES)
def test_one_row_of_a_key_is_kept_by_the_merge_rule(kind: str) -> None:
    by_event, by_commit = made(kind), made(kind, ordering=None)
    batch = [row(1, 5), row(1, 9), row(1, 7)]
    by_event.upsert(batch)
    by_commit.upsert(batch)
    assert held(by_event) == [row(1, 9)]
    assert held(by_commit) == [row(1, 7)]


@pytest.mark.parametrize(
    "setting",
    [
        {"hoodie.datasource.write.insert.drop.duplicates": True},
        {"hoodie.datasource.insert.dup.policy": "drop"},
    ],
    ids=["drop-duplicates", "policy"],
)
@pytest.mark.parametrize("kind", TYPES)
def test_an_insert_may_repeat_a_key_unless_told_otherwise(
    kind: str, setting: dict[str, object]
) -> None:
    table = made(kind, options={"hoodie.datasource.insert.dup.policy": "none"})
    table.insert([row(1)])
    table.insert([row(1, 2), row(2)])
    assert held(table) == [row(1), row(1, 2), row(2)]
    careful = made(kind, options=setting)
    careful.insert([row(1)])
    report = careful.insert([row(1, 2), row(2)])
    assert held(careful) == [row(1), row(2)]
    assert report.rows_inserted == 1


def test_a_policy_for_duplicates_that_is_not_followed_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"dup\.policy = fail .*use none, drop"):
        made(options={"hoodie.datasource.insert.dup.policy": "fail"}).insert([row(1)])


@pytest.mark.parametrize("kind", TYPES)
def test_a_key_that_is_there_twice_is_updated_and_deleted_everywhere(kind: str) -> None:
    table = made(kind, options={"hoodie.parquet.small.file.limit": 0})
    table.insert([row(1), row(2)])
    table.insert([row(1), row(3)])
    assert table.upsert([row(1, 5), row(2, 5), row(4)]).rows_updated == 3
    assert held(table) == [row(1, 5), row(1, 5), row(2, 5), row(3), row(4)]
    table.delete(["k001"])
    assert held(table) == [row(2, 5), row(3), row(4)]


def test_rows_of_one_key_in_one_batch_are_all_dropped_if_the_table_has_it() -> None:
    table = made(options={"hoodie.datasource.write.insert.drop.duplicates": True})
    table.insert([row(1)])
    table.insert([row(1, 2), row(1, 3), row(2), row(2)])
    assert held(table) == [row(1), row(2), row(2)]


@pytest.mark.parametrize("kind", TYPES)
def test_duplicates_are_dropped_in_buckets_too(kind: str) -> None:
    dropping = {"hoodie.datasource.write.insert.drop.duplicates": True}
    table = made(kind, index="BUCKET", options=dropping)
    table.insert([row(1), row(2)])
    table.insert([row(1, 5), row(3)])
    table.insert([row(3, 5), row(4)])
    assert held(table) == [row(1), row(2), row(3), row(4)]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_deleted_key_is_no_duplicate(kind: str, index: str) -> None:
    dropping = {"hoodie.datasource.write.insert.drop.duplicates": True}
    table = made(kind, index=index, options=dropping)
    table.insert(rows(range(4)))
    table.delete(["k001", "k002"])
    table.insert([row(1, 5), row(3, 5)])
    assert held(table) == [row(0), row(1, 5), row(3)]
    table.delete(["k001"])
    table.insert([row(1, 6), row(2, 6)])
    assert held(table) == [row(0), row(1, 6), row(2, 6), row(3)]


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
@pytest.mark.parametrize("kind", TYPES)
def test_a_key_that_was_deleted_in_one_file_group_is_updated_in_the_other_alone(
    kind: str, index: str
) -> None:
    table = made(kind, index=index, options={"hoodie.parquet.small.file.limit": 0})
    table.upsert(rows(range(4)))
    table.delete(["k001", "k002"])
    table.insert([row(1, 5)])
    table.upsert([row(1, 6), row(2, 6), row(3, 6)])
    assert held(table) == [row(0), row(1, 6), row(2, 6), row(3, 6)]
    table.delete(["k001"])
    assert held(table) == [row(0), row(2, 6), row(3, 6)]
    table.upsert([row(1, 7)])  # two files hold the key, and it is alive in none
    assert held(table) == [row(0), row(1, 7), row(2, 6), row(3, 6)]


def test_a_key_that_was_deleted_earlier_in_event_time_is_still_a_duplicate() -> None:
    table = made(TYPES[1], options={"hoodie.datasource.write.insert.drop.duplicates": True})
    table.upsert([row(n, 5, _hoodie_is_deleted=False) for n in range(3)])
    table.upsert([row(1, 2, _hoodie_is_deleted=True), row(2, 7, _hoodie_is_deleted=True)])
    report = table.insert([row(n, 9, _hoodie_is_deleted=False) for n in range(3)])
    assert report.rows_inserted == 1
    assert [(item["id"], item["ts"]) for item in held(table)] == [
        ("k000", 5),
        ("k001", 5),
        ("k002", 9),
    ]


def test_a_report_counts_rows_and_names_the_commit() -> None:
    table = made()
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


def test_a_created_table_begins_with_a_completed_empty_commit() -> None:
    for kind, action in zip(TYPES, (Action.COMMIT, Action.DELTA_COMMIT), strict=True):
        table = made(kind)
        (first,) = table.timeline
        assert first.is_completed
        assert first.action is action
        assert table.schema.equals(SCHEMA)
        assert table.read().num_rows == 0


def test_a_table_that_is_there_is_not_made_again() -> None:
    table = made()
    table.upsert(rows(range(3)))
    with pytest.raises(Conflict, match="already is a Hudi table"):
        tl.Table.create(table.uri, SCHEMA, key="id")
    again = tl.Table.create(table.uri, SCHEMA, key="id", exist_ok=True)
    assert held(again) == rows(range(3))


@pytest.mark.parametrize("version", [8, 9])
def test_both_table_versions_are_written(version: int) -> None:
    table = tl.Table.create(
        f"memory://versions/{version}", SCHEMA, key="id", ordering="ts", version=version
    )
    table.upsert(rows(range(3)))
    again = tl.Table.open(table.uri)
    assert again.properties.version == version
    assert held(again) == rows(range(3))


def test_a_write_is_seen_by_its_own_table_and_by_others_after_a_refresh() -> None:
    table = made()
    other = tl.Table.open(table.uri)
    table.upsert([row(1)])
    assert held(table) == [row(1)]
    assert held(other) == []
    other.refresh()
    assert held(other) == [row(1)]


def test_rows_keep_the_commit_that_wrote_them() -> None:
    table = made()
    first = table.upsert([row(1), row(2)])
    second = table.upsert([row(2, 2)])
    found = table.read(meta_columns=True).to_pylist()
    times = {item["id"]: item["_hoodie_commit_time"] for item in found}
    assert times == {"k001": first.instant, "k002": second.instant}
    changed = table.changes(first.completion)
    assert [item["id"] for item in changed.to_pylist()] == ["k002"]
    assert held(table) == [row(1), row(2, 2)]
    assert [i["ts"] for i in table.read(as_of=first.instant).to_pylist()] == [1, 1]


@pytest.mark.parametrize("kind", TYPES)
def test_small_base_files_take_inserts_and_large_ones_do_not(kind: str) -> None:
    table = made(kind)
    table.upsert([row(1)])
    table.upsert([row(2)])
    assert len(table.files()) == 1
    picky = made(kind, options={"hoodie.parquet.small.file.limit": 0})
    picky.upsert([row(1)])
    picky.upsert([row(2)])
    assert len(picky.files()) == 2
    assert held(picky) == [row(1), row(2)]


def test_updates_of_a_merge_on_read_table_are_log_files_and_inserts_base_files() -> None:
    table = made("MERGE_ON_READ", options={"hoodie.parquet.small.file.limit": 0})
    table.upsert(rows(range(4)))
    table.upsert([row(1, 2), row(9)])
    slices = table.files()
    assert sorted(len(piece.logs) for piece in slices) == [0, 1]
    assert all(piece.base is not None for piece in slices)


@pytest.mark.parametrize("kind", TYPES)
def test_a_bucket_keeps_its_one_group_through_overwrites(kind: str) -> None:
    table = made(kind, "region", index="BUCKET")
    table.upsert(rows(range(12)))
    before = {(piece.partition, piece.file_id) for piece in table.files()}
    table.insert_overwrite([row(30), row(33)])
    table.upsert(rows(range(12), 2))
    after = {(piece.partition, piece.file_id) for piece in table.files()}
    assert before <= after
    buckets = [(partition, file_id[:8]) for partition, file_id in after]
    assert len(buckets) == len(set(buckets))


def test_a_sorted_bulk_insert_lays_runs_of_keys_into_files() -> None:
    table = made(
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


def test_metadata_of_the_caller_is_in_the_commit() -> None:
    table = made()
    table.upsert([row(1)], metadata={"streamer.checkpoint.key.v2": "42"})
    snapshot = tl.Table.open(table.uri)._snapshot
    latest = snapshot.timeline.writes()[-1]
    extra = snapshot.timeline.commit(latest).extra_metadata
    assert extra["streamer.checkpoint.key.v2"] == "42"
    assert '"name":"orders_record"' in extra["schema"]


def test_nothing_is_left_of_a_write_that_fails() -> None:
    table = made()
    table.upsert([row(1)])
    before = [instant.file_name for instant in table.timeline]
    with pytest.raises(InvalidInput):
        table.upsert([row(2) | {"id": None}])
    table.refresh()
    assert [instant.file_name for instant in table.timeline] == before
    assert held(table) == [row(1)]


def test_a_table_takes_what_arrow_can_stream() -> None:
    table = made()
    whole = pa.Table.from_pylist(rows(range(3)), schema=SCHEMA)
    table.upsert(whole)
    table.upsert(whole.slice(1, 1).to_batches()[0])
    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, whole.to_batches()))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_table(whole)
    table.upsert(pa.ipc.open_stream(sink.getvalue()))
    assert held(table) == rows(range(3))
