"""A Spark session for a laptop, and what every job of ours needs of the session it runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from tidelock.base.errors import Unsupported

BATCH_ROWS: Final = 100_000
"""Rows that pass to a Python worker at once: a tenth of the CPU less than with Spark's 10,000."""

_BYTES: Final = str(16 * 1024 * 1024)
"""Each batch is in the JVM, in the pipe and in the worker at once."""

_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def local_session(
    app: str,
    *,
    cores: int | str = "*",
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session in this process's own JVM, or the one that is already there.

    Its Python workers run this interpreter. It has no web page, and few shuffle partitions:
    200 of them would cost a small write half a second.
    """
    # Workers must import what the driver imports, so they are the same interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(app)
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.session.timeZone", "UTC")
        .config(_BATCH_ROWS, str(BATCH_ROWS))
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def checked(spark: SparkSession) -> SparkSession:
    """Return the session if our jobs can run in it.

    Raises: `Unsupported` for Spark Connect, whose driver is another process.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise Unsupported(
            "this is a Spark Connect session; tables are written from the driver's own process",
            hint="use a classic session (SparkSession.builder.master(...))",
        )
    return spark


def is_local_master(spark: SparkSession) -> bool:
    """Tell whether the executors are threads of the driver's own JVM."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


@contextmanager
def large_batches(spark: SparkSession) -> Iterator[None]:
    """Let rows pass to Python workers in batches of a useful size, while a job is planned."""
    with setting(spark, _BATCH_ROWS, str(BATCH_ROWS)), setting(spark, _BATCH_BYTES, _BYTES):
        yield


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a setting of the session for a while."""
    before = spark.conf.get(name, None)
    if before == value:
        yield
        return
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
