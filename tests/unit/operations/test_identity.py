"""Options that contradict a table are refused; an invalid definition leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.core.errors import ConfigInvalid, InvalidInput, TidelockError

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("region", pa.string())])
ROWS = [{"id": 1, "ts": 1, "region": "eu"}]

SAME = {
    "hoodie.table.name": "Orders",
    "hoodie.database.name": "default",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "region:SIMPLE",
    "hoodie.datasource.write.table.type": "copy_on_write",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.write.keygenerator.type": "simple",
    "hoodie.datasource.write.hive_style_partitioning": "FALSE",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.write.record.merge.mode": "event_time_ordering",
    "hoodie.write.table.version": "9",
}
OTHER = {
    "hoodie.table.name": "customers",
    "hoodie.database.name": "sales",
    "hoodie.datasource.write.recordkey.field": "id,region",
    "hoodie.table.recordkey.fields": "region",
    "hoodie.datasource.write.precombine.field": "id",
    "hoodie.table.ordering.fields": "",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.table.partition.fields": "id",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "hoodie.datasource.write.keygenerator.type": "COMPLEX",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.write.table.version": "8",
}


def orders(folder: Path) -> str:
    uri = str(folder / "orders")
    tl.Table.create(
        uri, SCHEMA, key="id", ordering="ts", partition_by="region", name="orders"
    ).close()
    return uri


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_equivalent_options_are_accepted(tmp_path: Path) -> None:
    uri = orders(tmp_path)
    for name, value in SAME.items():
        with tl.Table.open(uri, options={name: value}) as table:
            table.upsert(ROWS)
    with tl.Table.open(uri, options=SAME) as table:
        assert table.upsert(ROWS).rows_updated == 1


@pytest.mark.parametrize(("name", "value"), OTHER.items())
def test_option_that_contradicts_the_table_is_refused(
    tmp_path: Path, name: str, value: str
) -> None:
    uri = orders(tmp_path)
    before = files(tmp_path)
    with (
        tl.Table.open(uri, options={name: value}) as table,
        pytest.raises(ConfigInvalid, match="options contradict the table") as raised,
    ):
        table.upsert(ROWS)
    assert f"{name}: expected '" in raised.value.message
    assert f"got {value!r}" in raised.value.message
    assert files(tmp_path) == before


def test_all_contradictions_are_reported_together(tmp_path: Path) -> None:
    uri = orders(tmp_path)
    with tl.Table.open(uri, options=OTHER) as table, pytest.raises(ConfigInvalid) as raised:
        table.delete([1])
    assert all(name in raised.value.message for name in OTHER)


def test_existing_table_is_not_mistaken_for_another(tmp_path: Path) -> None:
    uri = orders(tmp_path)
    same: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "region"}
    same["exist_ok"] = True
    tl.Table.create(uri, SCHEMA, **same).close()
    others: list[dict[str, Any]] = [
        {"key": "ts"},
        {"ordering": "id"},
        {"partition_by": []},
        {"type": "MERGE_ON_READ"},
    ]
    for other in others:
        with pytest.raises(ConfigInvalid, match="contradict the table"):
            tl.Table.create(uri, SCHEMA, **{**same, **other})


BAD: list[dict[str, object]] = [
    {"hoodie.index.type": "BTREE"},
    {"hoodie.index.type": "GLOBAL_BLOOM"},
    {"hoodie.parquet.compression.codec": "zip"},
    {"hoodie.parquet.max.file.size": "big"},
    {"hoodie.bulkinsert.sort.mode": "UPWARDS"},
    {"hoodie.write.concurrency.mode": "HOPEFUL"},
    {"hoodie.write.lock.provider": "org.example.NoSuchProvider"},
    {"hoodie.clean.commits.retained": "many"},
    {"hoodie.compact.inline": "perhaps"},
    {"hoodie.datasource.write.partitionpath.feild": "region"},
    {"hoodie.write.table.version": "7"},
    {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.hash.field": "ts"},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_creation_with_an_invalid_option_leaves_nothing_behind(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(TidelockError):
        tl.Table.create(str(tmp_path / "orders"), SCHEMA, key="id", options=options)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.field("at", pa.time32("s")), "column at: time32"),
        (pa.field("at", pa.time64("ns")), "column at: time64"),
        (pa.field("amount", pa.decimal256(40, 2)), "column amount: decimal256"),
        (pa.field("inner", pa.struct([("at", pa.time32("s"))])), "time32"),
        (pa.field("many", pa.list_(pa.decimal256(50, 0))), "decimal256"),
        (pa.field("span", pa.duration("s")), "column span"),
        (pa.field("big", pa.uint64()), "column big"),
        (pa.field("nothing", pa.null()), "column nothing"),
        (pa.field("no name", pa.int64()), "not a valid Avro name"),
        (pa.field("id", pa.int64()), "twice"),
    ],
)
def test_unwritable_column_is_refused_at_creation(
    tmp_path: Path, column: pa.Field, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        tl.Table.create(str(tmp_path / "orders"), pa.schema([*SCHEMA, column]), key="id")
    assert files(tmp_path) == []


def test_rows_cannot_add_a_column_that_other_readers_cannot_read(tmp_path: Path) -> None:
    with tl.Table.create(str(tmp_path / "orders"), SCHEMA, key="id") as table:
        before = files(tmp_path)
        for kind in (pa.time32("s"), pa.time64("ns"), pa.decimal256(40, 2)):
            rows = pa.Table.from_pylist(ROWS, SCHEMA).append_column("new", pa.nulls(1, kind))
            with pytest.raises(InvalidInput, match="column new"):
                table.upsert(rows)
        assert files(tmp_path) == before
