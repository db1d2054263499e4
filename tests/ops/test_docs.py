"""The generated pages say what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tidelock.base.config import declared
from tidelock.base.telemetry import MetricKind
from tidelock.lock.metric_names import METRICS, NOT_EMITTED
from tidelock.ops import docs
from tidelock.ops.pages.settings import settings_page
from tidelock.ops.telemetry.names import METRICS as EVERY

ROOT = Path(__file__).parents[2]


def test_the_pages_in_the_project_are_up_to_date() -> None:
    assert docs.main(["--check", "--folder", str(ROOT / "docs")]) == 0, "run `make docs`"


def test_stale_pages_are_found_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "make docs" in capsys.readouterr().err
    assert docs.main(["--folder", str(tmp_path)]) == 0
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 0
    page = tmp_path / "metrics.md"
    page.write_text(page.read_text(encoding="utf-8") + "more", encoding="utf-8")
    assert docs.stale(tmp_path) == ["metrics.md"]


def test_every_setting_is_on_its_page() -> None:
    page = settings_page()
    for key in declared():
        assert f"| `{key.key}` |" in page


_VERBS = {"Count": MetricKind.COUNTER, "count": MetricKind.COUNTER}
_VERBS |= {"gauge": MetricKind.GAUGE, "time": MetricKind.TIMER}


def _emitted() -> set[tuple[str, MetricKind]]:
    """Return every metric that the source emits by name, and as what."""
    found: set[tuple[str, MetricKind]] = set()
    for path in (ROOT / "src/tidelock").rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=verb), args=[ast.Constant(value=str(name)), *_]
                ) if verb in _VERBS and re.fullmatch(r"[a-z]+(\.[a-z]+)+", name):
                    found.add((name, _VERBS[verb]))
                case _:
                    pass
    return found


def test_the_list_of_metrics_is_what_the_code_emits() -> None:
    listed = {(metric.name, metric.kind) for _, metrics in EVERY for metric in metrics}
    emitted = _emitted()
    assert emitted <= listed
    # Those of locks are all named where they are counted; a test sees every other one happen.
    assert {(metric.name, metric.kind) for metric in METRICS} <= emitted
    assert not {metric.name for metric in METRICS} & NOT_EMITTED.keys()
