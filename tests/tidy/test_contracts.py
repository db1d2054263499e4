"""The import contracts of pyproject.toml, each checked with a planted import it must refuse."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.project import ROOT

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def _lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-logo", "--no-cache"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    # Only a regular package hides the installed one of the same name completely.
    tmp_path.joinpath("src/tidelock/__init__.py").touch()
    return tmp_path


def test_unmodified_copy_passes(checkout: Path) -> None:
    done = _lint(checkout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("core/outcome.py", "import tidelock.storage.contract", "what lies below it"),
        ("storage/contract.py", "import tidelock.lock.record", "what lies below it"),
        ("storage/contract.py", "import testkit.proxy", "The product imports no test kit"),
        ("attic/loft.py", '"""A folder in no layer."""', "what lies below it"),
        ("lock/machine.py", "import threading", "Pure modules"),
        ("lock/lease.py", "import time", "Pure modules"),
        ("lock/record.py", "import tidelock.core.threads", "Pure modules"),
        # Indirectly, through another module: pure code may import the store contract, but no I/O.
        ("storage/contract.py", "import socket", "Pure modules"),
    ],
)
def test_planted_import_is_refused(checkout: Path, path: str, line: str, contract: str) -> None:
    planted = checkout / "src/tidelock" / path
    planted.parent.mkdir(exist_ok=True)
    planted.parent.joinpath("__init__.py").touch()
    with planted.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = _lint(checkout)
    broken = [each for each in done.stdout.splitlines() if " BROKEN" in each]
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(contract in each for each in broken), done.stdout
