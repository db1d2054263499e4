"""A soak passes on a healthy table, reports its work, resumes after an interruption, and judges."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.program import Program
from tidelock.core.errors import MissingExtra
from tidelock.workload.journal import FleetRecord, ProgramEvent
from tidelock.workload.report import Check
from tidelock.workload.soak import SCENARIOS, usages
from tidelock.workload.soak_report import (
    Measurements,
    ResourceSample,
    SoakReport,
    WriteSample,
    as_dict,
    as_page,
    downsample,
    handles_more,
    plot,
    resource_checks,
    resource_use,
    round_up,
    slope_mb_per_minute,
    template,
)


def _life(
    growth_mb_per_minute: float, *, minutes: int = 30, handles: int = 0
) -> list[ResourceSample]:
    return [
        ResourceSample(
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


def test_growing_memory_is_distinguished_from_stable_memory() -> None:
    assert slope_mb_per_minute(_life(0.0)) == pytest.approx(0)
    assert slope_mb_per_minute(_life(2.0)) == pytest.approx(2)
    assert slope_mb_per_minute(_life(2.0, minutes=5)) is None


def test_handle_leaks_are_detected() -> None:
    assert handles_more(_life(0.0)) == 0
    assert (handles_more(_life(0.0, handles=3)) or 0) > 8


def test_each_program_is_judged_by_its_worst_run() -> None:
    second = [replace(sample, life=2, at_s=sample.at_s + 4_000) for sample in _life(0.0)]
    measurements = Measurements([*_life(2.0, handles=3), *second])
    (found,) = resource_use(measurements)
    assert (found.name, found.lives) == ("ada", 2)
    assert found.mb_per_minute == pytest.approx(2)
    assert [check.passed for check in resource_checks(measurements)] == [False, False]
    assert [check.passed for check in resource_checks(Measurements(second))] == [True, True]
    assert [check.passed for check in resource_checks(Measurements(second[:3]))] == [None]


def test_requests_are_counted_by_verb_and_per_write() -> None:
    measurements = Measurements(
        writes=[WriteSample(1.0, 5.0), WriteSample(6.0, 5.0), WriteSample(7.0, 5.0)]
    )
    measurements.add_requests(1.0, "python", {"get": 10, "put": 5})
    measurements.add_requests(4.9, "services", {"get": 20})
    measurements.add_requests(7.0, "python", {"put": 30})
    assert measurements.requests_per_s(1.0) == {
        "get": [(0, 6.0), (5, 0.0)],
        "put": [(0, 1.0), (5, 6.0)],
    }
    assert measurements.requests_per_commit(1.0, frozenset({"python"})) == [(0, 15.0), (5, 15.0)]
    assert measurements.requests_of() == {"get": 30, "put": 35}


def _report(measurements: Measurements) -> SoakReport:
    return SoakReport(
        checks=[],
        scenario="calm",
        description="",
        location="/t",
        version="0",
        elapsed_s=60.0,
        programs={"ada": "python"},
        record=FleetRecord(),
        measurements=measurements,
    )


def test_times_are_reported_by_phase() -> None:
    measurements = Measurements(
        writes=[WriteSample(1.0, 50.0, 20.0, 5.0), WriteSample(2.0, 70.0, 30.0, 15.0)]
    )
    report = _report(measurements)
    assert report.numbers["commit, median"] == "30 ms"
    assert report.numbers["wait for others, 99 %"] == "15 ms"
    assert as_dict(report)["times_ms"]["write"]["median"] == [(1.0, 50.0), (2.0, 70.0)]


def test_lock_wait_is_reported_separately_where_a_lock_is_used() -> None:
    measurements = Measurements(writes=[WriteSample(1.0, 50.0, 20.0, 15.0, 12.0)])
    without = _report(measurements)
    assert "wait for the lock, median" not in without.numbers
    assert "commits take no lock: the ledger decides" in as_page(without)
    report = replace(without, lock="StorageBasedLockProvider")
    assert report.numbers["wait for the lock, median"] == "12 ms"
    assert as_dict(report)["times_ms"]["wait for the lock"]["99 %"] == [(1.0, 12.0)]
    page = as_page(report)
    assert "take the table's lock: StorageBasedLockProvider" in page
    assert "Time waiting for the lock" in page


def test_machine_usage_includes_this_process() -> None:
    import os

    usage = usages([os.getpgrp()])[os.getpgrp()]
    assert usage.memory_mb > 10
    assert usage.threads >= 1
    assert usage.handles > 2


def test_plot_keeps_peaks_and_escapes_names() -> None:
    drawn = plot({"<b>": [(0, 1), (60, 5)]}, unit="ms", marks=[30])
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert downsample([(float(n), float(n == 777)) for n in range(5_000)])
    assert max(y for _, y in downsample([(float(n), float(n == 777)) for n in range(5_000)])) == 1
    assert (round_up(0), round_up(7), round_up(0.3), round_up(120)) == (1, 10, 0.5, 200)
    assert "no data" in plot({}, unit="ms")


class _Outside(HTMLParser):
    """Collects the external resources of a page, and checks that it parses."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"} or any(name == "src" for name, _ in attrs):
            self.links.append(tag)


def test_report_is_self_contained_and_names_problems() -> None:
    record = FleetRecord()
    record.add(ProgramEvent("ada", "failed", 0, {"says": "<script>alert(1)</script>"}))
    measurements = Measurements(
        _life(0.5), [WriteSample(1.0, 5.0), WriteSample(2.0, 9.0)], [(1.5, "kill ben")]
    )
    checks = [
        Check(passed=False, message="<i>id 3 is missing</i>", violations=1),
        Check(None, "not asked"),
    ]
    report = replace(_report(measurements), scenario="chaos", checks=checks, record=record)
    page = as_page(report)
    reader = _Outside()
    reader.feed(page)
    assert reader.links == []
    assert "FAIL" in page
    assert "&lt;i&gt;id 3 is missing" in page
    assert "<script>" not in page
    facts = as_dict(report)
    assert facts["passed"] is False
    assert facts["violations"] == 1
    assert facts["numbers"]["violations"] == "1"


def test_report_without_jinja2_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match="Jinja2") as failed:
        template("soak.html")
    assert "tidelock[soak]" in failed.value.hint


def test_unknown_scenario_is_refused(tidelock: Program) -> None:
    ended = tidelock("soak", "--scenario", "calm")
    assert ended.code == 2
    assert all(name in ended.err for name in SCENARIOS)


@pytest.mark.timeout(900)
def test_soak_passes_and_resumes(tidelock: Program, tmp_path: Path) -> None:
    folder = str(tmp_path / "soak")
    options = ("soak", "--writers", "2", "--folder", folder, "--json")
    first = tidelock(*options, "--minutes", "0.1", "--commits", "1")
    assert first.code == 0, first.out + first.err
    assert first.facts["lock"] == ""
    assert "wait for the lock, median" not in first.facts["numbers"]
    second = tidelock(*options, "--minutes", "0.2", "--lock", "storage")
    assert second.code == 0, second.out + second.err
    assert second.facts["lock"] == "StorageBasedLockProvider"
    assert "wait for the lock, median" in second.facts["numbers"]
    before, after = _landed(first.facts), _landed(second.facts)
    assert after > before > 0
    assert second.facts["requests_sent"]["python"]["put"] > after
    assert any(len(line) > 0 for line in second.facts["requests_per_s"].values())
    kept = json.loads((tmp_path / "soak" / "report.json").read_text())
    assert kept["numbers"] == second.facts["numbers"]
    assert "PASS" in (tmp_path / "soak" / "report.html").read_text()
    import testkit.soak  # noqa: F401 - registers the store

    lost = tidelock("soak", "--store", "seaweedfs", "--folder", folder, "--minutes", "1")
    assert lost.code == 2
    assert "cannot continue" in lost.err
    other = tidelock("soak", "--scenario", "chaos", "--folder", folder, "--minutes", "1")
    assert other.code == 2
    assert "high-frequency" in other.err


def _landed(facts: dict[str, dict[str, str]]) -> int:
    return int(facts["numbers"]["writes landed"].replace(",", ""))
