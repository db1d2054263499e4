"""`--help` of every command can be read at any width."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.cli.program import Program
from tidelock.cli.main import COMMANDS

WIDTHS = (80, 200)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=COMMANDS)
def test_examples_appear_in_the_help_as_they_are_written(
    tidelock: Program,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    command: Callable[..., None],
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    doc = inspect.cleandoc(command.__doc__ or "").split("\n")
    examples = [line for line in doc if line.startswith("    ")]
    assert examples
    shown = tidelock(*path.split(), "--help").out
    assert "\n".join(f"  {line}" for line in examples) in shown
