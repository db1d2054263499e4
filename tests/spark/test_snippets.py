"""The Spark snippets of the README and the docs run unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelock as tl

ROOT = Path(__file__).parents[2]
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(page: str) -> list[str]:
    return _PYTHON.findall((ROOT / page).read_text())


def run(code: str, paths: Mapping[str, str], names: dict[str, Any]) -> dict[str, Any]:
    """Run a snippet with its paths replaced."""
    for printed, path in paths.items():
        assert printed in code, f"{printed} is not in the snippet any more"
        code = code.replace(printed, path)
    exec(compile(code, "snippet", "exec"), names)
    return names


def test_quickstart_of_the_readme_runs(spark: SparkSession, tmp_path: Path) -> None:
    plain, on_spark, _ = snippets("README.md")
    lake = {"/tmp/lake": str(tmp_path)}
    names = run(plain, lake, {})
    assert names["orders"].read(columns=["id", "total"]).to_pylist() == [{"id": 1, "total": 10.0}]
    rows = pa.table({"id": [3, 4], "total": [1.0, 2.0], "ts": [5, 5]})
    names |= {"spark": spark, "df": spark.createDataFrame(rows.to_pandas())}
    spark.createDataFrame([(4, 7.0, 6)], "id bigint, total double, ts bigint") \
        .createOrReplaceTempView("changes")  # fmt: skip
    (tmp_path / "inbox").mkdir()
    stream = spark.readStream.schema("id bigint, total double, ts bigint")
    names["stream"] = stream.json(str(tmp_path / "inbox"))
    # The stream has no input here; it is stopped once it runs.
    try:
        run(on_spark, {**lake, "/tmp/ckpt": str(tmp_path / "ckpt")}, names)
    finally:
        for query in spark.streams.active:
            query.stop()
    with tl.Table.open(str(tmp_path / "orders")) as orders:
        found = {row["id"]: row["total"] for row in orders.read().to_pylist()}
    assert found == {1: 10.0, 3: 1.0, 4: 7.0}


def test_statements_of_the_sql_page_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = snippets("docs/sql.md")
    located = {" PARTITIONED BY": f" LOCATION '{tmp_path}/orders' PARTITIONED BY"}
    try:
        run(code, located, {"spark": spark})
        assert "UPDATE" in capsys.readouterr().out.upper()
        assert spark.sql("SELECT amount FROM orders").collect()[0][0] == 19.0
    finally:
        spark.sql("DROP TABLE IF EXISTS orders")


def test_streams_of_the_streaming_page_run(spark: SparkSession, tmp_path: Path) -> None:
    streams, batch = snippets("docs/streaming.md")
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
    }
    uri = str(tmp_path / "orders")
    rows = spark.createDataFrame([(1, 1)], "id bigint, ts bigint")
    names: dict[str, Any] = {"df": rows, "hudi_options": options, "uri": uri}
    for _ in range(2):
        run(batch, {}, names)
    with tl.Table.open(uri) as table:
        assert len([each for each in table.history() if each.rows_written]) == 1
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.json").write_text('{"id": 2, "ts": 1}\n')
    orders = spark.readStream.schema("id bigint, ts bigint").json(str(tmp_path / "inbox"))
    paths = {"s3://lake": str(tmp_path), "s3a://lake": str(tmp_path)}
    try:
        run(streams, paths, {**names, "orders": orders, "SparkSession": SparkSession})
        (query,) = spark.streams.active
        query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    with tl.Table.open(uri) as table:
        assert sorted(table.read(["id"]).column("id").to_pylist()) == [1, 2]
