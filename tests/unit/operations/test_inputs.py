"""Accepted inputs: rows of every library, growing schemas, and refusals with their messages."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.model import SCHEMA, TYPES, create_table, row, rows, stored_rows
from tidelock.core.errors import ConfigInvalid, InvalidInput, Unsupported
from tidelock.operations.request import arrow_table


def test_pandas_and_polars_frames_are_accepted() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    table = create_table()
    table.upsert(pandas.DataFrame(rows(range(2))))
    table.upsert(polars.DataFrame(rows(range(2, 4))))
    assert stored_rows(table) == rows(range(4))
    table.delete(polars.DataFrame({"id": ["k000"]}))
    assert stored_rows(table) == rows(range(1, 4))


def test_writing_rows_loads_no_frame_library() -> None:
    code = (
        "import sys, tidelock as tl\n"
        "t = tl.Table.create('memory://x', [('id', 'string')], key='id')\n"
        "t.upsert([{'id': 'a'}])\n"
        "print({'polars', 'pyspark'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_unsupported_input_is_refused() -> None:
    table = create_table()
    for strange in (7, "k001", [1, 2], object()):
        with pytest.raises(InvalidInput, match=r"use an Arrow table"):
            table.upsert(strange)
    with pytest.raises(InvalidInput, match="occurs twice"):
        arrow_table(pa.table([[1], [2]], names=["a", "a"]), SCHEMA)
    with pytest.raises(InvalidInput, match=r"expected a list, got 'k001' .*use \['k001'\]"):
        table.delete("k001")


def test_missing_key_column_is_refused_by_name() -> None:
    table = create_table()
    with pytest.raises(InvalidInput, match="record key column 'id' does not exist"):
        table.upsert([{"ts": 1}])
    with pytest.raises(InvalidInput, match="record key column 'id' does not exist"):
        table.delete([{"ts": 1}])


@pytest.mark.parametrize("blank", [None, ""])
def test_null_key_is_refused_with_its_row(blank: str | None) -> None:
    with pytest.raises(InvalidInput, match="row 1: the record key column 'id' is null or empty"):
        create_table().upsert([row(1), row(2) | {"id": blank}])


def test_partition_value_with_a_slash_is_refused_unless_encoded() -> None:
    with pytest.raises(InvalidInput, match=r"partition field region: 'a/b'"):
        create_table(partition_by="region").upsert([row(1, region="a/b")])
    encoded = create_table(
        partition_by="region",
        options={"hoodie.datasource.write.partitionpath.urlencode": True},
    )
    encoded.upsert([row(1, region="a/b")])
    assert [piece.partition for piece in encoded.files()] == ["a%2Fb"]
    assert stored_rows(encoded) == [row(1, region="a/b")]


@pytest.mark.parametrize("kind", TYPES)
def test_columns_are_added_and_old_rows_have_null(kind: str) -> None:
    table = create_table(kind)
    table.upsert(rows(range(3)))
    table.upsert([row(1, 2, note="hello"), row(7, note="new")])
    found = {item["id"]: item["note"] for item in table.read().to_pylist()}
    assert found == {"k000": None, "k001": "hello", "k002": None, "k007": "new"}
    assert table.schema.names == [*SCHEMA.names, "note"]
    table.upsert([row(2, 3, note=None)])
    assert table.schema.names == [*SCHEMA.names, "note"]


@pytest.mark.parametrize("kind", TYPES)
def test_types_widen(kind: str) -> None:
    table = tl.Table.create(
        f"memory://widening/{kind}",
        [("id", pa.int32()), ("n", pa.int32()), ("d", pa.decimal128(4, 1))],
        key="id",
        type=kind,
    )
    table.upsert([{"id": 1, "n": 1, "d": Decimal("1.5")}])
    table.upsert([{"id": 2, "n": 2**40, "d": Decimal("123456.25")}])
    assert table.schema.field("n").type == pa.int64()
    table.upsert([{"id": 3, "n": 0.5, "d": None}])  # not truncated to 0, as Arrow would do
    assert table.schema.field("n").type == pa.float64()
    found = sorted((item["id"], item["n"], item["d"]) for item in table.read().to_pylist())
    assert found[0] == (1, 1.0, Decimal("1.50"))
    assert found[1] == (2, float(2**40), Decimal("123456.25"))
    assert found[2][:2] == (3, 0.5)


def test_type_that_cannot_widen_is_refused_with_both_types() -> None:
    table = create_table()
    table.upsert([row(1)])
    with pytest.raises(InvalidInput, match="column v: string cannot be widened"):
        table.upsert([row(1) | {"v": "many"}])
    assert stored_rows(table) == [row(1)]


def test_all_null_columns_have_the_type_of_the_table() -> None:
    table = create_table()
    nothing = pa.nulls(1)
    table.upsert(
        pa.table({"id": ["k1"], "ts": [1], "region": nothing, "v": nothing, "unknown": nothing})
    )
    assert table.schema.equals(SCHEMA)


def test_times_without_a_zone_are_utc() -> None:
    table = tl.Table.create(
        "memory://times", [("id", "string"), ("at", pa.timestamp("ns"))], key="id"
    )
    table.upsert([{"id": "a", "at": datetime(2026, 1, 2, 3, 4, 5)}])  # noqa: DTZ001 - the point
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.read().to_pylist()[0]["at"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"did you mean hoodie.datasource.write.recordkey.field"
    ):
        tl.Table.create(
            "memory://o", SCHEMA, options={"hoodie.datasource.write.recordkey.feild": 1}
        )
    with pytest.raises(ConfigInvalid, match=r"did you mean hoodie.index.type"):
        create_table(options={"index.type": "BLOOM"})
    with pytest.raises(
        ConfigInvalid, match=r"hoodie\.parquet\.max\.file\.size: expected an integer, got 'big'"
    ):
        create_table(options={"hoodie.parquet.max.file.size": "big"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hoodie.index.type": "GLOBAL_BLOOM"}, "global index GLOBAL_BLOOM is not"),
        ({"hoodie.index.type": "RECORD_INDEX"}, "global index RECORD_INDEX is not"),
        ({"hoodie.index.type": "BTREE"}, "got 'BTREE'"),
        ({"hoodie.parquet.compression.codec": "zip"}, "expected one of"),
        ({"hoodie.bulkinsert.sort.mode": "UPWARDS"}, "expected one of"),
        ({"hoodie.logfile.data.block.format": "csv"}, "expected one of"),
        ({"hoodie.bucket.index.num.buckets": 0}, "expected a positive integer, got 0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises((ConfigInvalid, Unsupported), match=message):
        create_table(index=str(options.pop("hoodie.index.type", "SIMPLE")), options=options).upsert(
            []
        )


def test_hudi_options_create_a_table_as_arguments_do() -> None:
    table = tl.Table.create(
        "memory://by-options",
        SCHEMA,
        options={
            "hoodie.table.name": "orders",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "region",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.keygenerator.class": "org.apache.SimpleKeyGenerator",
            "hoodie.write.table.version": "8",
            "hoodie.metadata.enable": "false",
        },
    )
    properties = table.properties
    assert (properties.name, properties.version) == ("orders", 8)
    assert properties.record_keys == ("id",)
    assert properties.ordering_fields == ("ts",)
    table.upsert([row(3)])
    assert [piece.partition for piece in table.files()] == ["region=a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "key: expected at least one column"),
        ({"key": "idd"}, "the record key column 'idd' is not in the schema"),
        ({"key": "id", "ordering": "when"}, "the ordering column 'when' is not in the schema"),
        ({"key": "id", "partition_by": "day"}, "the partition column 'day' is not in the schema"),
        ({"key": "v"}, "record key column 'v': double"),
        ({"key": "id", "type": "COPY"}, "got 'COPY'"),
        ({"key": "id", "version": 6}, "cannot create a table of version 6"),
    ],
)
def test_invalid_table_is_not_created(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        tl.Table.create("memory://impossible", SCHEMA, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="expected at least one column"):
        tl.Table.create("memory://impossible", [], key="id")


def test_table_remembers_its_index() -> None:
    table = create_table("MERGE_ON_READ", index="BUCKET")
    table.upsert(rows(range(8)))
    again = tl.Table.open(table.uri)
    again.upsert(rows(range(8), 2))
    assert stored_rows(again) == rows(range(8), 2)
    assert all(piece.file_id.startswith("0000000") for piece in again.files())
    with pytest.raises(ConfigInvalid, match="expected 'BUCKET' of table"):
        tl.Table.open(table.uri, options={"hoodie.index.type": "SIMPLE"}).upsert([])


def test_partitions_are_deleted_only_in_partitioned_tables() -> None:
    with pytest.raises(InvalidInput, match="is not partitioned"):
        create_table().delete_partition(["a"])
    with pytest.raises(InvalidInput, match="expected a list of paths"):
        create_table(partition_by="region").delete_partition("a")


def test_nested_values_are_converted_without_truncation() -> None:
    kinds = pa.schema(
        [
            ("id", pa.string()),
            ("sizes", pa.list_(pa.int32())),
            ("place", pa.struct([("zip", pa.int32()), ("city", pa.string())])),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )
    exact = [{"id": "a", "sizes": (1, 2), "place": {"zip": 7}, "counts": {"x": 1}}]
    table = arrow_table(exact, kinds)
    assert table.schema.equals(kinds)
    found = table.to_pylist(maps_as_pydicts="strict")
    assert found == [
        {"id": "a", "sizes": [1, 2], "place": {"zip": 7, "city": None}, "counts": {"x": 1}}
    ]
    wider = arrow_table([{"id": "a", "sizes": [0.5], "place": {"zip": 1.0}}], kinds)
    assert wider.schema.field("sizes").type == pa.list_(pa.float64())
    assert wider.to_pylist()[0]["sizes"] == [0.5]


def test_hudi_operation_option_selects_the_write_operation() -> None:
    def opened(operation: str, **more: str) -> tl.Table:
        named = {"hoodie.datasource.write.operation": operation, **more}
        return tl.Table.open(table.uri, options=named)

    table = create_table(partition_by="region")
    assert table.write(rows(range(6))).operation == "upsert"
    opened("bulk_insert").write([row(7)])
    opened("delete").write(["k000", "k001"])
    gone = {"hoodie.datasource.write.partitions.to.delete": "c"}
    opened("delete_partition", **gone).write()
    table.refresh()
    assert [item["id"] for item in stored_rows(table)] == ["k003", "k004", "k007"]
    assert table.write([row(9)], "insert_overwrite_table").files_replaced == 3
    with pytest.raises(ConfigInvalid, match=r"unknown operation .merge_into."):
        table.write([row(1)], "merge_into")
