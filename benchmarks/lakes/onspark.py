"""The table formats on Spark, including this project."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.lakes.lake import HOT, KEY, Lake


class OnSpark(Lake):
    """A table format on Spark; subclasses differ in how rows are written and read."""

    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, inputs: Path, work: Path, by: str | None = None) -> None:
        super().__init__(inputs, work, by)
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "4g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "8")
            .config("spark.sql.warehouse.dir", str(work / "warehouse"))
            .config("spark.local.dir", str(work / "spark"))
            .config("spark.log.level", "ERROR")
        )
        jars = os.environ.get("BENCH_JARS", "")
        for name, value in {**self.settings, **({"spark.jars": jars} if jars else {})}.items():
            builder = builder.config(name, value.format(work=work))
        self.spark = builder.getOrCreate()
        # The first job of a session loads classes.
        self.spark.range(1_000_000).selectExpr("sum(id)").collect()

    def rows(self, name: str) -> Any:
        return self.spark.read.parquet(self.path(name))

    def table(self) -> Any:
        raise NotImplementedError

    def read_all(self) -> None:
        self.table().write.format("noop").mode("overwrite").save()

    def read_column(self) -> float:
        return float(self.table().selectExpr("sum(l_quantity)").collect()[0][0])

    def point(self, key: int) -> int:
        return int(self.table().where(f"{KEY} = {key}").count())

    def between(self, low: int, high: int) -> int:
        rows = self.table().where(f"{KEY} >= {low} AND {KEY} < {high}")
        return _counted(rows)

    def only_read(self, batch: str) -> None:
        """Run a minimal job on a batch: read it and discard it."""
        self.rows(batch).write.format("noop").mode("overwrite").save()


def _counted(rows: Any) -> int:
    """Return the number of rows; read all their columns."""
    every = [f"hash({', '.join(f'`{name}`' for name in rows.columns)})"]
    return int(rows.selectExpr(*every).selectExpr("count(*)", "sum(1)").collect()[0][0])


_COMPACTED = {"hoodie.compact.inline.max.delta.commits": "1"}
"""Settings with which every slice with log files is compacted."""
_LOGS = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    # By default Hudi compacts in every fifth upsert; the measured table must have log files.
    "hoodie.compact.inline.max.delta.commits": "1000",
}


class HudiTable(OnSpark):
    """A Hudi table, with the data source of the subclass."""

    source: ClassVar[str] = ""
    since = ""
    options: ClassVar[dict[str, str]] = {
        "hoodie.table.name": "lineitem",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "16",
        "hoodie.parquet.compression.codec": "snappy",
    }

    def write(self, rows: Any, operation: str, **more: str) -> None:
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        if self.by is not None:
            options |= {
                "hoodie.datasource.write.partitionpath.field": self.by,
                "hoodie.bucket.index.num.buckets": "2",
                "hoodie.datasource.write.keygenerator.class": (
                    "org.apache.hudi.keygen.SimpleKeyGenerator"
                ),
            }
        writer = rows.write.format(self.source).options(**options | more)
        writer.mode("append").save(str(self.work / "table"))

    def load(self) -> None:
        self.write(self.rows("base"), "bulk_insert")

    def upsert(self, batch: str) -> None:
        self.write(self.rows(batch), "upsert")

    def delete(self) -> None:
        self.write(self.rows("gone"), "delete")

    def table(self) -> Any:
        return self.spark.read.format(self.source).load(str(self.work / "table"))

    def start_changes(self) -> None:
        # The file name of a completed instant has its request time and its completion time.
        timeline = self.work / "table" / ".hoodie" / "timeline"
        ended = [path.name.partition(".")[0].partition("_")[2] for path in timeline.iterdir()]
        self.since = max(ended)

    def changes(self) -> int:
        reader = self.spark.read.format(self.source)
        reader = reader.option("hoodie.datasource.query.type", "incremental")
        reader = reader.option("hoodie.datasource.read.begin.instanttime", self.since)
        return _counted(reader.load(str(self.work / "table")))


class Tidelock(HudiTable):
    """This project on Spark."""

    source = "tidelock"

    def __init__(self, inputs: Path, work: Path, by: str | None = None) -> None:
        super().__init__(inputs, work, by)
        import tidelock

        tidelock.enable(self.spark)


class TidelockLogs(Tidelock):
    """This project on Spark, merge-on-read."""

    options: ClassVar[dict[str, str]] = {
        **HudiTable.options,
        **_LOGS,
    }

    def compact(self) -> None:
        import tidelock

        with tidelock.Table.open(str(self.work / "table"), options=_COMPACTED) as lake:
            lake.on_spark(self.spark).compact()

    def only_base(self) -> None:
        """Read the base files with plain Spark; after `compact` they have all rows."""
        import tidelock

        location = str(self.work / "table")
        with tidelock.Table.open(location) as lake:
            files = [f"{location}/{piece.base.key}" for piece in lake.files() if piece.base]
        self.spark.read.parquet(*files).write.format("noop").mode("overwrite").save()


class Hudi(HudiTable):
    """Apache Hudi."""

    source = "hudi"
    settings: ClassVar[dict[str, str]] = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    }
    options: ClassVar[dict[str, str]] = {
        **HudiTable.options,
        "hoodie.datasource.write.precombine.field": "l_quantity",
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
        "hoodie.metadata.enable": "false",
    }


class HudiLogs(Hudi):
    """Apache Hudi, merge-on-read."""

    options: ClassVar[dict[str, str]] = {
        **Hudi.options,
        **_LOGS,
    }

    def compact(self) -> None:
        # Hudi compacts inline with a write, so write a batch that changes nothing.
        inline = {**_COMPACTED, "hoodie.compact.inline": "true"}
        self.write(self.rows("gone").limit(1), "delete", **inline)


_MERGE = (
    "MERGE INTO {table} t USING batch s ON t.id = s.id{hot}"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
_DELETE = "MERGE INTO {table} t USING batch s ON t.id = s.id{hot} WHEN MATCHED THEN DELETE"


class Delta(OnSpark):
    """Delta Lake."""

    settings: ClassVar[dict[str, str]] = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The default of fifty tasks for the log is mostly overhead on two cores.
        "spark.databricks.delta.snapshotPartitions": "2",
    }

    def name(self) -> str:
        return f"delta.`{self.work / 'table'}`"

    def load(self) -> None:
        writer = self.rows("base").write.format("delta")
        if self.by is not None:
            writer = writer.partitionBy(self.by)
        writer.save(str(self.work / "table"))

    def merge(self, batch: str, statement: str) -> None:
        self.rows(batch).createOrReplaceTempView("batch")
        # The predicate on the partition lets them skip the other partitions.
        hot = "" if self.by is None else f" AND t.{self.by} = '{HOT}'"
        self.spark.sql(statement.format(table=self.name(), hot=hot)).collect()

    def upsert(self, batch: str) -> None:
        self.merge(batch, _MERGE)

    def delete(self) -> None:
        self.merge("gone", _DELETE)

    def table(self) -> Any:
        return self.spark.read.format("delta").load(str(self.work / "table"))

    def start_changes(self) -> None:
        on = "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        self.spark.sql(f"ALTER TABLE {self.name()} {on}")
        history = self.spark.sql(f"DESCRIBE HISTORY {self.name()} LIMIT 1")
        self.since = int(history.select("version").collect()[0][0])

    def changes(self) -> int:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", self.since + 1)
        rows = reader.load(str(self.work / "table"))
        return _counted(rows.where("_change_type <> 'update_preimage'"))


class Iceberg(Delta):
    """Apache Iceberg."""

    settings: ClassVar[dict[str, str]] = {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "{work}/iceberg",
    }

    def name(self) -> str:
        return f"lake.d.{self.work.name}"

    def load(self) -> None:
        from pyspark.sql import functions

        writer = self.rows("base").writeTo(self.name()).using("iceberg")
        writer = writer.tableProperty("write.parquet.compression-codec", "snappy")
        if self.by is not None:
            writer = writer.partitionedBy(functions.col(self.by))
        writer.create()

    def table(self) -> Any:
        return self.spark.table(self.name())

    def start_changes(self) -> None:
        newest = self.spark.sql(
            f"SELECT max_by(snapshot_id, committed_at) FROM {self.name()}.snapshots"
        )
        self.since = int(newest.collect()[0][0])

    def changes(self) -> int:
        self.spark.sql(
            f"CALL lake.system.create_changelog_view(table => 'd.{self.work.name}',"
            f" changelog_view => 'changed', options => map('start-snapshot-id', '{self.since}'),"
            " compute_updates => true, identifier_columns => array('id'))"
        )
        rows = self.spark.table("changed").where("_change_type <> 'UPDATE_BEFORE'")
        return _counted(rows)


class Parquet(OnSpark):
    """Plain Spark: a lower bound for loading and reading."""

    def load(self) -> None:
        self.rows("base").write.parquet(str(self.work / "table"))

    def table(self) -> Any:
        return self.spark.read.parquet(str(self.work / "table"))
