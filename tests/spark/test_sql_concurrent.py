"""Concurrent statements that read the rows they change: no update is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from tests.spark.sqlkit import Sql, sql_in

RAISES = 20
RIVAL = f"""
import sys, pyarrow.compute as pc, tidelock as tl

def raised(now):
    rows = now.read()
    rows = rows.filter(pc.equal(rows.column("id"), 1))
    at = rows.column_names.index("n")
    return rows.set_column(at, "n", pc.add(rows.column("n"), 1))

with tl.Table.open(sys.argv[1]) as table:
    print("ready", flush=True)
    for _ in range({RAISES}):
        table.rewrite(raised)
        table.upsert([{{"id": 2, "n": 5, "day": "d2"}}])
"""


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[Sql]:
    with sql_in(spark, tmp_path) as found:
        yield found


def test_concurrent_increments_of_two_processes_all_count(sql: Sql) -> None:
    name = sql.table("id BIGINT, n BIGINT, day STRING", partitioned="day")
    sql(f"INSERT INTO {name} VALUES (1, 0, 'd1'), (2, 0, 'd2')")
    sql(f"UPDATE {name} SET n = 0")
    rival = subprocess.Popen(
        [sys.executable, "-c", RIVAL, sql.uri(name)], stdout=subprocess.PIPE, text=True
    )
    with rival:
        assert rival.stdout is not None
        assert rival.stdout.readline().strip() == "ready"
        raises = 0
        while raises < 4 or rival.poll() is None:
            sql(f"UPDATE {name} SET n = n + 1 WHERE id = 1")
            raises += 1
        assert rival.wait(timeout=120) == 0
    assert sql.rows(name, "id, n") == [(1, RAISES + raises), (2, 5)]


def test_merge_runs_again_after_a_concurrent_commit(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelock.spark.sql.merge import MergeExecution

    name = sql.table("id BIGINT, n BIGINT")
    sql(f"INSERT INTO {name} VALUES (1, 0), (2, 0)")
    original, calls = MergeExecution.compute, []

    def run_after_commit(self: MergeExecution, now: object) -> object:
        rows = original(self, now)  # type: ignore[arg-type]
        calls.append(now)
        if len(calls) == 1:
            with tl.Table.open(sql.uri(name)) as other:
                other.upsert([{"id": 1, "n": 10}])
        return rows

    monkeypatch.setattr(MergeExecution, "compute", run_after_commit)
    sql(
        f"MERGE INTO {name} t USING (SELECT 1 AS id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET n = t.n + 1"
    )
    assert len(calls) == 2
    assert sql.rows(name, "id, n") == [(1, 11), (2, 0)]
