"""A pytest plugin with one fixture for each real server.

    pytest_plugins = ["testkit.plugin"]

A server starts with the first test that uses it and stops at the end of the session; under
pytest-xdist each worker has its own. If a server is not available, its tests are skipped with the
reason. In continuous integration (`CI=true`) they fail instead, so that a missing server is not
mistaken for a passing test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import NoReturn, TypeVar

import pytest

from testkit.browser import Page, browser
from testkit.servers import (
    AzureServer,
    GcsServer,
    KubernetesServer,
    RunningServer,
    S3Server,
    ServerUnavailable,
    azurite,
    dynamodb,
    etcd,
    fake_gcs,
    hive,
    kafka,
    kubernetes,
    minio,
    redis,
    seaweedfs,
    zookeeper,
)

_Running = TypeVar("_Running")


@pytest.fixture(scope="session")
def seaweedfs_server() -> Iterator[S3Server]:
    """Return a running SeaweedFS."""
    yield from _served(seaweedfs)


@pytest.fixture(scope="session")
def minio_server() -> Iterator[S3Server]:
    """Return a running MinIO, built from source if necessary."""
    yield from _served(minio, optional=True)


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[AzureServer]:
    """Return a running Azurite."""
    yield from _served(azurite)


@pytest.fixture(scope="session")
def fake_gcs_server() -> Iterator[GcsServer]:
    """Return a running fake-gcs-server."""
    yield from _served(fake_gcs)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RunningServer]:
    """Return a running Redis."""
    yield from _served(redis)


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[RunningServer]:
    """Return a running etcd."""
    yield from _served(etcd)


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[RunningServer]:
    """Return a running ZooKeeper."""
    yield from _served(zookeeper)


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[RunningServer]:
    """Return a running DynamoDB Local."""
    yield from _served(dynamodb)


@pytest.fixture(scope="session")
def hive_server() -> Iterator[RunningServer]:
    """Return a running Hive metastore."""
    yield from _served(hive)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[RunningServer]:
    """Return a running Kafka broker."""
    yield from _served(kafka)


@pytest.fixture(scope="session")
def kubernetes_server() -> Iterator[KubernetesServer]:
    """Return a running Kubernetes API server, built from source if necessary."""
    yield from _served(kubernetes, optional=True)


@pytest.fixture(scope="session")
def browser_page() -> Iterator[Page]:
    """Return the page of a running Chromium."""
    yield from _served(browser)


def _served(
    serve: Callable[[], AbstractContextManager[_Running]], *, optional: bool = False
) -> Iterator[_Running]:
    """Yield a running server; if there is none, skip the test, or fail in continuous integration.

    An `optional` server takes minutes to build and needs a toolchain, so its tests never fail.
    """
    with ExitStack() as stack:
        try:
            running = stack.enter_context(serve())
        except ServerUnavailable as error:
            _skip_or_fail(error, optional=optional)
        yield running


def _skip_or_fail(error: ServerUnavailable, *, optional: bool) -> NoReturn:
    if os.environ.get("CI", "").lower() == "true" and not optional:
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))
