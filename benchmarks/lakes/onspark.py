"""The table formats of Spark, this project's among them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.lakes.lake import KEY, Lake


class OnSpark(Lake):
    """A table format of Spark's: what differs is how rows are written and where they are read."""

    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, inputs: Path, work: Path) -> None:
        super().__init__(inputs, work)
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "4g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "8")
            .config("spark.sql.warehouse.dir", str(work / "warehouse"))
            .config("spark.local.dir", str(work))
            .config("spark.log.level", "ERROR")
        )
        jars = os.environ.get("BENCH_JARS", "")
        for name, value in {**self.settings, **({"spark.jars": jars} if jars else {})}.items():
            builder = builder.config(name, value.format(work=work))
        self.spark = builder.getOrCreate()
        # The first job of a session pays for classes that are loaded once.
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


class HudiTable(OnSpark):
    """A Hudi table, by the data source that a class names."""

    source: ClassVar[str] = ""
    options: ClassVar[dict[str, str]] = {
        "hoodie.table.name": "lineitem",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "16",
        "hoodie.parquet.compression.codec": "snappy",
    }

    def write(self, rows: Any, operation: str) -> None:
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        writer = rows.write.format(self.source).options(**options)
        writer.mode("append").save(str(self.work / "table"))

    def load(self) -> None:
        self.write(self.rows("base"), "bulk_insert")

    def upsert(self, batch: str) -> None:
        self.write(self.rows(batch), "upsert")

    def delete(self) -> None:
        self.write(self.rows("gone"), "delete")

    def table(self) -> Any:
        return self.spark.read.format(self.source).load(str(self.work / "table"))


class Tidelock(HudiTable):
    """This project on Spark."""

    source = "tidelock"

    def __init__(self, inputs: Path, work: Path) -> None:
        super().__init__(inputs, work)
        import tidelock

        tidelock.enable(self.spark)


class TidelockLogs(Tidelock):
    """This project on Spark, merge-on-read."""

    options: ClassVar[dict[str, str]] = {
        **HudiTable.options,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    }


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
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    }


_MERGE = (
    "MERGE INTO {table} t USING batch s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
_DELETE = "MERGE INTO {table} t USING batch s ON t.id = s.id WHEN MATCHED THEN DELETE"


class Delta(OnSpark):
    """Delta Lake."""

    settings: ClassVar[dict[str, str]] = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }

    def name(self) -> str:
        return f"delta.`{self.work / 'table'}`"

    def load(self) -> None:
        self.rows("base").write.format("delta").save(str(self.work / "table"))

    def merge(self, batch: str, statement: str) -> None:
        self.rows(batch).createOrReplaceTempView("batch")
        self.spark.sql(statement.format(table=self.name())).collect()

    def upsert(self, batch: str) -> None:
        self.merge(batch, _MERGE)

    def delete(self) -> None:
        self.merge("gone", _DELETE)

    def table(self) -> Any:
        return self.spark.read.format("delta").load(str(self.work / "table"))


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
        return "lake.d.lineitem"

    def load(self) -> None:
        self.rows("base").writeTo(self.name()).using("iceberg").create()

    def table(self) -> Any:
        return self.spark.table(self.name())


class Parquet(OnSpark):
    """Spark alone: the least that loading and reading can cost there."""

    def load(self) -> None:
        self.rows("base").write.parquet(str(self.work / "table"))

    def table(self) -> Any:
        return self.spark.read.parquet(str(self.work / "table"))
