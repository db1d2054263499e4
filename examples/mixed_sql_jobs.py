"""SQL jobs on one table at the same time: an UPDATE, a DELETE, a MERGE, and ingestion beside them.

    python examples/mixed_sql_jobs.py [--rounds 5]

Nobody takes turns, nobody locks. A statement that another one overtook runs again on the table as
it is then, so every `SET n = n + 1` counts, whoever else was writing. The jobs are threads here, to
have one Spark session; as programs on different machines they would do the same.
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
    LOCATION '{place}' TBLPROPERTIES (primaryKey = 'id')
"""


def update(spark: SparkSession, rounds: int) -> None:
    """Count a visit of every other account, again and again."""
    for _ in range(rounds):
        tl.sql(spark, "UPDATE accounts SET visits = visits + 1 WHERE id % 2 = 0")


def merge(spark: SparkSession, rounds: int) -> None:
    """Give a bonus to accounts on a list, and open those that are not there yet."""
    statement = """
        MERGE INTO accounts a
        USING (SELECT explode(sequence(30, 49)) AS id) s ON a.id = s.id
        WHEN MATCHED THEN UPDATE SET bonus = a.bonus + 1
        WHEN NOT MATCHED THEN INSERT (id, visits, bonus) VALUES (s.id, 0, 1)
    """
    for _ in range(rounds):
        tl.sql(spark, statement)


def delete(spark: SparkSession, rounds: int) -> None:
    """Close one account after the other, by the key and not by what is in it."""
    for closed in range(rounds):
        tl.sql(spark, "DELETE FROM accounts WHERE id = :id", {"id": 2 * closed + 1})


def ingest(place: str, rounds: int) -> None:
    """Open accounts from plain Python, as a job without Spark would."""
    with tl.Table.open(place) as table:
        for number in range(rounds):
            table.upsert([{"id": 1_000 + number, "visits": 0, "bonus": 0}])


def run(spark: SparkSession, place: Path, rounds: int) -> None:
    """Run them all at once, and check every count."""
    tl.enable(spark)
    spark.sql("DROP TABLE IF EXISTS accounts")
    spark.sql(CREATE.format(place=place / "accounts"))
    tl.sql(spark, f"INSERT INTO accounts SELECT id, 0, 0 FROM range({ACCOUNTS})")
    jobs: list[Callable[[], None]] = [
        lambda: update(spark, rounds),
        lambda: merge(spark, rounds),
        lambda: delete(spark, rounds),
        lambda: ingest(str(place / "accounts"), rounds),
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for ended in [pool.submit(job) for job in jobs]:
            ended.result()
    check(str(place / "accounts"), rounds)
    spark.sql("DROP TABLE accounts")


def check(place: str, rounds: int) -> None:
    """Compare the table with what the jobs together must have made of it."""
    with tl.Table.open(place) as table:
        found = {row["id"]: row for row in table.read().to_pylist()}
    closed = {2 * number + 1 for number in range(rounds)}
    opened = {1_000 + number for number in range(rounds)}
    assert set(found) == (set(range(ACCOUNTS)) - closed) | set(range(30, 50)) | opened
    assert all(found[n]["bonus"] == rounds for n in range(30, 50)), "every MERGE counted"
    visited = [n for n in range(ACCOUNTS) if n % 2 == 0]
    assert all(found[n]["visits"] == rounds for n in visited), "every UPDATE counted"
    print(f"{rounds} rounds of 4 jobs: {len(found)} accounts, every count is right")


def main() -> None:
    """Run it in a Spark session of its own."""
    from tidelock.engine.spark.session import local_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        spark = local_session("mixed SQL jobs", cores=2)
        try:
            run(spark, Path(folder), given.rounds)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
