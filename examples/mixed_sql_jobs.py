"""Concurrent SQL jobs on one table: UPDATE, DELETE and MERGE, with ingestion from plain Python.

    python examples/mixed_sql_jobs.py [--rounds 5]

The jobs need no coordination. A statement that conflicts with another commit runs again on the
latest snapshot, so every `SET n = n + 1` counts. The jobs are threads here, to share one Spark
session; processes on different machines behave the same.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

import tidelock as tl

ACCOUNTS = 40
CREATE = """
    CREATE TABLE accounts (id BIGINT, visits BIGINT, bonus BIGINT) USING tidelock
    LOCATION '{location}' TBLPROPERTIES (primaryKey = 'id')
"""


def update(spark: SparkSession, rounds: int) -> None:
    """Increment the visits of every other account in each round."""
    for _ in range(rounds):
        tl.sql(spark, "UPDATE accounts SET visits = visits + 1 WHERE id % 2 = 0")


def merge(spark: SparkSession, rounds: int) -> None:
    """Increment the bonus of listed accounts, and insert the missing ones."""
    statement = """
        MERGE INTO accounts a
        USING (SELECT explode(sequence(30, 49)) AS id) s ON a.id = s.id
        WHEN MATCHED THEN UPDATE SET bonus = a.bonus + 1
        WHEN NOT MATCHED THEN INSERT (id, visits, bonus) VALUES (s.id, 0, 1)
    """
    for _ in range(rounds):
        tl.sql(spark, statement)


def delete(spark: SparkSession, rounds: int) -> None:
    """Delete one account per round, by key."""
    for closed in range(rounds):
        tl.sql(spark, "DELETE FROM accounts WHERE id = :id", {"id": 2 * closed + 1})


def ingest(uri: str, rounds: int) -> None:
    """Insert accounts from plain Python, without Spark."""
    with tl.Table.open(uri) as table:
        for number in range(rounds):
            table.upsert([{"id": 1_000 + number, "visits": 0, "bonus": 0}])


def run(spark: SparkSession, folder: Path, rounds: int) -> None:
    """Run all jobs concurrently, and check every count."""
    tl.enable(spark)
    spark.sql("DROP TABLE IF EXISTS accounts")
    spark.sql(CREATE.format(location=folder / "accounts"))
    tl.sql(spark, f"INSERT INTO accounts SELECT id, 0, 0 FROM range({ACCOUNTS})")
    jobs: list[Callable[[], None]] = [
        lambda: update(spark, rounds),
        lambda: merge(spark, rounds),
        lambda: delete(spark, rounds),
        lambda: ingest(str(folder / "accounts"), rounds),
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()
    check(str(folder / "accounts"), rounds)
    spark.sql("DROP TABLE accounts")


def check(uri: str, rounds: int) -> None:
    """Compare the table with the expected result of all jobs."""
    with tl.Table.open(uri) as table:
        found = {row["id"]: row for row in table.read().to_pylist()}
    closed = {2 * number + 1 for number in range(rounds)}
    opened = {1_000 + number for number in range(rounds)}
    assert set(found) == (set(range(ACCOUNTS)) - closed) | set(range(30, 50)) | opened
    assert all(found[n]["bonus"] == rounds for n in range(30, 50)), "every MERGE counted"
    visited = [n for n in range(ACCOUNTS) if n % 2 == 0]
    assert all(found[n]["visits"] == rounds for n in visited), "every UPDATE counted"
    print(f"{rounds} rounds of 4 jobs: {len(found)} accounts, every count is correct")


def main() -> None:
    """Run the example in a new Spark session."""
    from tidelock.execution.spark.session import local_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        spark = local_session("mixed SQL jobs", cores=2)
        try:
            run(spark, Path(folder), args.rounds)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
