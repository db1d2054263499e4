"""A place per test, in every implementation or in those a test is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.stores import (
    ALL,
    CLOUDS,
    DEVIATIONS,
    EMBEDDED,
    GUARDED,
    RARE_DEVIATIONS,
    Place,
)
from tests.integration.lock_service import ServiceProcess
from tidelock.store.contract import ObjectStore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect each known deviation of a test server, and say which tests talk to one."""
    for item in items:
        if any(f"[{cloud}" in item.name for cloud in CLOUDS):
            item.add_marker(pytest.mark.servers)
        if item.name in DEVIATIONS:
            item.add_marker(pytest.mark.xfail(reason=DEVIATIONS[item.name], strict=True))
        if item.name in RARE_DEVIATIONS:
            item.add_marker(pytest.mark.xfail(reason=RARE_DEVIATIONS[item.name], strict=False))


@pytest.fixture(params=sorted(ALL))
def place(request: pytest.FixtureRequest) -> Place:
    """Return a place of each implementation."""
    return ALL[request.param](request)


@pytest.fixture(params=sorted(EMBEDDED))
def embedded_place(request: pytest.FixtureRequest) -> Place:
    """Return a place of each implementation without a server."""
    return EMBEDDED[request.param](request)


@pytest.fixture(params=sorted(CLOUDS))
def cloud_place(request: pytest.FixtureRequest) -> Place:
    """Return a place of each implementation behind a server."""
    return CLOUDS[request.param](request)


@pytest.fixture(params=sorted(GUARDED))
def guarded_place(request: pytest.FixtureRequest) -> Place:
    """Return a place of each implementation whose server checks credentials."""
    return GUARDED[request.param](request)


@pytest.fixture
def store(place: Place) -> Iterator[ObjectStore]:
    """Return a store at a place of its own."""
    opened = place.open()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def lock_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a running lock service."""
    folder = tmp_path_factory.mktemp("lockservice")
    args = ["--allow-force"]
    with ServiceProcess(str(folder / "store"), args, log=folder / "log") as running:
        yield running
