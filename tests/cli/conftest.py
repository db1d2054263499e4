"""Fixtures for command-line tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def tidelock(capsys: pytest.CaptureFixture[str]) -> Program:
    """Return the CLI, run in this process."""
    return Program(capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a folder to lock."""
    folder = tmp_path / "table"
    folder.mkdir()
    return folder
