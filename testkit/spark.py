"""A pytest plugin with one Spark session for the whole run.

    pytest_plugins = ["testkit.spark"]

The JVM starts with the first test that uses it: two cores, two gigabytes, no web UI. Without Spark
or Java, tests that use it are skipped; in continuous integration (`CI=true`) they fail.
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
"""PySpark closes its JVM connections when their objects are garbage collected."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about unclosed PySpark sockets in tests that use Spark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(_SOCKETS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Collect the sockets before the next test, which may not use Spark."""
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
    from testkit.servers.kafka import installed_connector
    from tidelock.execution.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-spark-") as scratch:
        session = local_session(
            "tidelock tests",
            cores="2,2",  # two cores; a failed task is retried once
            settings={
                "spark.local.dir": scratch,
                "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse"),
                "spark.sql.shuffle.partitions": "2",
                "spark.jars": ",".join(map(str, installed_connector())),
                "spark.driver.extraJavaOptions": (
                    # Derby, used by some tests, would otherwise log to the working directory.
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
