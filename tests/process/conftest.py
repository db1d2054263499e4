"""Tables with a plan, created once and copied for each scenario."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.servicescenes.stage import Stage, template_table


@pytest.fixture(scope="session", params=["compaction", "clustering", "logcompaction"])
def staying_template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a table with an immutable plan of this service."""
    return template_table(tmp_path_factory.mktemp("templates"), request.param, stays=True)


@pytest.fixture
def clustering_that_stays(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[Stage]:
    """Prepare a clustering that is configured as immutable."""
    template = template_table(tmp_path_factory.mktemp("templates"), "clustering", stays=True)
    with Stage.on_copy(template, tmp_path, "clustering") as stage:
        yield stage


@pytest.fixture(scope="session")
def clustering_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy-on-write table with a pending clustering."""
    return template_table(tmp_path_factory.mktemp("templates"), "clustering")


@pytest.fixture
def staying(staying_template: Path, tmp_path: Path) -> Iterator[Stage]:
    """Prepare an immutable plan."""
    with Stage.on_copy(staying_template, tmp_path, staying_template.name) as stage:
        yield stage


@pytest.fixture(scope="session")
def compaction_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a merge-on-read table with a pending compaction."""
    return template_table(tmp_path_factory.mktemp("templates"), "compaction")


@pytest.fixture
def compacting(compaction_template: Path, tmp_path: Path) -> Iterator[Stage]:
    """Prepare a compaction."""
    with Stage.on_copy(compaction_template, tmp_path, "compaction") as stage:
        yield stage


@pytest.fixture
def clustering(clustering_template: Path, tmp_path: Path) -> Iterator[Stage]:
    """Prepare a removable plan."""
    with Stage.on_copy(clustering_template, tmp_path, "clustering") as stage:
        yield stage


@pytest.fixture(scope="session")
def log_compaction_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a merge-on-read table with a pending log compaction."""
    return template_table(tmp_path_factory.mktemp("templates"), "logcompaction")


@pytest.fixture
def log_compacting(log_compaction_template: Path, tmp_path: Path) -> Iterator[Stage]:
    """Prepare a removable log compaction."""
    with Stage.on_copy(log_compaction_template, tmp_path, "logcompaction") as stage:
        yield stage
