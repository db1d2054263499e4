"""The recipes in `examples/` that need no Spark run and validate their tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_ingestion_with_separate_compactor_and_clusterer() -> None:
    command = [sys.executable, str(EXAMPLES / "separate_services.py"), "--batches", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "ingestion: 12 batches" in done.stdout
    assert "rows, each from its last batch" in done.stdout


def test_every_example_is_on_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for file in EXAMPLES.glob("*.py"):
        assert f"[{file.name}]({file.name})" in listed
