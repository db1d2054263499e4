"""Reads and writes Hudi tables with Apache Hudi's data source, in a separate Spark process.

It runs as a script in an interpreter with another PySpark version, so it imports nothing of this
project. Each line of standard input is a JSON object with a command in "do"; each answer is one
line of JSON. Rows are exchanged in Parquet files.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Answer commands until the input ends."""
    # Output of Spark must not be mistaken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spark = session(sys.argv[1], sys.argv[2])
    answers.write(json.dumps({"value": "ready"}) + "\n")
    for line in sys.stdin:
        try:
            answer = {"value": perform(spark, json.loads(line))}
        except Exception as error:
            answer = {"error": _causes(str(error)), "trace": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
    spark.stop()


def _causes(text: str) -> str:
    """Return the messages of a Java error, without its stack trace."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("at ", "..."))]
    return "\n".join(lines)


def session(jar: str, zone: str) -> Any:
    """Return a Spark session with Hudi's jar; `zone` is the time zone of its JVM."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jar,
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Duser.timezone={zone}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The old list structure, Hudi's default, cannot represent null elements.
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    }
    builder = SparkSession.builder.master("local[2]").appName("judge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def perform(spark: Any, command: dict[str, Any]) -> object:
    """Run one command."""
    if command["do"] == "write":
        writer = spark.read.parquet(command["rows"]).write.format("hudi")
        writer.options(**command["options"]).mode("append").save(command["table"])
        return True
    reader = spark.read.format("hudi").options(**command["options"])
    rows = reader.load(command["table"])
    rows.coalesce(1).write.mode("overwrite").parquet(command["rows"])
    return True


if __name__ == "__main__":
    main()
