"""Spark sessions: a local one, and the settings and package that jobs need."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tidelock.core.errors import InvalidInput, Unsupported

BATCH_ROWS: Final = 100_000
"""Rows per batch to Python workers; takes a tenth less CPU than Spark's default of 10,000."""

_BATCH_BYTES_MAX: Final = str(16 * 1024 * 1024)
"""Limited because a batch is in the JVM, the pipe and the worker at the same time."""

_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def local_session(
    app: str,
    *,
    cores: int | str = "*",
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session in this process's JVM, or the existing one.

    Python workers run the same interpreter. The web UI is off, and there are few shuffle
    partitions: Spark's default of 200 would add half a second to a small write.
    """
    # Workers must be able to import what the driver imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    config: dict[str, Any] = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
        _BATCH_ROWS: str(BATCH_ROWS),
        **(settings or {}),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app).config(map=config)
    return builder.getOrCreate()


def check_session(spark: SparkSession) -> SparkSession:
    """Return the session if it is supported.

    Raises: `Unsupported` for Spark Connect, whose driver is another process.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise Unsupported(
            "Spark Connect sessions are not supported: tables are written from the driver",
            hint="use a classic session (SparkSession.builder.master(...))",
        )
    return spark


def is_local_master(spark: SparkSession) -> bool:
    """Return whether the executors run in the driver's JVM."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


@contextmanager
def large_batches(spark: SparkSession) -> Iterator[None]:
    """Use large batches for Python workers while a job is planned."""
    with (
        session_setting(spark, _BATCH_ROWS, str(BATCH_ROWS)),
        session_setting(spark, _BATCH_BYTES, _BATCH_BYTES_MAX),
    ):
        yield


@contextmanager
def session_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a session configuration temporarily."""
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


ARCHIVE_NAME: Final = "tidelock.zip"
_ZIP_TIMESTAMP: Final = (1980, 1, 1, 0, 0, 0)
"""The timestamp of files in the archive, which makes it reproducible."""

_shipped: set[str] = set()


def package_folder() -> Path | None:
    """Return the folder of the package; None if it is imported from an archive."""
    folder = Path(__file__).parents[2]
    return folder if folder.is_dir() else None


def write_archive(target: Path) -> Path:
    """Write the package to a zip file that Python can import from; return it.

    Raises: `InvalidInput` if the package itself is imported from an archive.
    """
    folder = package_folder()
    if folder is None:
        raise InvalidInput(
            f"tidelock is imported from an archive: {__file__}", hint="ship that archive"
        )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix not in (".pyc", ".pyo"):
                name = f"{folder.name}/{file.relative_to(folder).as_posix()}"
                archive.writestr(
                    zipfile.ZipInfo(name, _ZIP_TIMESTAMP), file.read_bytes(), zipfile.ZIP_DEFLATED
                )
    return target


def ship_package(spark: SparkSession) -> None:
    """Ship this version of the package to the executors, once per application.

    Does nothing for local executors, or if the package came by `--py-files`.
    """
    context = spark.sparkContext
    if is_local_master(spark) or context.applicationId in _shipped or package_folder() is None:
        return
    _shipped.add(context.applicationId)
    # Executors that start later also fetch it, so keep it until the driver exits.
    folder = tempfile.mkdtemp(prefix="tidelock-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(str(write_archive(Path(folder) / ARCHIVE_NAME)))
