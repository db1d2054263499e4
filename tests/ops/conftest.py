"""What every test of the command line gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.program import Program


@pytest.fixture
def tidelock(capsys: pytest.CaptureFixture[str]) -> Program:
    """Return the program, run in this process."""
    return Program(capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a folder to lock."""
    folder = tmp_path / "table"
    folder.mkdir()
    return folder
