"""A soak passes on a sound table, says what it did, goes on after an interruption, and judges."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.ops.program import Program
from tidelock.ops.fleet.journal import Noted
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.verdict import Check
from tidelock.ops.soak.curves import Curves, Sample, Written
from tidelock.ops.soak.lean import handles_more, lean_checks, leanness, slope_mb_per_minute
from tidelock.ops.soak.page import as_page
from tidelock.ops.soak.plots import nice, plot, thinned
from tidelock.ops.soak.report import Told, as_facts
from tidelock.ops.soak.resources import usages
from tidelock.ops.soak.scenario import SCENARIOS


def _life(growth_mb_per_minute: float, *, minutes: int = 30, handles: int = 0) -> list[Sample]:
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


def test_each_program_is_judged_by_its_worst_life() -> None:
    second = [replace(sample, life=2, at_s=sample.at_s + 4_000) for sample in _life(0.0)]
    curves = Curves([*_life(2.0, handles=3), *second])
    (found,) = leanness(curves)
    assert (found.name, found.lives) == ("ada", 2)
    assert found.mb_per_minute == pytest.approx(2)
    assert [check.passed for check in lean_checks(curves)] == [False, False]
    assert [check.passed for check in lean_checks(Curves(second))] == [True, True]
    assert [check.passed for check in lean_checks(Curves(second[:3]))] == [None]


def test_requests_are_counted_by_verb_and_for_each_write() -> None:
    curves = Curves(writes=[Written(1.0, 5.0), Written(6.0, 5.0), Written(7.0, 5.0)])
    curves.asked(1.0, "python", {"get": 10, "put": 5})
    curves.asked(4.9, "services", {"get": 20})
    curves.asked(7.0, "python", {"put": 30})
    assert curves.requests_per_s(1.0) == {
        "get": [(0, 6.0), (5, 0.0)],
        "put": [(0, 1.0), (5, 6.0)],
    }
    assert curves.requests_per_commit(1.0, frozenset({"python"})) == [(0, 15.0), (5, 15.0)]
    assert curves.requests_of() == {"get": 30, "put": 35}


def test_times_are_told_by_what_they_were_spent_with() -> None:
    curves = Curves(writes=[Written(1.0, 50.0, 20.0, 5.0), Written(2.0, 70.0, 30.0, 15.0)])
    told = Told("calm", "", "/t", "0", 60.0, {"ada": "python"}, [], Record(), curves)
    assert told.numbers["commit, median"] == "30 ms"
    assert told.numbers["wait for others, 99 %"] == "15 ms"
    assert as_facts(told)["times_ms"]["write"]["median"] == [(1.0, 50.0), (2.0, 70.0)]


def test_waiting_for_the_lock_is_told_apart_where_one_was_taken() -> None:
    curves = Curves(writes=[Written(1.0, 50.0, 20.0, 15.0, 12.0)])
    without = Told("calm", "", "/t", "0", 60.0, {"ada": "python"}, [], Record(), curves)
    assert "wait for the lock, median" not in without.numbers
    assert "no lock: the ledger decides" in as_page(without)
    told = replace(without, lock="StorageBasedLockProvider")
    assert told.numbers["wait for the lock, median"] == "12 ms"
    assert as_facts(told)["times_ms"]["wait for the lock"]["99 %"] == [(1.0, 12.0)]
    page = as_page(told)
    assert "around every commit: StorageBasedLockProvider" in page
    assert "How much of that was for the lock" in page


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
    curves = Curves(_life(0.5), [Written(1.0, 5.0), Written(2.0, 9.0)], [(1.5, "kill ben")])
    checks = [
        Check(passed=False, says="<i>id 3 is missing</i>", violations=1),
        Check(None, "not asked"),
    ]
    told = Told("chaos", "says", "/t", "0", 60.0, {"ada": "python"}, checks, record, curves)
    page = as_page(told)
    reader = _Outside()
    reader.feed(page)
    assert reader.links == []
    assert "FAIL" in page
    assert "&lt;i&gt;id 3 is missing" in page
    assert "<script>" not in page
    facts = as_facts(told)
    assert facts["passed"] is False
    assert facts["violations"] == 1
    assert facts["numbers"]["violations"] == "1"


def test_a_scenario_that_there_is_not_is_refused(tidelock: Program) -> None:
    ended = tidelock("soak", "--scenario", "calm")
    assert ended.code == 2
    assert all(name in ended.err for name in SCENARIOS)


def test_a_soak_passes_and_goes_on_where_it_was(tidelock: Program, tmp_path: Path) -> None:
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
    lost = tidelock("soak", "--store", "seaweedfs", "--folder", folder, "--minutes", "1")
    assert lost.code == 2
    assert "cannot go on" in lost.err
    other = tidelock("soak", "--scenario", "chaos", "--folder", folder, "--minutes", "1")
    assert other.code == 2
    assert "high-frequency" in other.err


def _landed(facts: dict[str, dict[str, str]]) -> int:
    return int(facts["numbers"]["writes landed"].replace(",", ""))
