"""`--help` of every command can be read at any width."""

from __future__ import annotations

import inspect
import re
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


@pytest.mark.parametrize("path", COMMANDS)
def test_help_names_every_value_once_and_fits_80_columns(
    tidelock: Program, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = tidelock(*path.split(), "--help").out
    assert not re.search(r"<(str|int|float|path|list)\b", shown), "a type instead of a metavar"
    assert not re.search(r"\[\[|\{\{|\.\.\.\S*\.\.\.", shown), "brackets around brackets"
    assert max(map(len, shown.split("\n"))) <= 80


def test_usage_marks_optional_arguments_and_choices(tidelock: Program) -> None:
    shown = tidelock("rollback", "--help").out
    assert "Usage: tidelock rollback [OPTIONS] URI {schedule|execute|run} [INSTANT]\n" in shown
