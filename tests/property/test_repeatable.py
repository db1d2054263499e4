"""The same examples are drawn in every run, whichever modules are loaded."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CONSTANTS = [98_765_432_100 + number for number in range(200)]


def drawn() -> list[int]:
    """Return the examples of a property."""
    found: list[int] = []

    @settings(max_examples=500)
    @given(st.integers())
    def collect(number: int) -> None:
        found.append(number)

    collect()
    return found


def test_loaded_module_does_not_change_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not settings.get_profile(settings.get_current_profile_name()).derandomize:
        pytest.skip("this profile draws new examples in every run")
    before = drawn()
    # Not below a folder with the name of a test: Hypothesis leaves those out.
    file = tmp_path / "loaded_later.py"
    file.write_text(f"CONSTANTS = {CONSTANTS}\n")
    spec = importlib.util.spec_from_file_location("loaded_later", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    spec.loader.exec_module(module)
    assert drawn() == before
    assert len(before) == 500
