"""CREATE, INSERT, ALTER and DROP TABLE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from tests.spark.sqlkit import Sql, sql_in
from tidelock.core.errors import Conflict, InvalidInput, NotFound, Unsupported
from tidelock.hudi.properties import TableType

COLUMNS = "id BIGINT, name STRING, n INT, day STRING"


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[Sql]:
    with sql_in(spark, tmp_path) as found:
        yield found


def test_create_table_sets_columns_and_properties(sql: Sql) -> None:
    name = sql.table(
        "id BIGINT NOT NULL, day STRING, ts TIMESTAMP, s STRUCT<a: INT, b: ARRAY<STRING>>",
        partitioned="day",
        orderingFields="ts",
        type="mor",
    )
    with tl.Table.open(sql.uri(name)) as table:
        assert table.properties.type is TableType.MERGE_ON_READ
        assert table.properties.record_keys == ("id",)
        assert table.properties.ordering_fields == ("ts",)
        assert table.properties.partition_fields == ("day",)
        # Partition columns come last, as in Spark.
        assert table.schema.names == ["id", "ts", "s", "day"]
    described = {row[0]: row[1] for row in sql(f"DESCRIBE {name}")}
    assert described["s"] == "struct<a:int,b:array<string>>"


def test_rows_are_inserted_by_position_by_name_and_by_partition(sql: Sql) -> None:
    name = sql.table(COLUMNS, partitioned="day")
    sql(f"INSERT INTO {name} VALUES (1, 'a', 1, 'd1'), (2, 'b', 2, 'd2')")
    sql(f"INSERT INTO {name} (day, id) VALUES ('d1', 3)")
    sql(f"INSERT INTO {name} PARTITION (day = 'd3') SELECT id + 10, 'r', 0 FROM range(1)")
    sql(f"INSERT INTO {name} BY NAME SELECT 'd3' AS day, 5 AS id, 'x' AS name")
    assert sql.rows(name, "id, name, n, day") == sorted(
        [
            (1, "a", 1, "d1"),
            (2, "b", 2, "d2"),
            (3, None, None, "d1"),
            (10, "r", 0, "d3"),
            (5, "x", None, "d3"),
        ],
        key=repr,
    )
    with pytest.raises(InvalidInput, match=r"expected 4 columns .* got 2"):
        sql(f"INSERT INTO {name} SELECT 1, 'a'")


def test_insert_overwrite_replaces_a_partition_or_all_rows(sql: Sql) -> None:
    name = sql.table(COLUMNS, partitioned="day")
    sql(f"INSERT INTO {name} VALUES (1, 'a', 1, 'd1'), (2, 'b', 2, 'd2'), (3, 'c', 3, 'd3')")
    sql(f"INSERT OVERWRITE {name} PARTITION (day = 'd1') SELECT 9, 'z', 9")
    assert sql.rows(name, "id, day") == [(2, "d2"), (3, "d3"), (9, "d1")]
    sql(f"INSERT OVERWRITE {name} PARTITION (day = 'd3') SELECT 1, 'q', 1 WHERE false")
    assert sql.rows(name, "id, day") == [(2, "d2"), (9, "d1")]
    sql.spark.conf.set("hoodie.datasource.overwrite.mode", "dynamic")
    try:
        sql(f"INSERT OVERWRITE {name} SELECT 4, 'd', 4, 'd2'")
    finally:
        sql.spark.conf.unset("hoodie.datasource.overwrite.mode")
    assert sql.rows(name, "id, day") == [(4, "d2"), (9, "d1")]
    sql(f"INSERT OVERWRITE TABLE {name} SELECT id + 100, name, n, day FROM {name} WHERE id = 4")
    assert sql.rows(name, "id, day") == [(104, "d2")]


def test_columns_are_added_and_widened_and_older_rows_have_nulls(sql: Sql) -> None:
    name = sql.table("id BIGINT, n INT")
    sql(f"INSERT INTO {name} VALUES (1, 1)")
    sql(f"ALTER TABLE {name} ADD COLUMNS (tags ARRAY<STRING>, price DECIMAL(10, 2))")
    sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE BIGINT")
    sql(f"INSERT INTO {name} VALUES (2, 5000000000, array('x'), 1.5)")
    assert [row[:3] for row in sql.rows(name, "id, n, tags")] == [
        (1, 1, None),
        (2, 5_000_000_000, ["x"]),
    ]
    with pytest.raises(InvalidInput, match="already has a column n"):
        sql(f"ALTER TABLE {name} ADD COLUMNS (n INT)")
    with pytest.raises(InvalidInput, match="n"):
        sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE INT")
    with pytest.raises(Unsupported, match="renaming columns is not supported"):
        sql(f"ALTER TABLE {name} CHANGE COLUMN n m BIGINT")


def test_partitions_are_dropped_and_tables_truncated(sql: Sql) -> None:
    name = sql.table(COLUMNS, partitioned="day")
    sql(f"INSERT INTO {name} VALUES (1, 'a', 1, 'd1'), (2, 'b', 2, 'd2')")
    with pytest.raises(InvalidInput, match="partition not found"):
        sql(f"ALTER TABLE {name} DROP PARTITION (day = 'd9')")
    sql(f"ALTER TABLE {name} DROP IF EXISTS PARTITION (day = 'd9'), PARTITION (day = 'd1')")
    assert sql(f"SHOW PARTITIONS {name}") == [("day=d2",)]
    sql(f"TRUNCATE TABLE {name}")
    assert sql.rows(name) == []


def test_create_table_as_select_stores_no_meta_columns(sql: Sql) -> None:
    first = sql.table("id BIGINT, name STRING")
    sql(f"INSERT INTO {first} VALUES (1, 'a')")
    sql.made.append("made_of_query")
    location = sql.folder / "made_of_query"
    statement = (
        f"CREATE TABLE made_of_query USING hudi LOCATION '{location}'"
        f" TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM {first}"
    )
    assert sql.done(statement)["rows_inserted"] == 1
    with tl.Table.open(str(location)) as table:
        assert table.schema.names == ["id", "name"]
    with pytest.raises(Conflict, match="already exists"):
        sql(statement)
    assert sql.done(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))


def test_external_table_is_registered_and_dropped_without_its_files(sql: Sql) -> None:
    name = sql.table("id BIGINT, name STRING")
    sql(f"INSERT INTO {name} VALUES (1, 'a')")
    sql(f"ALTER TABLE {name} RENAME TO {name}_b")
    sql.made.append(f"{name}_b")
    assert sql.rows(f"{name}_b", "id") == [(1,)]
    sql(f"DROP TABLE {name}_b")
    sql(f"CREATE TABLE {name} USING tidelock LOCATION '{sql.uri(name)}'")
    assert sql.rows(name, "id") == [(1,)]
    assert sql.rows(f"tidelock.`{sql.uri(name)}`", "id") == [(1,)]
    with pytest.raises(InvalidInput, match="has no column nme"):
        sql(f"CREATE TABLE other (id BIGINT, nme STRING) USING tidelock LOCATION '{sql.uri(name)}'")


def test_dropping_a_managed_table_deletes_its_files(sql: Sql) -> None:
    sql("CREATE TABLE placed (id BIGINT) USING tidelock TBLPROPERTIES (primaryKey = 'id')")
    (location,) = [row[1] for row in sql("DESCRIBE EXTENDED placed") if row[0] == "Location"]
    assert (Path(location) / ".hoodie" / "hoodie.properties").exists()
    sql("DROP TABLE placed")
    assert not (Path(location) / ".hoodie" / "hoodie.properties").exists()
    with pytest.raises(InvalidInput, match="table or view placed not found"):
        sql("SELECT * FROM placed")


def test_properties_are_options_of_later_writes(sql: Sql) -> None:
    name = sql.table("id BIGINT, n INT")
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('hoodie.spark.sql.insert.into.operation'='upsert')")
    sql(f"INSERT INTO {name} VALUES (1, 1)")
    sql(f"INSERT INTO {name} VALUES (1, 2)")
    assert sql.rows(name, "id, n") == [(1, 2)]
    option = "hoodie.spark.sql.insert.into.operation"
    sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{option}')")
    assert option not in [row[0] for row in sql(f"SHOW TBLPROPERTIES {name}")]
    with pytest.raises(InvalidInput, match=f"has no property {option}"):
        sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{option}')")
    with pytest.raises(Unsupported, match="can only be set when the table is created"):
        sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('primaryKey' = 'n')")


@pytest.mark.parametrize(
    ("statement", "kind", "expected"),
    [
        ("CREATE TABLE x (id INT) USING tidelock", InvalidInput, "primaryKey: required"),
        (
            "CREATE TABLE x (id INT) USING tidelock TBLPROPERTIES (primarKey = 'id')",
            InvalidInput,
            r"line 1:55: unknown property primarKey",
        ),
        (
            "CREATE OR REPLACE TABLE x (id INT) USING tidelock TBLPROPERTIES (primaryKey='id')",
            Unsupported,
            "OR REPLACE",
        ),
        (
            "CREATE TABLE x USING tidelock LOCATION '/nowhere/at/all'",
            NotFound,
            "declares no columns",
        ),
    ],
)
def test_invalid_definitions_are_rejected(
    sql: Sql, statement: str, kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=expected):
        sql(statement)
