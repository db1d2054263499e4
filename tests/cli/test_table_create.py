"""`table create` and `table validate`."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelock as tl
from tests.cli.program import Program
from tests.cli.valid_table import valid_table
from tests.unit.hudi.table_builder import base
from tidelock.core.errors import InvalidInput
from tidelock.operations.column_ddl import parse_columns

COLUMNS = "id long, ts timestamp, day date"


def test_created_table_can_be_written(tidelock: Program, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders")
    made = tidelock(
        *("table", "create", uri, "--columns", COLUMNS, "--key", "id", "--ordering", "ts"),
        *("--partition-by", "day", "--type", "mor", "--version", "8", "--json"),
    ).facts
    assert (made["name"], made["type"], made["version"]) == ("orders", "MERGE_ON_READ", 8)
    assert (made["record_keys"], made["partition_fields"]) == (["id"], ["day"])
    assert made["columns"][1] == {"name": "ts", "type": "timestamp[us, tz=UTC]"}
    with tl.Table.open(uri) as table:
        table.upsert([{"id": n, "ts": None, "day": date(2025, 1, n)} for n in (1, 2)])
        assert table.read().num_rows == 2
        assert table.properties.ordering_fields == ("ts",)
    assert tidelock("table", "validate", uri).code == 0


def test_create_reports_the_new_table(tidelock: Program, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders")
    output = tidelock("table", "create", uri, "--columns", "a int, b string", "--key", "a,b").out
    assert output.startswith("created orders")
    assert "COPY_ON_WRITE" in output
    assert "a, b" in output


def test_create_accepts_hudi_options(tidelock: Program, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders")
    hive_style = "hoodie.datasource.write.hive_style_partitioning=true"
    given = ("--key", "id", "--partition-by", "day", "-O", hive_style, "--name", "sales")
    assert tidelock("table", "create", uri, "--columns", COLUMNS, *given).code == 0
    with tl.Table.open(uri) as table:
        assert (table.properties.hive_style, table.properties.name) == (True, "sales")


def test_columns_can_be_read_from_a_file(tidelock: Program, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["x"]})
    pq.write_table(rows, tmp_path / "sample.parquet")
    avro = tmp_path / "orders.avsc"
    avro.write_text(
        '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"},'
        ' {"name": "name", "type": ["null", "string"]}]}'
    )
    for number, file in enumerate((tmp_path / "sample.parquet", avro)):
        uri = str(tmp_path / str(number))
        assert tidelock("table", "create", uri, "--schema", str(file), "--key", "id").code == 0
        with tl.Table.open(uri) as table:
            assert table.schema.names == ["id", "name"]
            assert table.schema.types == [pa.int64(), pa.string()]


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        (["--columns", COLUMNS], 2, "expected at least one column"),
        (["--columns", COLUMNS, "--key", "no"], 2, "'no' is not in the schema"),
        (["--key", "id"], 2, "--columns or --schema: expected one"),
        (["--columns", "id lung", "--key", "id"], 2, "near 'id lung'"),
        (["--columns", COLUMNS, "--key", "id", "--type", "x"], 2, "got 'X'"),
        (["--columns", COLUMNS, "--key", "id", "--version", "7"], 2, "version 7"),
        (["--columns", COLUMNS, "--key", "id", "-O", "x"], 2, "expected KEY=VALUE"),
        (["--columns", COLUMNS, "--key", "id", "-O", "hoodie.table.nme=x"], 2, "unknown setting"),
        (["--schema", "/no/such.avsc", "--key", "id"], 8, "cannot be read"),
    ],
)
def test_invalid_arguments_are_reported_and_create_no_table(
    tidelock: Program, tmp_path: Path, given: list[str], code: int, says: str
) -> None:
    ended = tidelock("table", "create", str(tmp_path / "orders"), *given)
    assert ended.code == code
    assert says in ended.err
    assert not (tmp_path / "orders" / ".hoodie").exists()


@pytest.mark.parametrize("body", [b"PAR1 and nothing else", b"\xff\xfe", b"[]", b"{}"])
def test_invalid_schema_file_is_refused(tidelock: Program, tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "schema"
    file.write_bytes(body)
    ended = tidelock("table", "create", str(tmp_path / "t"), "--schema", str(file), "--key", "id")
    assert ended.code in (2, 7)
    assert str(file) in ended.err


def test_existing_table_is_not_created_again(tidelock: Program, tmp_path: Path) -> None:
    command = ("table", "create", str(tmp_path / "t"), "--columns", COLUMNS, "--key", "id")
    assert tidelock(*command).code == 0
    again = tidelock(*command)
    assert again.code == 4
    assert "is already a Hudi table" in again.err


# --- column lists
# ----------------------------------------------------------------------------------


def test_columns_have_spark_types() -> None:
    typed = (
        "a boolean, b TINYINT, c int, d bigint, e float, f double, g string, h binary, i date,"
        " j timestamp NOT NULL, k decimal(12,2), l decimal, `m` array<array<string>>,"
        " n map<string, struct<x: long, y int>>"
    )
    schema = parse_columns(typed)
    assert schema.names == list("abcdefghijklmn")
    assert schema.types == [
        pa.bool_(),
        pa.int32(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.decimal128(12, 2),
        pa.decimal128(10, 0),
        pa.list_(pa.list_(pa.string())),
        pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.int32())])),
    ]
    assert [field.name for field in schema if not field.nullable] == ["j"]


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "id",
        "id long,",
        "id long ts long",
        "id array<long",
        "id decimal(40,2)",
        "id decimal(x)",
        "id map<long,long>",
        "id-2 long",
        "id long not",
        "`a b` long",
    ],
)
def test_invalid_columns_are_refused(typed: str) -> None:
    with pytest.raises(InvalidInput):
        parse_columns(typed)


# --- validate -------------------------------------------------------------------------------------


def test_validate_exits_with_0_for_a_valid_table(tidelock: Program, tmp_path: Path) -> None:
    folder = valid_table().copy_to(tmp_path / "built")
    ended = tidelock("table", "validate", str(folder))
    assert ended.code == 0
    assert "consistent: no findings (9 instants, 3 files, 5 rows)" in ended.out
    shown = tidelock("table", "validate", str(folder), "--json").facts
    assert (shown["consistent"], shown["findings"]) == (True, [])
    assert shown["examined"] == {"instants": 9, "files": 3, "rows": 5}


def test_validate_exits_with_1_for_a_problem(tidelock: Program, tmp_path: Path) -> None:
    folder = valid_table().copy_to(tmp_path / "built")
    (folder / base("g-0", 1)).unlink()
    ended = tidelock("table", "validate", str(folder))
    assert ended.code == 1
    assert "inconsistent: 1 problem" in ended.out
    shown = tidelock("table", "validate", str(folder), "--json")
    assert shown.code == 1
    (finding,) = [each for each in shown.facts["findings"] if each["check"] == "files"]
    assert (finding["severity"], finding["object"]) == ("problem", base("g-0", 1))
    assert finding["next_step"]


def test_validate_exits_with_0_for_a_warning(tidelock: Program, tmp_path: Path) -> None:
    folder = valid_table().copy_to(tmp_path / "built")
    (folder / "q" / "notes.parquet").touch()
    ended = tidelock("table", "validate", str(folder))
    assert ended.code == 0
    assert "consistent: 1 warning (" in ended.out


def test_validate_without_rows_reads_none(tidelock: Program, tmp_path: Path) -> None:
    folder = valid_table().copy_to(tmp_path / "built")
    shown = tidelock("table", "validate", str(folder), "--no-rows", "--json").facts
    assert "rows" not in shown["examined"]


def test_validate_of_a_missing_table_is_an_error(tidelock: Program, tmp_path: Path) -> None:
    ended = tidelock("table", "validate", str(tmp_path))
    assert ended.code == 8
    assert "not a Hudi table" in ended.err
