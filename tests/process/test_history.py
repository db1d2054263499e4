"""The history checker detects every kind of planted violation."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testkit.history import (
    Section,
    fairness,
    hand_overs_ms,
    read_sections,
    violations,
    write_section,
)


def good(count: int) -> list[Section]:
    return [Section(str(n % 5), n + 1, n * 10, n * 10 + 9) for n in range(count)]


def test_valid_history_passes_in_any_line_order() -> None:
    history = good(500)
    random.Random(1).shuffle(history)
    assert list(violations(history)) == []


@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (Section("x", 250, 2480, 2489), "two sections with one token"),
        (Section("x", 900, 2485, 2495), "the larger token came first"),
        (Section("x", 501, 4985, 5010), "overlap"),
        (Section("x", 501, 5010, 5005), "ended before it began"),
        (Section("x", 501, 100, 9_999), "overlap"),
    ],
)
def test_planted_section_is_detected(planted: Section, says: str) -> None:
    history = [*good(500), planted]
    random.Random(2).shuffle(history)
    found = list(violations(history))
    assert any(says in violation for violation in found), found


def test_token_out_of_order_is_detected_even_without_overlap() -> None:
    swapped = [Section("a", 2, 0, 5), Section("b", 1, 10, 15)]
    assert any("larger token" in violation for violation in violations(swapped))


@pytest.mark.timeout(300)
def test_long_history_is_checked_without_comparing_all_pairs() -> None:
    # Five billion comparisons would exceed the time limit of a test.
    assert list(violations(good(100_000))) == []


def test_handovers_and_shares_are_computed() -> None:
    assert hand_overs_ms(good(3)) == [1e-6, 1e-6]
    assert fairness(good(500)) == 1.0
    assert fairness([Section("a", n, n, n) for n in range(9)]) == 1.0
    lopsided = [Section("a", n, n, n) for n in range(99)] + [Section("b", 99, 99, 99)]
    assert fairness(lopsided) < 0.55
    assert fairness([]) == 1.0


def test_history_round_trips_through_files(tmp_path: Path) -> None:
    for section in good(20):
        write_section(tmp_path / f"{section.who}.jsonl", section)
    assert sorted(read_sections(tmp_path), key=lambda section: section.token) == good(20)
