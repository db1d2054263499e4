"""A write that can no longer succeed is notified while it runs."""

from __future__ import annotations

from tests.unit.txn.bench import PARTITION, Bench, groups
from tidelock.hudi.file_groups import WriteToken, base_name, log_name
from tidelock.hudi.markers import IoType, Marker
from tidelock.storage.contract import Create
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.transaction import group_of

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
EARLY = {**OCC, "hoodie.write.concurrency.early.conflict.detection.enable": "true"}
TOUCHES_A = Footprint(CommitKind.UPSERT, groups("a"))
TOKEN = WriteToken(0, 1, 0)


def announce(bench: Bench, instant: str, name: str, partition: str = PARTITION) -> None:
    """Write a marker."""
    bench.store.put(Marker(partition, name, IoType.MERGE).key(instant), b"", Create())


def test_write_without_conflicts_is_not_cancelled() -> None:
    bench = Bench(EARLY)
    transaction = bench.begin(bench.writer())
    bench.commit_one(bench.writer(), "b")
    assert transaction.is_cancelled(TOUCHES_A) is None
    assert transaction.is_cancelled() is None


def test_commit_to_the_same_group_cancels_the_write() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    other = bench.commit_one(bench.writer(), "a")
    report = transaction.is_cancelled(TOUCHES_A)
    assert report is not None
    assert [each.instant for each in report.others] == [other.instant]


def test_rolled_back_write_is_cancelled() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    bench.clock.advance(60_000 * 11)
    bench.writer().recover()
    report = transaction.is_cancelled()
    assert report is not None
    assert "rolled back" in report.cause


def test_younger_of_two_writers_with_markers_in_one_group_is_cancelled() -> None:
    bench = Bench(EARLY)
    older, younger = bench.begin(bench.writer()), bench.begin(bench.writer())
    for transaction in (older, younger):
        announce(bench, transaction.instant, base_name("a", TOKEN, transaction.instant))
    report = younger.is_cancelled(TOUCHES_A)
    assert report is not None
    assert report.groups == groups("a")
    assert older.is_cancelled(TOUCHES_A) is None


def test_markers_are_read_only_if_configured() -> None:
    bench = Bench(OCC)
    older, younger = bench.begin(bench.writer()), bench.begin(bench.writer())
    announce(bench, older.instant, base_name("a", TOKEN, older.instant))
    assert younger.is_cancelled(TOUCHES_A) is None


def test_markers_of_dead_writers_cancel_nobody() -> None:
    bench = Bench(EARLY)
    older = bench.begin(bench.writer())
    announce(bench, older.instant, base_name("a", TOKEN, older.instant))
    bench.clock.advance(60_000 * 11)
    younger = bench.begin(bench.writer())
    assert younger.is_cancelled(TOUCHES_A) is None


def test_partition_with_an_underscore_is_parsed() -> None:
    bench = Bench(EARLY)
    older, younger = bench.begin(bench.writer()), bench.begin(bench.writer())
    announce(bench, older.instant, base_name("a", TOKEN, older.instant), "day_1")
    assert younger.is_cancelled(Footprint(CommitKind.UPSERT, groups("day_2/a"))) is None
    assert younger.is_cancelled(Footprint(CommitKind.UPSERT, groups("day_1/a"))) is not None


def test_log_files_and_base_files_of_one_group_conflict() -> None:
    log = Marker("p", log_name("a", "20260101000000000", TOKEN), IoType.CREATE)
    base = Marker("p", base_name("a", TOKEN, "20260101000000000"), IoType.MERGE)
    assert group_of(log) == group_of(base) == ("p", "a")
