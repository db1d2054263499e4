"""A table of its own for each test, with Hudi's Java lock and ours on it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.table import BUCKET, Table
from tidelock.testing.java import Hudi, hudi
from tidelock.testing.servers import S3Server, ServerUnavailable


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests in one worker, so that they share one S3 server."""
    for item in items:
        if "tests/interop/" in item.nodeid:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.servers)
            item.add_marker(pytest.mark.xdist_group("interop"))


@pytest.fixture(scope="session")
def hudi_java() -> Hudi:
    """Return Hudi's Java lock; skip where Java, Maven or the artefacts cannot be had.

    In continuous integration the tools must be there. What a registry carries is not ours to say,
    so artefacts that do not resolve skip everywhere.
    """
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        reason = f"Hudi's Java lock needs {', '.join(missing)}: install a JDK of Java 17 and Maven"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        return hudi()
    except ServerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def table(hudi_java: Hudi, seaweedfs_server: S3Server) -> Iterator[Table]:
    """Return a table on S3 that no other test uses."""
    seaweedfs_server.create_bucket(BUCKET)
    with ExitStack() as stack:
        yield Table(hudi_java, seaweedfs_server, uuid.uuid4().hex, stack)
