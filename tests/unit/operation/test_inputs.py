"""What may be written: rows of every make, schemas that grow, and refusals with their words."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operation.model import SCHEMA, TYPES, held, made, row, rows
from tidelock.base.errors import ConfigInvalid, InvalidInput, Unsupported
from tidelock.operation.inputs import arrow_table


def test_frames_of_pandas_and_polars_are_taken() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = made()
    table.upsert(pandas.DataFrame(rows(range(2))))
    table.upsert(polars.DataFrame(rows(range(2, 4))))
    assert held(table) == rows(range(4))
    table.delete(polars.DataFrame({"id": ["k000"]}))
    assert held(table) == rows(range(1, 4))


def test_writing_rows_loads_no_library_of_frames() -> None:
    code = (
        "import sys, tidelock as tl\n"
        "t = tl.Table.create('memory://x', [('id', 'string')], key='id')\n"
        "t.upsert([{'id': 'a'}])\n"
        "print({'polars', 'pyspark'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_is_no_table_is_refused() -> None:
    table = made()
    for strange in (7, "k001", [1, 2], object()):
        with pytest.raises(InvalidInput, match=r"give an Arrow table"):
            table.upsert(strange)
    with pytest.raises(InvalidInput, match="comes twice"):
        arrow_table(pa.table([[1], [2]], names=["a", "a"]), SCHEMA)
    with pytest.raises(InvalidInput, match=r"'k001' is no list of keys .*give \['k001'\]"):
        table.delete("k001")


def test_a_missing_key_column_is_refused_by_its_name() -> None:
    table = made()
    with pytest.raises(InvalidInput, match="the record key column 'id' is missing"):
        table.upsert([{"ts": 1}])
    with pytest.raises(InvalidInput, match="the record key column 'id' is missing"):
        table.delete([{"ts": 1}])


@pytest.mark.parametrize("blank", [None, ""])
def test_a_null_key_is_refused_with_its_row(blank: str | None) -> None:
    with pytest.raises(InvalidInput, match="row 1: the record key column 'id' is null or empty"):
        made().upsert([row(1), row(2) | {"id": blank}])


def test_a_partition_value_with_a_slash_is_refused_unless_it_is_encoded() -> None:
    with pytest.raises(InvalidInput, match=r"'a/b' of the partition field region"):
        made(partition_by="region").upsert([row(1, region="a/b")])
    encoded = made(
        partition_by="region",
        options={"hoodie.datasource.write.partitionpath.urlencode": True},
    )
    encoded.upsert([row(1, region="a/b")])
    assert [piece.partition for piece in encoded.files()] == ["a%2Fb"]
    assert held(encoded) == [row(1, region="a/b")]


@pytest.mark.parametrize("kind", TYPES)
def test_columns_are_added_and_old_rows_have_null_there(kind: str) -> None:
    table = made(kind)
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
    table.upsert([{"id": 3, "n": 0.5, "d": None}])  # not cut to 0, which Arrow would do
    assert table.schema.field("n").type == pa.float64()
    found = sorted((item["id"], item["n"], item["d"]) for item in table.read().to_pylist())
    assert found[0] == (1, 1.0, Decimal("1.50"))
    assert found[1] == (2, float(2**40), Decimal("123456.25"))
    assert found[2][:2] == (3, 0.5)


def test_a_type_that_cannot_widen_is_refused_with_both_types() -> None:
    table = made()
    table.upsert([row(1)])
    with pytest.raises(InvalidInput, match="column v has the type string, which cannot be widened"):
        table.upsert([row(1) | {"v": "many"}])
    assert held(table) == [row(1)]


def test_columns_of_nothing_but_nulls_have_the_tables_type() -> None:
    table = made()
    nothing = pa.nulls(1)
    table.upsert(
        pa.table({"id": ["k1"], "ts": [1], "region": nothing, "v": nothing, "unknown": nothing})
    )
    assert table.schema.equals(SCHEMA)


def test_times_without_a_zone_count_as_utc() -> None:
    table = tl.Table.create(
        "memory://times", [("id", "string"), ("at", pa.timestamp("ns"))], key="id"
    )
    table.upsert([{"id": "a", "at": datetime(2026, 1, 2, 3, 4, 5)}])  # noqa: DTZ001 - the point
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.read().to_pylist()[0]["at"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"did you mean hoodie.datasource.write.recordkey.field"
    ):
        tl.Table.create(
            "memory://o", SCHEMA, options={"hoodie.datasource.write.recordkey.feild": 1}
        )
    with pytest.raises(ConfigInvalid, match=r"did you mean hoodie.index.type"):
        made(options={"index.type": "BLOOM"})
    with pytest.raises(ConfigInvalid, match=r"hoodie.parquet.max.file.size = 'big' is not a whole"):
        made(options={"hoodie.parquet.max.file.size": "big"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hoodie.index.type": "GLOBAL_BLOOM"}, "unique across partitions are not"),
        ({"hoodie.index.type": "RECORD_INDEX"}, "unique across partitions are not"),
        ({"hoodie.index.type": "BTREE"}, "is no index"),
        ({"hoodie.parquet.compression.codec": "zip"}, "is no codec"),
        ({"hoodie.bulkinsert.sort.mode": "UPWARDS"}, "is not known"),
        ({"hoodie.logfile.data.block.format": "csv"}, "is not known"),
        ({"hoodie.bucket.index.num.buckets": 0}, "is not positive"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises((ConfigInvalid, Unsupported), match=words):
        made(index=str(options.pop("hoodie.index.type", "SIMPLE")), options=options).upsert([])


def test_hudis_options_make_a_table_as_arguments_do() -> None:
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
    ("arguments", "words"),
    [
        ({}, "a table needs a record key"),
        ({"key": "idd"}, "the record key column 'idd' is not in the schema"),
        ({"key": "id", "ordering": "when"}, "the ordering column 'when' is not in the schema"),
        ({"key": "id", "partition_by": "day"}, "the partition column 'day' is not in the schema"),
        ({"key": "v"}, "the record key column 'v' is a double"),
        ({"key": "id", "type": "COPY"}, "is not known"),
        ({"key": "id", "version": 6}, "tables of version 6 cannot be created"),
    ],
)
def test_a_table_that_cannot_be_is_not_made(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        tl.Table.create("memory://impossible", SCHEMA, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="needs columns"):
        tl.Table.create("memory://impossible", [], key="id")


def test_a_table_remembers_its_index() -> None:
    table = made("MERGE_ON_READ", index="BUCKET")
    table.upsert(rows(range(8)))
    again = tl.Table.open(table.uri)
    again.upsert(rows(range(8), 2))
    assert held(again) == rows(range(8), 2)
    assert all(piece.file_id.startswith("0000000") for piece in again.files())
    with pytest.raises(ConfigInvalid, match="was made with BUCKET"):
        tl.Table.open(table.uri, options={"hoodie.index.type": "SIMPLE"}).upsert([])


def test_partitions_are_deleted_only_where_there_are_some() -> None:
    with pytest.raises(InvalidInput, match="is not partitioned"):
        made().delete_partition(["a"])
    with pytest.raises(InvalidInput, match="is a string"):
        made(partition_by="region").delete_partition("a")


def test_nested_values_fit_the_tables_types_without_being_cut() -> None:
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


def test_hudis_operation_says_what_is_done_with_rows() -> None:
    def opened(operation: str, **more: str) -> tl.Table:
        named = {"hoodie.datasource.write.operation": operation, **more}
        return tl.Table.open(table.uri, options=named)

    table = made(partition_by="region")
    assert table.write(rows(range(6))).operation == "upsert"
    opened("bulk_insert").write([row(7)])
    opened("delete").write(["k000", "k001"])
    gone = {"hoodie.datasource.write.partitions.to.delete": "c"}
    opened("delete_partition", **gone).write()
    table.refresh()
    assert [item["id"] for item in held(table)] == ["k003", "k004", "k007"]
    assert table.write([row(9)], "insert_overwrite_table").files_replaced == 3
    with pytest.raises(ConfigInvalid, match="merge_into is not known"):
        table.write([row(1)], "merge_into")
