"""Measure the Spark engine: `python -m benchmarks.table.spark [--rows N] [--rounds N]`.

Every round runs every action once, one after the other, so that other load affects all of them. It
prints as JSON the best and the median wall time, and the CPU seconds of the driver, its JVM and its
workers, which are the only comparable figures on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

import tidelock as tl
from benchmarks.lakes.meter import cpu_s
from benchmarks.table.data import write_inputs
from benchmarks.table.figures import TableFigure
from tidelock.execution.spark.session import local_session

GROUPS = 16
OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.parquet.compression.codec": "snappy",
    "hoodie.bulkinsert.shuffle.parallelism": str(GROUPS),
}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(GROUPS)}


class Comparison:
    """Actions on the same inputs, and their times."""

    def __init__(self, spark: SparkSession, inputs: Path, work: Path) -> None:
        """Use the inputs of `write_inputs`; write below `work`."""
        self.spark, self.inputs, self.work = spark, inputs, work
        self.base = spark.read.parquet(str(inputs / "base"))
        self.walls: dict[str, list[float]] = {}
        self.cpus: dict[str, list[float]] = {}

    def run(self, name: str, action: Callable[[], object]) -> None:
        """Run and time an action."""
        cpu, began = cpu_s(), time.perf_counter()
        action()
        self.walls.setdefault(name, []).append(time.perf_counter() - began)
        self.cpus.setdefault(name, []).append(cpu_s() - cpu)
        print(f"{name}: {self.walls[name][-1]:.2f} s", file=sys.stderr, flush=True)

    def figures(self) -> list[TableFigure]:
        """Return the figures of each action."""
        return [
            TableFigure(
                name, min(walls), statistics.median(walls), statistics.median(self.cpus[name])
            )
            for name, walls in self.walls.items()
        ]

    def write(self, location: str, batch: str, operation: str, **options: str) -> None:
        """Write a batch to one of our tables."""
        rows = self.base if batch == "base" else self.spark.read.parquet(str(self.inputs / batch))
        named = {**OPTIONS, "hoodie.datasource.write.operation": operation, **options}
        rows.write.format("tidelock").options(**named).mode("append").save(
            str(self.work / location)
        )

    def fresh(self, location: str) -> None:
        """Delete a table of an earlier round."""
        shutil.rmtree(self.work / location, ignore_errors=True)

    def join_rewrite(self, batch: str) -> None:
        """Rewrite the table with plain Spark: a full outer join that compares event times."""
        old = self.spark.read.parquet(str(self.work / "flat")).alias("old")
        new = self.spark.read.parquet(str(self.inputs / batch)).alias("new")
        wins = F.col("new.uuid").isNotNull() & (
            F.col("old.uuid").isNull() | (F.col("new.ts") >= F.col("old.ts"))
        )
        columns = [
            F.when(wins, F.col(f"new.{name}")).otherwise(F.col(f"old.{name}")).alias(name)
            for name in self.base.columns
        ]
        merge_with_newest = old.join(new, F.col("old.uuid") == F.col("new.uuid"), "full_outer")
        merge_with_newest.select(*columns).write.mode("overwrite").parquet(
            str(self.work / "joined")
        )

    def polars_rewrite(self, batch: str) -> None:
        """Rewrite the table with polars in one process, without a table format: the lower bound."""
        out = self.work / "limit"
        out.mkdir(exist_ok=True)
        new = pl.read_parquet(self.inputs / batch)
        files = sorted((self.work / "flat").glob("*.parquet"))
        fresh = new.with_columns((pl.col("uuid").hash() % len(files)).alias("at"))
        for number, file in enumerate(files):
            saved = pl.read_parquet(file).join(new.select("uuid"), on="uuid", how="anti")
            mine = fresh.filter(pl.col("at") == number).drop("at")
            pl.concat([saved, mine]).write_parquet(out / file.name, compression="snappy")


def compare(spark: SparkSession, inputs: Path, work: Path, rounds: int) -> list[TableFigure]:
    """Measure everything; return the figures of each action."""
    every = Comparison(spark, inputs, work)
    every.base.repartition(GROUPS, "uuid").write.parquet(str(work / "flat"))
    every.write("bucket", "base", "bulk_insert", **BUCKETS)
    every.write("simple", "base", "bulk_insert")
    merged = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    every.write("logs", "base", "bulk_insert", **BUCKETS, **merged)
    location = str(work / "simple")
    for _ in range(rounds):
        for size in ("up10", "up1"):
            batch, shown = f"{size}.parquet", size.removeprefix("up")
            every.run(
                f"COW upsert {shown} %, BUCKET",
                lambda b=batch: every.write("bucket", b, "upsert", **BUCKETS),  # type: ignore[misc]
            )
            every.run(
                f"COW upsert {shown} %, SIMPLE",
                lambda b=batch: every.write("simple", b, "upsert"),  # type: ignore[misc]
            )
            every.run(
                f"MOR upsert {shown} %, BUCKET",
                lambda b=batch: every.write("logs", b, "upsert", **BUCKETS, **merged),  # type: ignore[misc]
            )
            every.run(
                f"limit: polars {shown} %",
                lambda b=batch: every.polars_rewrite(b),  # type: ignore[misc]
            )
        every.run("Spark outer join 10 %", lambda: every.join_rewrite("up10.parquet"))
        every.fresh("bulk")
        every.run("bulk insert", lambda: every.write("bulk", "base", "bulk_insert"))
        every.fresh("plain")
        every.run("Spark Parquet write", lambda: every.base.write.parquet(str(work / "plain")))
        every.run(
            "read one column",
            lambda: spark.read.format("tidelock").load(location).agg(F.sum("fare")).collect(),
        )
        now = [
            f"{location}/{piece.base.key}"
            for piece in tl.Table.open(location).files()
            if piece.base
        ]
        every.run(
            "native Parquet, one column",
            lambda n=now: spark.read.parquet(*n).agg(F.sum("fare")).collect(),  # type: ignore[misc]
        )
        every.run(
            "read all columns",
            lambda: (
                spark.read.format("tidelock")
                .load(location)
                .write.format("noop")
                .mode("overwrite")
                .save()
            ),
        )
    return every.figures()


def main() -> None:
    """Measure with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder of the inputs, created if missing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelock-bench-") as folder:
        inputs = options.keep or Path(folder) / "inputs"
        if not (inputs / "base").exists():
            write_inputs(inputs, options.rows)
        work = Path(folder) / "work"
        work.mkdir()
        settings = {"spark.local.dir": str(Path(folder) / "spark")}
        spark = tl.enable(local_session("benchmark", cores=2, memory="4g", settings=settings))
        spark.sparkContext.setLogLevel("ERROR")
        try:
            found = compare(spark, inputs, work, options.rounds)
        finally:
            spark.stop()
    print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
