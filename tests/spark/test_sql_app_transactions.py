"""A SQL statement with an application transaction is applied once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.execution.spark.session import session_setting


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[tl.Table]:
    schema = [("id", "int64"), ("n", "int64")]
    with tl.Table.create(str(tmp_path / "t"), schema, key="id") as made:
        made.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        yield made


def _run(spark: SparkSession, statement: str, version: int) -> None:
    with (
        session_setting(spark, "tidelock.txn.app.id", "nightly"),
        session_setting(spark, "tidelock.txn.version", str(version)),
    ):
        tl.sql(spark, statement)


def test_statement_is_applied_once_per_version(spark: SparkSession, table: tl.Table) -> None:
    name = f"tidelock.`{table.uri}`"
    for _ in range(2):
        _run(spark, f"UPDATE {name} SET n = n + 1 WHERE id = 1", 1)
        _run(spark, f"INSERT INTO {name} VALUES (3, 3)", 2)
    table.refresh()
    assert sorted(table.read().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "n": 2},
        {"id": 2, "n": 2},
        {"id": 3, "n": 3},
    ]


def test_statement_that_finds_no_rows_counts_as_applied(
    spark: SparkSession, table: tl.Table
) -> None:
    name = f"tidelock.`{table.uri}`"
    _run(spark, f"DELETE FROM {name} WHERE id = 99", 1)
    _run(spark, f"UPDATE {name} SET n = 0 WHERE id = 99", 2)
    last = table.app_transaction("nightly")
    assert last is not None
    assert last.version == 2
    _run(spark, f"DELETE FROM {name} WHERE id = 1", 2)
    table.refresh()
    assert table.read().num_rows == 2
