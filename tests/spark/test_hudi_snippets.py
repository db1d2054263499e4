"""The Spark snippets of Hudi's page on concurrency control run unchanged, except for the format."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidelock as tl
from testkit.servers import RunningServer
from testkit.servers.kafka import installed_connector
from testkit.servers.schema_registry import SchemaRegistry
from tests.spark.test_streamer_kafka import broker, produce, registry, wire

__all__ = ["broker", "registry"]

DATA_SOURCE = """
inputDF.write.format("hudi")
       .options(getQuickstartWriteConfigs)
       .option("hoodie.datasource.write.precombine.field", "ts")
       .option("hoodie.cleaner.policy.failed.writes", "LAZY")
       .option("hoodie.write.concurrency.mode", "optimistic_concurrency_control")
       .option("hoodie.write.lock.zookeeper.url", "zookeeper")
       .option("hoodie.write.lock.zookeeper.port", "2181")
       .option("hoodie.write.lock.zookeeper.base_path", "/test")
       .option("hoodie.datasource.write.recordkey.field", "uuid")
       .option("hoodie.datasource.write.partitionpath.field", "partitionpath")
       .option("hoodie.table.name", tableName)
       .mode(Overwrite)
       .save(basePath)
"""
QUICKSTART = {
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}
"""The result of `getQuickstartWriteConfigs`."""

STREAMER = r"""
spark-submit \
  --jars "packaging/hudi-utilities-slim-bundle/target/hudi-utilities-slim-bundle_2.12-1.0.1.jar,packaging/hudi-spark-bundle/target/hudi-spark3.5-bundle_2.12-1.0.1.jar" \
  --class org.apache.hudi.utilities.streamer.HoodieStreamer `ls packaging/hudi-utilities-slim-bundle/target/hudi-utilities-slim-bundle-*.jar` \
  --props file://${PWD}/hudi-utilities/src/test/resources/streamer-config/kafka-source.properties \
  --schemaprovider-class org.apache.hudi.utilities.schema.SchemaRegistryProvider \
  --source-class org.apache.hudi.utilities.sources.AvroKafkaSource \
  --source-ordering-field impresssiontime \
  --target-base-path file:///tmp/hudi-streamer-op \
  --target-table tableName \
  --op BULK_INSERT
"""  # noqa: E501 - as it is printed

IMPRESSION = {
    "type": "record",
    "name": "impression",
    "fields": [
        {"name": "impressionid", "type": "long"},
        {"name": "userid", "type": "string"},
        {"name": "impresssiontime", "type": "long"},
    ],
}


def test_writer_of_the_data_source_runs(
    spark: SparkSession, tmp_path: Path, zookeeper_server: RunningServer
) -> None:
    tl.enable(spark)
    host, _, port = zookeeper_server.endpoint.rpartition(":")
    code = DATA_SOURCE.replace('"hudi"', '"tidelock"')
    code = code.replace('"zookeeper")', f'"{host}")').replace('"2181"', f'"{port}"')
    rows = [("a", "x", 1), ("b", "y", 2)]
    names: dict[str, Any] = {
        "inputDF": spark.createDataFrame(rows, "uuid string, partitionpath string, ts bigint"),
        "tableName": "trips",
        "basePath": f"file://{tmp_path}/trips",
        "Overwrite": "overwrite",
    }
    code = code.replace(".options(getQuickstartWriteConfigs)", ".options(**quickstart)")
    exec(compile(f"({code})", "snippet", "exec"), {**names, "quickstart": QUICKSTART})
    with tl.Table.open(str(tmp_path / "trips")) as table:
        found = {row["uuid"]: row["partitionpath"] for row in table.read().to_pylist()}
    assert found == {"a": "x", "b": "y"}


def test_command_of_the_streamer_runs(
    spark: SparkSession, broker: RunningServer, registry: SchemaRegistry, tmp_path: Path
) -> None:
    number = registry.register("impressions-value", IMPRESSION)
    records = [{"impressionid": i, "userid": f"u{i}", "impresssiontime": i} for i in range(3)]
    produce(spark, broker, "impressions", [wire(number, IMPRESSION, each) for each in records])
    folder = tmp_path / "hudi-utilities/src/test/resources/streamer-config"
    folder.mkdir(parents=True)
    (folder / "base.properties").write_text("hoodie.upsert.shuffle.parallelism=2\n")
    (folder / "kafka-source.properties").write_text(
        "include=base.properties\n"
        "hoodie.write.concurrency.mode=optimistic_concurrency_control\n"
        "hoodie.cleaner.policy.failed.writes=LAZY\n"
        "hoodie.datasource.write.recordkey.field=impressionid\n"
        "hoodie.datasource.write.partitionpath.field=userid\n"
        f"hoodie.streamer.schemaprovider.registry.url={registry.url('impressions-value')}\n"
        "hoodie.streamer.source.kafka.topic=impressions\n"
        f"bootstrap.servers={broker.endpoint}\n"
        "auto.offset.reset=earliest\n"
    )
    # Replaces spark-submit with a program that does not need Hudi's jars and class.
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    jars = ",".join(map(str, installed_connector()))
    submit.write_text(
        f'#!/bin/sh\nshift 4\nexec "{sys.executable}" -m tidelock.cli.submit streamer "$@"'
        f" --spark-conf spark.jars={jars}\n"
    )
    submit.chmod(submit.stat().st_mode | stat.S_IXUSR)
    command = STREAMER.replace("/tmp/hudi-streamer-op", f"{tmp_path}/op")
    path = f"{submit.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PWD": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    with tl.Table.open(str(tmp_path / "op")) as table:
        assert sorted(table.read(["impressionid"]).column(0).to_pylist()) == [0, 1, 2]
        assert table.properties.ordering_fields == ("impresssiontime",)
        assert table.properties.name == "tableName"
