"""Hudi's Java writers and this lock exclude each other on one lock file."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.interop import contender, journal
from tests.interop.table import Table, signal

pytestmark = pytest.mark.timeout(600)

EACH = 50
DEADLINE_S = 400


def test_java_and_python_read_the_same_monotonic_clock(table: Table) -> None:
    writer = table.java()
    before = time.monotonic_ns()
    theirs = writer.clock_ns()
    after = time.monotonic_ns()
    assert before < theirs < after


def test_four_contenders_never_overlap_in_200_critical_sections(
    table: Table, tmp_path: Path
) -> None:
    paths = str(tmp_path / "journal"), str(tmp_path / "marker")
    start = signal()
    ours = [table.contender_process(f"python-{n}", EACH, *paths, start=start) for n in range(2)]
    theirs = {f"java-{n}": table.java() for n in range(2)}
    for writer in theirs.values():
        # One uncontended acquire first: Java is slow until its classes are loaded.
        assert writer.try_lock()
        writer.unlock()
    start.set()
    for name, writer in theirs.items():
        writer.start_command("sections", name, EACH, *paths)
    for writer in theirs.values():
        clock_readings = writer.receive()
        assert isinstance(clock_readings, int)
        assert clock_readings > EACH, "Hudi never found the lock held: nothing was fought over"
    for process in ours:
        process.join(DEADLINE_S)
        assert process.exitcode == 0

    entries = journal.read(tmp_path / "journal")
    done = journal.sections(entries)
    assert journal.overlaps(entries) == []
    everybody = [*theirs, "python-0", "python-1"]
    assert Counter(section.name for section in done) == dict.fromkeys(everybody, EACH)
    assert journal.handovers(done, prefix="java") >= 20
    # Java drops the token from the lock file on each write; our tokens increase nevertheless.
    tokens = [section.token for section in done if section.token]
    assert all(a < b for a, b in pairwise(tokens)), tokens


def test_journal_detects_overlapping_contenders(table: Table, tmp_path: Path) -> None:
    """Without a lock the same sections overlap, and all three checks report it."""
    writer = table.java()
    log, marker = tmp_path / "journal", tmp_path / "marker"
    writer.start_command("sections", "java-0", 20, log, marker)
    # From before the first to after the last of the other process, however slow either is.
    contender.section("python-0", 1, log, marker)
    while log.read_text().count(" end java-0 ") < 20:
        contender.section("python-0", 1, log, marker)
    writer.receive()
    signs = " ".join(journal.overlaps(journal.read(log)))
    assert "met a marker" in signs
    assert "began inside" in signs
    assert "ended" in signs
