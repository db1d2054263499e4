"""An isolated store location per test, for all implementations or for some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.lockserver import ServiceProcess
from tests.contract.stores import (
    ALL,
    CLOUDS,
    DEVIATIONS,
    EMBEDDED,
    GUARDED,
    RARE_DEVIATIONS,
    StoreLocation,
)
from tidelock.storage.contract import ObjectStore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark known deviations of test servers as expected failures, and mark tests that need a
    server."""
    for item in items:
        if any(f"[{cloud}" in item.name for cloud in CLOUDS):
            item.add_marker(pytest.mark.servers)
        if item.name in DEVIATIONS:
            item.add_marker(pytest.mark.xfail(reason=DEVIATIONS[item.name], strict=True))
        if item.name in RARE_DEVIATIONS:
            item.add_marker(pytest.mark.xfail(reason=RARE_DEVIATIONS[item.name], strict=False))


@pytest.fixture(params=sorted(ALL))
def location(request: pytest.FixtureRequest) -> StoreLocation:
    """Return a location of each implementation."""
    return ALL[request.param](request)


@pytest.fixture(params=sorted(EMBEDDED))
def embedded_location(request: pytest.FixtureRequest) -> StoreLocation:
    """Return a location of each implementation without a server."""
    return EMBEDDED[request.param](request)


@pytest.fixture(params=sorted(CLOUDS))
def cloud_location(request: pytest.FixtureRequest) -> StoreLocation:
    """Return a location of each implementation with a server."""
    return CLOUDS[request.param](request)


@pytest.fixture(params=sorted(GUARDED))
def guarded_location(request: pytest.FixtureRequest) -> StoreLocation:
    """Return a location of each implementation whose server checks credentials."""
    return GUARDED[request.param](request)


@pytest.fixture
def store(location: StoreLocation) -> Iterator[ObjectStore]:
    """Return a store at its own location."""
    opened = location.open()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def lock_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a running lock service."""
    folder = tmp_path_factory.mktemp("lockservice")
    args = ["--allow-force"]
    with ServiceProcess(str(folder / "store"), args, log=folder / "log") as running:
        yield running
