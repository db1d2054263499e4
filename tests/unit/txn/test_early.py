"""A write that cannot succeed any more is told so while it runs."""

from __future__ import annotations

from tests.unit.txn.bench import PARTITION, Bench, groups
from tidelock.store.contract import Create
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import WriteToken, base_name, log_name
from tidelock.txn.early import group_of
from tidelock.txn.footprint import Deed, Footprint

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
EARLY = {**OCC, "hoodie.write.concurrency.early.conflict.detection.enable": "true"}
TOUCHES_A = Footprint(Deed.UPSERT, groups("a"))
TOKEN = WriteToken(0, 1, 0)


def announce(bench: Bench, instant: str, name: str, partition: str = PARTITION) -> None:
    """Leave a marker."""
    bench.store.put(Marker(partition, name, IoType.MERGE).key(instant), b"", Create())


def test_a_write_that_nothing_stands_against_is_not_doomed() -> None:
    bench = Bench(EARLY)
    transaction = bench.begin(bench.writer())
    bench.commit_one(bench.writer(), "b")
    assert transaction.doomed(TOUCHES_A) is None
    assert transaction.doomed() is None


def test_a_commit_to_the_same_group_dooms_it() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    other = bench.commit_one(bench.writer(), "a")
    report = transaction.doomed(TOUCHES_A)
    assert report is not None
    assert [party.instant for party in report.others] == [other.instant]


def test_a_rolled_back_write_is_doomed() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    bench.clock.advance(60_000 * 11)
    bench.writer().recover()
    report = transaction.doomed()
    assert report is not None
    assert "rolled back" in report.cause


def test_of_two_writers_with_markers_in_one_group_the_younger_is_doomed() -> None:
    bench = Bench(EARLY)
    older, younger = bench.begin(bench.writer()), bench.begin(bench.writer())
    for transaction in (older, younger):
        announce(bench, transaction.instant, base_name("a", TOKEN, transaction.instant))
    report = younger.doomed(TOUCHES_A)
    assert report is not None
    assert report.groups == groups("a")
    assert older.doomed(TOUCHES_A) is None


def test_markers_are_looked_at_only_if_asked_for() -> None:
    bench = Bench(OCC)
    older, younger = bench.begin(bench.writer()), bench.begin(bench.writer())
    announce(bench, older.instant, base_name("a", TOKEN, older.instant))
    assert younger.doomed(TOUCHES_A) is None


def test_markers_of_the_dead_doom_nobody() -> None:
    bench = Bench(EARLY)
    older = bench.begin(bench.writer())
    announce(bench, older.instant, base_name("a", TOKEN, older.instant))
    bench.clock.advance(60_000 * 11)
    younger = bench.begin(bench.writer())
    assert younger.doomed(TOUCHES_A) is None


def test_a_partition_with_an_underscore_is_not_cut_there() -> None:
    bench = Bench(EARLY)
    older, younger = bench.begin(bench.writer()), bench.begin(bench.writer())
    announce(bench, older.instant, base_name("a", TOKEN, older.instant), "day_1")
    assert younger.doomed(Footprint(Deed.UPSERT, groups("day_2/a"))) is None
    assert younger.doomed(Footprint(Deed.UPSERT, groups("day_1/a"))) is not None


def test_log_files_and_base_files_of_one_group_meet() -> None:
    log = Marker("p", log_name("a", "20260101000000000", TOKEN), IoType.CREATE)
    base = Marker("p", base_name("a", TOKEN, "20260101000000000"), IoType.MERGE)
    assert group_of(log) == group_of(base) == ("p", "a")
