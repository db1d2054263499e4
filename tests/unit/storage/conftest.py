"""Fixtures: stores with a scripted transport, and an environment without credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.unit.storage.scripted_wire import Wire, scripted_wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Return the script of this test."""
    with scripted_wire() as scripted:
        yield scripted


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_")):
            monkeypatch.delenv(name)
    # No credentials, and no requests to a metadata service.
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
