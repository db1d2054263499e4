"""An isolated table for each test, with Hudi's Java lock and ours on it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import pytest

from testkit.java import Hudi, JavaTables, hudi, hudi_tables, java_tables
from testkit.java.configs import settings_of_hudi
from testkit.judges import HudiJava
from testkit.judges.hudi_spark import HudiSpark, hudi_spark, spark_bundle
from testkit.servers import S3Server, ServerUnavailable
from tests.interop.table import BUCKET, Table

Tool = TypeVar("Tool")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep these tests in one worker, so that they share one S3 server.

    Tests that need their own Spark are deselected unless requested by their marker.
    """
    if "apache_spark" not in config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("apache_spark")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if "tests/interop/" in item.nodeid:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.servers)
            item.add_marker(pytest.mark.xdist_group("interop"))


@pytest.fixture(scope="session")
def hudi_java() -> Hudi:
    """Return Hudi's Java lock; skip where Java, Maven or the artefacts are unavailable.

    In continuous integration the tools must be there. The contents of a registry are outside our
    control, so artefacts that do not resolve skip everywhere.
    """
    return _had(hudi)


@pytest.fixture(scope="session")
def hudi_settings() -> list[str]:
    """Return Hudi's own list of its settings, or skip."""
    return _had(settings_of_hudi)


@pytest.fixture(scope="session")
def hudi_java_tables() -> Iterator[JavaTables]:
    """Return a Java process that reads and writes tables with Hudi's own code, or skip."""
    with java_tables(_had(hudi_tables)) as tables:
        yield tables


@contextmanager
def java_in(zone: str) -> Iterator[JavaTables]:
    """Run a Java process that reads and writes tables in a time zone, or skip."""
    with java_tables(_had(hudi_tables), zone=zone) as tables:
        yield tables


@pytest.fixture(scope="session")
def hudi_java_judge(hudi_java_tables: JavaTables) -> HudiJava:
    """Return Hudi's Java reader."""
    return HudiJava(hudi_java_tables)


@contextmanager
def spark_in(version: str, zone: str) -> Iterator[HudiSpark]:
    """Run Spark with a release of Hudi and a JVM time zone, or skip."""
    bundle = _had(lambda: spark_bundle(version))
    with hudi_spark(bundle, zone=zone) as spark:
        yield spark


@pytest.fixture(scope="session")
def hudi_spark_judge() -> Iterator[HudiSpark]:
    """Return Apache Hudi on its own Spark, or skip."""
    with hudi_spark(_had(spark_bundle)) as judge:
        yield judge


@pytest.fixture
def table(hudi_java: Hudi, seaweedfs_server: S3Server) -> Iterator[Table]:
    """Return a table on S3 that no other test uses."""
    seaweedfs_server.create_bucket(BUCKET)
    with ExitStack() as stack:
        yield Table(hudi_java, seaweedfs_server, uuid.uuid4().hex, stack)


def _had(get: Callable[[], Tool]) -> Tool:
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        reason = f"Hudi's Java code needs {', '.join(missing)}: install a JDK of Java 17 and Maven"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        return get()
    except ServerUnavailable as error:
        pytest.skip(str(error))
