"""A pytest plugin with one Spark session for the whole run.

    pytest_plugins = ["tidelock.testing.spark"]

The JVM starts when the first test asks for it: two cores, two gigabytes, no web page. Where Spark
or Java cannot be had, tests that ask for it skip; in continuous integration (`CI=true`) they fail.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOCKETS = "ignore:unclosed <socket:ResourceWarning"
"""PySpark's connections to its JVM end with the objects that hold them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark leave its sockets to the garbage collector in tests that use it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(_SOCKETS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Collect them before the next test, which may not use Spark."""
    yield
    if "spark" in getattr(item, "fixturenames", ()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return the session that all tests of a run share."""
    if find_spec("pyspark") is None or not _java():
        reason = "Spark tests need pyspark (the extra [spark]) and Java 17"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from tidelock.engine.spark.session import local_session
    from tidelock.testing.servers.kafka import installed_connector

    with tempfile.TemporaryDirectory(prefix="tidelock-spark-") as scratch:
        session = local_session(
            "tidelock tests",
            cores="2,2",  # two cores, and a task that failed once is tried again
            settings={
                "spark.local.dir": scratch,
                "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse"),
                "spark.sql.shuffle.partitions": "2",
                "spark.jars": ",".join(map(str, installed_connector())),
                "spark.driver.extraJavaOptions": (
                    # Derby, the database of some tests, logs to the current folder unless told.
                    f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={scratch}"
                ),
            },
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(home and (Path(home) / "bin" / "java").exists()) or shutil.which("java") is not None
