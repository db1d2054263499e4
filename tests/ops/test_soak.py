"""A soak passes on a sound table, says what it did, goes on after an interruption, and judges."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.ops.program import Program
from tidelock.ops.fleet.journal import Noted
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.verdict import Check
from tidelock.ops.soak.curves import Curves, Sample, handles_more, slope_mb_per_minute
from tidelock.ops.soak.plots import nice, plot, thinned
from tidelock.ops.soak.report import Told, as_facts, as_page
from tidelock.ops.soak.resources import usages
from tidelock.ops.soak.scenario import SCENARIOS


def _life(growth_mb_per_minute: float, *, minutes: int = 20, handles: int = 0) -> list[Sample]:
    return [
        Sample(
            at_s=minute * 60.0,
            name="ada",
            life=1,
            memory_mb=100 + growth_mb_per_minute * minute,
            cpu_s=minute,
            threads=4,
            handles=20 + handles * minute,
        )
        for minute in range(minutes)
    ]


def test_memory_that_grows_is_told_from_memory_that_does_not() -> None:
    assert slope_mb_per_minute(_life(0.0)) == pytest.approx(0)
    assert slope_mb_per_minute(_life(2.0)) == pytest.approx(2)
    assert slope_mb_per_minute(_life(2.0, minutes=5)) is None


def test_handles_that_leak_are_found() -> None:
    assert handles_more(_life(0.0)) == 0
    assert (handles_more(_life(0.0, handles=3)) or 0) > 8


def test_the_machine_tells_what_this_process_uses() -> None:
    import os

    usage = usages([os.getpgrp()])[os.getpgrp()]
    assert usage.memory_mb > 10
    assert usage.threads >= 1
    assert usage.handles > 2


def test_a_plot_keeps_peaks_and_escapes_names() -> None:
    drawn = plot({"<b>": [(0, 1), (60, 5)]}, unit="ms", marks=[30])
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert thinned([(float(n), float(n == 777)) for n in range(5_000)])
    assert max(y for _, y in thinned([(float(n), float(n == 777)) for n in range(5_000)])) == 1
    assert (nice(0), nice(7), nice(0.3), nice(120)) == (1, 10, 0.5, 200)
    assert "nothing was measured" in plot({}, unit="ms")


class _Outside(HTMLParser):
    """Collects what a page would load, and whether it is well formed enough to read."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"} or any(name == "src" for name, _ in attrs):
            self.links.append(tag)


def test_the_report_needs_nothing_else_and_names_what_is_wrong() -> None:
    record = Record()
    record.take(Noted("ada", "failed", 0, {"says": "<script>alert(1)</script>"}))
    curves = Curves(_life(0.5), [(1.0, 5.0), (2.0, 9.0)], [(1.5, "kill ben")])
    checks = [Check(passed=False, says="<i>id 3 is missing</i>"), Check(None, "not asked")]
    told = Told("chaos", "says", "/t", "0", 60.0, {"ada": "python"}, checks, record, curves)
    page = as_page(told)
    reader = _Outside()
    reader.feed(page)
    assert reader.links == []
    assert "FAIL" in page
    assert "&lt;i&gt;id 3 is missing" in page
    assert "<script>" not in page
    assert as_facts(told)["passed"] is False


def test_a_scenario_that_there_is_not_is_refused(tidelock: Program) -> None:
    ended = tidelock("soak", "--scenario", "calm")
    assert ended.code == 2
    assert all(name in ended.err for name in SCENARIOS)


def test_a_soak_passes_and_goes_on_where_it_was(tidelock: Program, tmp_path: Path) -> None:
    folder = str(tmp_path / "soak")
    options = ("soak", "--writers", "2", "--folder", folder, "--json")
    first = tidelock(*options, "--minutes", "0.1")
    assert first.code == 0, first.out + first.err
    second = tidelock(*options, "--minutes", "0.2")
    assert second.code == 0, second.out + second.err
    before, after = _landed(first.facts), _landed(second.facts)
    assert after > before > 0
    kept = json.loads((tmp_path / "soak" / "report.json").read_text())
    assert kept["numbers"] == second.facts["numbers"]
    assert "PASS" in (tmp_path / "soak" / "report.html").read_text()
    other = tidelock("soak", "--scenario", "chaos", "--folder", folder, "--minutes", "1")
    assert other.code == 2
    assert "high-frequency" in other.err


def _landed(facts: dict[str, dict[str, str]]) -> int:
    return int(facts["numbers"]["writes landed"].replace(",", ""))
