"""Programs that write one table together: what they do is known, and what is wrong is found."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.ops.program import eventually
from tidelock.base.clock import SystemClock
from tidelock.base.metrics import Metrics
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.journal import Journal, JournalReader, Noted
from tidelock.ops.fleet.looks import Faults, Seen, compared
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.steps import (
    Delete,
    Merge,
    Raise,
    Row,
    Terms,
    Upsert,
    differences,
    replayed,
)
from tidelock.ops.fleet.tally import Spent, Tally
from tidelock.ops.fleet.verdict import judge

TERMS = Terms(seed=7, keys=50, rows=5)
ONE = Row(1, "america", 10, "ada", 1)


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    assert TERMS.upsert_of("ada", 3) == TERMS.upsert_of("ada", 3)
    assert TERMS.upsert_of("ada", 3) != TERMS.upsert_of("ben", 3)
    assert TERMS.upsert_of("ada", 3) != TERMS.upsert_of("ada", 4)


def test_no_key_is_twice_in_a_step() -> None:
    for step in range(50):
        rows = TERMS.rows_of("ada", step)
        assert len({row.id for row in rows}) == len(rows) > 0


def test_statements_are_of_three_kinds() -> None:
    kinds = {type(TERMS.statement_of("sql", step)) for step in range(3)}
    assert kinds == {Delete, Raise, Merge}


def test_steps_are_replayed_as_the_table_does_them() -> None:
    other = ONE._replace(id=2)
    merged = (ONE._replace(amount=5, writer="ben"), ONE._replace(id=3))
    state = replayed([Upsert((ONE, other)), Raise(2, 1), Merge(merged), Delete((2, 9))])
    assert state == {1: ONE._replace(amount=16), 3: ONE._replace(id=3)}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([], "id 1 is missing"),
        ([ONE, ONE], "id 1 is there twice"),
        ([ONE, ONE._replace(id=2)], "id 2 should not be there"),
        ([ONE._replace(amount=9)], "and should be"),
    ],
)
def test_every_kind_of_wrong_row_is_found(found: list[Row], says: str) -> None:
    (told,) = differences({1: ONE}, found)
    assert says in told


def test_right_rows_are_found_right() -> None:
    assert differences({1: ONE}, [ONE]) == []


def _wrote(name: str, step: int, completion: str) -> Noted:
    facts = {"step": step, "completion": completion, "took_ms": 5, "rebases": 1}
    return Noted(name, "wrote", 0, facts)


def test_a_step_left_out_and_a_moment_used_twice_are_found() -> None:
    record = Record()
    for noted in (_wrote("ada", 1, "1"), _wrote("ada", 3, "2"), _wrote("ben", 1, "2")):
        record.take(noted)
    left_out, twice = record.gaps()
    assert "ada left out a step" in left_out
    assert "2 steps completed at 2" in twice


def test_a_step_found_done_after_a_kill_counts() -> None:
    record = Record()
    record.take(Noted("ada", "resumes", 0, {"step": 1, "completion": "1"}))
    assert record.gaps() == []
    assert record.landed == {("ada", 1): "1"}


def test_half_a_line_of_a_killed_program_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "ada.jsonl").write_text('{"did": "begi')
    with closing(Journal(tmp_path, "ada", SystemClock())) as journal:
        journal.note("starts")
    assert [noted.did for noted in JournalReader(tmp_path, "ada").fresh()] == ["starts"]


OLD = {1: Seen("1", 10), 2: Seen("1", 20)}


@pytest.mark.parametrize(
    ("now", "changed", "faults"),
    [
        ({1: Seen("1", 10), 2: Seen("2", 25)}, {2: Seen("2", 25)}, Faults()),
        ({1: Seen("1", 10), 2: Seen("2", 25)}, None, Faults()),
        ({1: Seen("1", 10), 2: Seen("0", 20)}, None, Faults(back=1)),
        ({1: Seen("1", 10)}, None, Faults(lost=1)),
        ({1: Seen("1", 10), 2: Seen("2", 25)}, {}, Faults(missed=1)),
        (OLD, {2: Seen("2", 25)}, Faults(missed=1)),
        (OLD, {3: Seen("2", 25)}, Faults(missed=1)),
        ({**OLD, 3: Seen("2", 1)}, {}, Faults(missed=1)),
    ],
)
def test_two_looks_and_the_changes_between_them_must_agree(
    now: dict[int, Seen], changed: dict[int, Seen] | None, faults: Faults
) -> None:
    assert compared(OLD, now, changed, deletes=False) == faults


def test_a_key_may_go_where_somebody_deletes() -> None:
    assert compared(OLD, {1: OLD[1]}, {}, deletes=True) == Faults()


@pytest.mark.parametrize("fault", ["twice", "back", "lost", "missed"])
def test_every_fault_of_a_read_breaks_it(fault: str) -> None:
    record = Record()
    sound = dict.fromkeys(("twice", "back", "lost", "missed"), 0)
    record.take(Noted("reader", "read", 0, {**sound, "summed": True}))
    assert (record.reads, record.summed, record.broken_reads) == (1, 1, [])
    record.take(Noted("reader", "read", 0, {**sound, fault: 1, "summed": False}))
    assert len(record.broken_reads) == 1


def test_a_tally_tells_what_came_since_it_was_last_asked() -> None:
    metrics = Metrics(is_process=True)
    tally = Tally(metrics)
    metrics.count("store.get", 3)
    metrics.time("txn.commit.duration", 40)
    metrics.time("txn.lock.wait", 10)
    metrics.time("store.line.wait", 5)
    assert (tally.sent(), tally.spent()) == ({"get": 3}, Spent(40, 15, 10))
    metrics.count("store.put")
    metrics.time("store.line.wait", 7)
    assert (tally.sent(), tally.spent()) == ({"put": 1}, Spent(0, 7, 0))
    assert (tally.sent(), tally.spent()) == ({}, Spent(0, 0, 0))


def test_a_killed_writer_goes_on_where_it_was_and_a_changed_row_is_found(tmp_path: Path) -> None:
    articles = Articles(str(tmp_path / "orders"), TERMS, pause_ms=10, service_pause_ms=10)
    record = Record()

    def landed(name: str, more_than: int) -> bool:
        for noted in crew.fresh():
            record.take(noted)
        return len(record.steps_of(name)) > more_than

    with Crew[Articles, Role](tmp_path, articles) as crew:
        crew.start("ada", Role.PYTHON)
        crew.start("ben", Role.PYTHON)
        crew.start("keeper", Role.SERVICES)
        crew.start("reader", Role.READER)
        eventually(lambda: landed("ada", 2), within_s=60)
        crew.kill("ada")
        crew.start("ada", Role.PYTHON)
        eventually(lambda: "ada" in record.resumed or landed("ada", 99), within_s=60)
        eventually(lambda: landed("ada", record.resumed["ada"][0]), within_s=60)
        eventually(lambda: landed("ada", 0) and record.reads > 0, within_s=60)
        crew.dismiss()
        for program in crew.programs.values():
            assert program.process.wait(60) == 0, crew.last_words(program.name)
        landed("ada", 0)
        checks = list(judge(crew, record))
        assert all(check.passed for check in checks), checks
        with closing(articles.open()) as table:
            (first, *_) = table.read(columns=["id"]).column("id").to_pylist()
            table.delete([{"id": first, "region": _region(first)}])
        wrong = [check.says for check in judge(crew, record) if check.passed is False]
        assert any(f"id {first} is missing" in says for says in wrong)


def _region(key: int) -> str:
    return ("africa", "america", "asia", "europe")[key % 4]


def test_what_a_fleet_agreed_on_is_read_as_it_was_written(tmp_path: Path) -> None:
    articles = Articles("s3://lake/orders", TERMS, settings={"tidelock.s3.region": "eu"})
    articles.save(tmp_path)
    assert Articles.load(tmp_path) == articles
    assert json.loads((tmp_path / "fleet.json").read_text())["terms"]["seed"] == 7
