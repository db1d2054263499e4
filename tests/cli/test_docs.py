"""The generated documentation pages match the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts import generate_docs
from scripts.generate_docs import configuration_page
from tidelock.core.config import declared_keys
from tidelock.core.telemetry import MetricKind
from tidelock.lock.telemetry import METRICS, NOT_EMITTED
from tidelock.telemetry.prometheus import METRICS as EVERY

ROOT = Path(__file__).parents[2]


def test_committed_pages_are_up_to_date() -> None:
    assert generate_docs.main(["--check", "--folder", str(ROOT / "docs")]) == 0, "run `make docs`"


def test_stale_pages_are_detected_and_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "make docs" in capsys.readouterr().err
    assert generate_docs.main(["--folder", str(tmp_path)]) == 0
    assert generate_docs.main(["--check", "--folder", str(tmp_path)]) == 0
    page = tmp_path / "metrics.md"
    page.write_text(page.read_text(encoding="utf-8") + "more", encoding="utf-8")
    assert generate_docs.stale(tmp_path) == ["metrics.md"]


def test_every_setting_is_on_its_page() -> None:
    page = configuration_page()
    for key in declared_keys():
        assert f"| `{key.key}` |" in page


_VERBS = {"Count": MetricKind.COUNTER, "count": MetricKind.COUNTER}
_VERBS |= {"gauge": MetricKind.GAUGE, "time": MetricKind.TIMER}


def _emitted() -> set[tuple[str, MetricKind]]:
    """Return every metric that the source emits by name, with its type."""
    found: set[tuple[str, MetricKind]] = set()
    for path in (ROOT / "src/tidelock").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=verb), args=[ast.Constant(value=str(name)), *_]
                ) if verb in _VERBS and re.fullmatch(r"[a-z]+(\.[a-z]+)+", name):
                    found.add((name, _VERBS[verb]))
                case _:
                    pass
    return found


def test_metrics_page_matches_emitted_metrics() -> None:
    listed = {(metric.name, metric.kind) for _, metrics in EVERY for metric in metrics}
    emitted = _emitted()
    assert emitted <= listed
    # Lock metrics are all named where they are counted; another test observes every other metric.
    assert {(metric.name, metric.kind) for metric in METRICS} <= emitted
    assert not {metric.name for metric in METRICS} & NOT_EMITTED.keys()
