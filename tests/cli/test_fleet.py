"""The writer fleet: its steps are deterministic, and its checks find wrong results."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import eventually
from tidelock.core.system import SystemClock
from tidelock.core.telemetry import Metrics
from tidelock.workload.journal import FleetRecord, JournalReader, ProgramEvent, ProgramJournal
from tidelock.workload.oracle import check_table
from tidelock.workload.steps import (
    DeleteRows,
    FleetRow,
    IncrementAmounts,
    Merge,
    StepGenerator,
    Upsert,
    differences,
    replay,
)
from tidelock.workload.table_program import (
    CommitTimes,
    MetricDeltas,
    ReadViolations,
    Role,
    SeenRow,
    TableFleetSpec,
    compare_reads,
    table_pool,
)

TERMS = StepGenerator(seed=7, keys=50, rows=5)
ONE = FleetRow(1, "america", 10, "ada", 1)


def test_step_is_deterministic() -> None:
    assert TERMS.upsert_of("ada", 3) == TERMS.upsert_of("ada", 3)
    assert TERMS.upsert_of("ada", 3) != TERMS.upsert_of("ben", 3)
    assert TERMS.upsert_of("ada", 3) != TERMS.upsert_of("ada", 4)


def test_keys_are_unique_within_a_step() -> None:
    for step in range(50):
        rows = TERMS.rows_of("ada", step)
        assert len({row.id for row in rows}) == len(rows) > 0


def test_statements_are_of_three_kinds() -> None:
    kinds = {type(TERMS.statement_of("sql", step)) for step in range(3)}
    assert kinds == {DeleteRows, IncrementAmounts, Merge}


def test_replayed_steps_equal_the_table() -> None:
    other = ONE._replace(id=2)
    merged = (ONE._replace(amount=5, writer="ben"), ONE._replace(id=3))
    state = replay(
        [Upsert((ONE, other)), IncrementAmounts(2, 1), Merge(merged), DeleteRows((2, 9))]
    )
    assert state == {1: ONE._replace(amount=16), 3: ONE._replace(id=3)}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "id 1 is missing"),
        ([ONE, ONE], "id 1 occurs twice"),
        ([ONE, ONE._replace(id=2)], "id 2 is unexpected"),
        ([ONE._replace(amount=9)], "id 1: expected"),
    ],
)
def test_every_kind_of_wrong_row_is_detected(found: list[FleetRow], message: str) -> None:
    (problem,) = differences({1: ONE}, found)
    assert message in problem


def test_correct_rows_pass() -> None:
    assert differences({1: ONE}, [ONE]) == []


def _wrote(name: str, step: int, completion: str) -> ProgramEvent:
    facts = {"step": step, "completion": completion, "took_ms": 5, "rebases": 1}
    return ProgramEvent(name, "wrote", 0, facts)


def test_skipped_step_and_reused_instant_are_detected() -> None:
    record = FleetRecord()
    for noted in (_wrote("ada", 1, "1"), _wrote("ada", 3, "2"), _wrote("ben", 1, "2")):
        record.add(noted)
    skipped, twice = record.gaps()
    assert "ada skipped a step" in skipped
    assert "2 steps completed at 2" in twice


def test_step_found_committed_after_a_kill_counts() -> None:
    record = FleetRecord()
    record.add(ProgramEvent("ada", "resumes", 0, {"step": 1, "completion": "1"}))
    assert record.gaps() == []
    assert record.committed == {("ada", 1): "1"}


def test_partial_line_of_a_killed_process_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "ada.jsonl").write_text('{"did": "begi')
    with closing(ProgramJournal(tmp_path, "ada", SystemClock())) as journal:
        journal.append("starts")
    assert [noted.kind for noted in JournalReader(tmp_path, "ada").read_new()] == ["starts"]


OLD = {1: SeenRow("1", 10), 2: SeenRow("1", 20)}


@pytest.mark.parametrize(
    ("now", "changed", "faults"),
    [
        ({1: SeenRow("1", 10), 2: SeenRow("2", 25)}, {2: SeenRow("2", 25)}, ReadViolations()),
        ({1: SeenRow("1", 10), 2: SeenRow("2", 25)}, None, ReadViolations()),
        ({1: SeenRow("1", 10), 2: SeenRow("0", 20)}, None, ReadViolations(back=1)),
        ({1: SeenRow("1", 10)}, None, ReadViolations(lost=1)),
        ({1: SeenRow("1", 10), 2: SeenRow("2", 25)}, {}, ReadViolations(missed=1)),
        (OLD, {2: SeenRow("2", 25)}, ReadViolations(missed=1)),
        (OLD, {3: SeenRow("2", 25)}, ReadViolations(missed=1)),
        ({**OLD, 3: SeenRow("2", 1)}, {}, ReadViolations(missed=1)),
    ],
)
def test_two_snapshots_and_the_changes_between_them_must_agree(
    now: dict[int, SeenRow], changed: dict[int, SeenRow] | None, faults: ReadViolations
) -> None:
    assert compare_reads(OLD, now, changed, deletes=False) == faults


def test_key_may_disappear_where_deletes_run() -> None:
    assert compare_reads(OLD, {1: OLD[1]}, {}, deletes=True) == ReadViolations()


@pytest.mark.parametrize("fault", ["twice", "back", "lost", "missed"])
def test_every_read_failure_fails_the_check(fault: str) -> None:
    record = FleetRecord()
    sound = dict.fromkeys(("twice", "back", "lost", "missed"), 0)
    record.add(ProgramEvent("reader", "read", 0, {**sound, "summed": True}))
    assert (record.reads, record.compared_reads, record.inconsistent_reads) == (1, 1, [])
    record.add(ProgramEvent("reader", "read", 0, {**sound, fault: 1, "summed": False}))
    assert len(record.inconsistent_reads) == 1


def test_metric_deltas_count_from_the_previous_call() -> None:
    metrics = Metrics(is_process=True)
    deltas = MetricDeltas(metrics)
    metrics.count("store.get", 3)
    metrics.time("txn.commit.duration", 40)
    metrics.time("txn.lock.wait", 10)
    metrics.time("store.line.wait", 5)
    assert (deltas.requests(), deltas.commit_times()) == ({"get": 3}, CommitTimes(40, 15, 10))
    metrics.count("store.put")
    metrics.time("store.line.wait", 7)
    assert (deltas.requests(), deltas.commit_times()) == ({"put": 1}, CommitTimes(0, 7, 0))
    assert (deltas.requests(), deltas.commit_times()) == ({}, CommitTimes(0, 0, 0))


@pytest.mark.timeout(900)
def test_killed_writer_resumes_and_a_changed_row_is_detected(tmp_path: Path) -> None:
    spec = TableFleetSpec(str(tmp_path / "orders"), TERMS, pause_ms=10, service_pause_ms=10)
    record = FleetRecord()

    def has_committed(name: str, more_than: int) -> bool:
        for noted in pool.read_journals():
            record.add(noted)
        return len(record.steps_of(name)) > more_than

    with table_pool(tmp_path, spec) as pool:
        pool.start("ada", Role.PYTHON)
        pool.start("ben", Role.PYTHON)
        pool.start("keeper", Role.SERVICES)
        pool.start("reader", Role.READER)
        eventually(lambda: has_committed("ada", 2))
        pool.kill("ada")
        pool.start("ada", Role.PYTHON)
        eventually(lambda: "ada" in record.resumed or has_committed("ada", 99))
        eventually(lambda: has_committed("ada", record.resumed["ada"][0]))
        eventually(lambda: has_committed("ada", 0) and record.reads > 0)
        pool.stop()
        for program in pool.programs.values():
            assert program.process.wait(120) == 0, pool.last_output(program.name)
        has_committed("ada", 0)
        checks = list(check_table(pool, record))
        assert all(check.passed for check in checks), checks
        with closing(spec.open()) as table:
            (first, *_) = table.read(columns=["id"]).column("id").to_pylist()
            table.delete([{"id": first, "region": _region(first)}])
        wrong = [check.message for check in check_table(pool, record) if check.passed is False]
        assert any(f"id {first} is missing" in message for message in wrong)


def _region(key: int) -> str:
    return ("africa", "america", "asia", "europe")[key % 4]


def test_fleet_spec_round_trips(tmp_path: Path) -> None:
    spec = TableFleetSpec("s3://lake/orders", TERMS, settings={"tidelock.s3.region": "eu"})
    spec.save(tmp_path)
    assert TableFleetSpec.load(tmp_path) == spec
    assert json.loads((tmp_path / "fleet.json").read_text())["generator"]["seed"] == 7
