"""The types that a user of the package sees in pyright, and in the editors that use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.servers import ServerUnavailable, ToolCache, pyright
from tests.tidy.test_user_types import PROGRAM, PYARROW_STUBS, SOURCE

_REVEALED = (
    "Table",
    "Table",
    "Schema",
    "int",
    "ServiceRun",
    "str",
    "AppTransaction | None",
    "Lock",
)


@pytest.fixture
def command() -> list[str]:
    """Skip where pyright cannot be installed; fail in continuous integration."""
    try:
        node, script = pyright.install(ToolCache.default())
    except ServerUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    return [str(node), str(script)]


def test_program_of_a_user_is_checked_by_pyright(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "stubs" / "pyarrow").mkdir(parents=True)
    (tmp_path / "stubs" / "pyarrow" / "__init__.pyi").write_text(PYARROW_STUBS)
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {"stubPath": "stubs", "extraPaths": [str(SOURCE)], "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [*command, "--outputjson", "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [each["message"] for each in found if each["severity"] == "information"]
    errors = [each["message"] for each in found if each["severity"] == "error"]
    assert [text.split(' is "')[1].rstrip('"') for text in revealed] == list(_REVEALED)
    assert len(errors) == 1, errors
    assert 'Cannot access attribute "upsrt" for class "Table"' in errors[0]
