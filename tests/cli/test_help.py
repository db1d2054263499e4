"""`--help` of every command can be read at any width."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.program import Program
from tidelock.cli.main import COMMANDS, app

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


@pytest.mark.parametrize("group", ["", "lock", "table", "timeline", "ledger"])
def test_every_summary_is_shown_in_full(
    tidelock: Program, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = tidelock(*group.split(), "--help").out.split("\n")
    for path, command in COMMANDS.items():
        parent, _, name = path.rpartition(" ")
        if parent == group:
            summary = inspect.cleandoc(command.__doc__ or "").partition("\n")[0]
            assert len(summary) <= 60
            assert [
                line for line in lines if re.fullmatch(rf"  {name} +{re.escape(summary)}", line)
            ]
    assert max(map(len, lines)) <= 80


def test_every_command_is_in_one_section_of_the_help() -> None:
    group: Any = get_command(app)
    listed = [name for names in group.sections.values() for name in names]
    assert sorted(listed) == sorted(group.commands)


def test_usage_marks_optional_arguments_and_choices(tidelock: Program) -> None:
    shown = tidelock("rollback", "--help").out
    assert "Usage: tidelock rollback [OPTIONS] URI {schedule|execute|run} [INSTANT]\n" in shown
