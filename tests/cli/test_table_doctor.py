"""`doctor` reports what blocks a table and how to fix it, and repairs only what is safe."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelock as tl
from tests.cli.program import Program, java_record, now_ms, plant
from tests.cli.scene import OPTIONS, create_table, rows
from tests.unit.operations.external import set_properties, with_metadata_table, without_ledger
from tidelock.core.errors import Unsupported
from tidelock.hudi.properties import TIMEZONE
from tidelock.hudi.timeline.instant import Action, format_time
from tidelock.hudi.timeline.metadata import CommitMetadata, OperationType, encode
from tidelock.inspect.findings import DoctorFinding, Level
from tidelock.inspect.table_doctor import check_settings, check_writers
from tidelock.services.runner import compaction
from tidelock.txn.entries import Commit, InlineContent, LedgerEntry
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.heartbeats import Heartbeat, HeartbeatStatus
from tidelock.txn.queueing import WAITING_FOLDER, LockWaiter
from tidelock.txn.state import LedgerState
from tidelock.txn.transaction_manager import TransactionManager

STORAGE = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
OCC = "OPTIMISTIC_CONCURRENCY_CONTROL"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tl.Table]:
    with create_table(tmp_path / "orders", name="orders") as found:
        found.upsert(rows(1, 2, ts=1, day="d"))
        yield found


def folder(table: tl.Table) -> Path:
    return Path(table.uri.removeprefix("file://"))


def findings(tidelock: Program, table: tl.Table, *args: str) -> tuple[int, list[dict[str, Any]]]:
    ended = tidelock("doctor", table.uri, "--json", *args)
    return ended.code, [f for f in ended.facts["findings"] if f["level"] != "fine"]


def age(path: Path) -> None:
    long_ago = time.time() - 7_200
    os.utime(path, (long_ago, long_ago))


def abandoned_write(table: tl.Table) -> str:
    """Begin a write whose heartbeat has stopped."""
    with TransactionManager(table._store, OPTIONS) as transactions:
        instant = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT).instant
    age(folder(table) / ".hoodie/.heartbeat" / instant)
    return instant


def test_healthy_table_has_no_findings(tidelock: Program, table: tl.Table) -> None:
    assert findings(tidelock, table) == (0, [])
    output = tidelock("doctor", table.uri).out
    assert "PROBLEM" not in output
    assert "timeline, files and ledger agree" in output


def about(found: list[dict[str, Any]], word: str) -> list[str]:
    return [f"{each['message']} {each['advice']}" for each in found if word in each["message"]]


def test_table_in_local_time_is_reported_as_refused(tidelock: Program, table: tl.Table) -> None:
    set_properties(folder(table), {TIMEZONE: "LOCAL"})
    code, found = findings(tidelock, table)
    assert code == 10
    (output,) = about(found, "local time")
    assert [each["about"] for each in found] == ["time zone"]
    assert "tidelock refuses every write and service" in output
    assert "tidelock.timeline.timezone.policy=utc" in output


def test_metadata_table_is_reported_as_refused(tidelock: Program, table: tl.Table) -> None:
    with_metadata_table(folder(table))
    code, found = findings(tidelock, table)
    assert code == 10
    (output,) = about(found, "has a metadata table")
    assert "tidelock.metadata.table.policy=disable" in output


def test_java_commits_and_the_missing_lock_are_reported(tidelock: Program, table: tl.Table) -> None:
    without_ledger(folder(table), lambda java: java.upsert(rows(1, ts=2, day="d")))
    code, found = findings(tidelock, table)
    assert code == 1
    (unknown,) = about(found, "not in the ledger yet")
    assert "1 commit of external writers" in unknown
    (unlocked,) = about(found, "take no lock")
    assert "hoodie.write.lock.provider=" in unlocked
    table.upsert(rows(1, ts=3, day="d"))
    code, found = findings(tidelock, table)
    assert (code, len(about(found, "take no lock"))) == (1, 1)
    assert not about(found, "not in the ledger yet")


@pytest.mark.parametrize("hours", [-8, 5.5], ids=["west", "east"])
def test_java_writer_in_another_time_zone_is_reported(
    tidelock: Program, table: tl.Table, hours: float
) -> None:
    now = time.time_ns() // 1_000_000
    there = format_time(now + int(hours * 3_600_000))
    (folder(table) / f".hoodie/timeline/{there}_{there}.deltacommit").write_bytes(
        encode(CommitMetadata())
    )
    _, found = findings(tidelock, table)
    (output,) = about(found, "another time zone")
    assert [each["about"] for each in found].count("time zone") == 1
    assert there in output
    assert "-Duser.timezone=UTC" in output
    with pytest.raises(Unsupported, match="another time zone"):
        table.upsert(rows(1, ts=3, day="d"))


def test_each_commit_in_another_time_zone_is_reported_once(
    tidelock: Program, table: tl.Table
) -> None:
    now = time.time_ns() // 1_000_000
    for minutes in (30, 15):
        there = format_time(now - (8 * 60 + minutes) * 60_000)
        path = folder(table) / f".hoodie/timeline/{there}_{there}.deltacommit"
        path.write_bytes(encode(CommitMetadata()))
    _, found = findings(tidelock, table)
    (output,) = about(found, "another time zone")
    assert "2 commits" in output
    assert [each["about"] for each in found].count("time zone") == 1


def test_dead_writer_is_reported_and_rolled_back(tidelock: Program, table: tl.Table) -> None:
    instant = abandoned_write(table)
    code, (found,) = findings(tidelock, table)
    assert code == 0
    assert instant in found["message"]
    assert "--fix" in found["advice"]
    fixed = tidelock("doctor", table.uri, "--json", "--fix").facts
    assert f"rolled back {instant}" in fixed["fixed"]
    assert findings(tidelock, table) == (0, [])


def test_fix_leaves_active_writers_alone(tidelock: Program, table: tl.Table) -> None:
    dead = abandoned_write(table)
    with TransactionManager(table._store, OPTIONS) as transactions:
        running = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        fixed = tidelock("doctor", table.uri, "--json", "--fix").facts["fixed"]
        assert f"rolled back {dead}" in fixed
        assert f"did not touch {running.instant}: its writer is alive" in fixed
        running.rollback()


def test_unreadable_plan_is_a_problem(tidelock: Program, table: tl.Table) -> None:
    table.upsert(rows(1, ts=2, day="d"))
    planned = compaction(table.writer(), {}).schedule()
    request = folder(table) / f".hoodie/timeline/{planned}.compaction.requested"
    request.write_bytes(b"no plan")
    code, found = findings(tidelock, table)
    assert code == 7
    assert any(f"the plan {planned} cannot be read" in each["message"] for each in found)


def test_old_plan_shows_what_it_blocks_and_who_can_execute_it(
    tidelock: Program, table: tl.Table
) -> None:
    from tidelock.inspect.table_doctor import check_plans
    from tidelock.services.pending import PendingService
    from tidelock.txn.writers import ActiveWriter

    group = ("d", "f-0")
    plan = PendingService(
        "20260101000000000", "compaction", "requested", 2 * 3_600_000, True, False, 0, "", False,
        None, "", 0, frozenset({group}),
    )  # fmt: skip
    writer = ActiveWriter("2", "deltacommit", "inflight", True, 1, groups=frozenset({group}))
    (found,) = check_plans([plan], [writer])
    assert found.level is Level.NOTE
    assert "it reserves 1 file group: d/f-0; 1 running write there" in found.message
    assert "tidelock compact" in found.advice


def test_files_of_a_rolled_back_write_are_orphans_and_deleted(
    tidelock: Program, table: tl.Table
) -> None:
    with TransactionManager(table._store, OPTIONS) as transactions:
        undone = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        undone.rollback()
    late = folder(table) / f"d/late-0_0-1-1_{undone.instant}.parquet"
    late.write_bytes(b"written by a zombie")
    _, (found,) = findings(tidelock, table)
    assert late.name in found["message"]
    assert "deleted 1 unused objects" in str(tidelock("doctor", table.uri, "--json", "--fix").facts)
    assert not late.exists()


def test_markers_and_heartbeats_of_completed_writes_are_deleted(
    tidelock: Program, table: tl.Table
) -> None:
    done = table.upsert(rows(3, ts=1, day="d")).instant
    beat = plant(folder(table), b"", name=f".hoodie/.heartbeat/{done}")
    marker = plant(folder(table), b"", name=f".hoodie/.temp/{done}/d/f.parquet.marker.CREATE")
    age(beat)
    _, found = findings(tidelock, table)
    assert {each["about"] for each in found} == {"leftovers"}
    tidelock("doctor", table.uri, "--fix")
    assert not beat.exists()
    assert not marker.exists()


def test_unpublished_commit_is_published(tidelock: Program, table: tl.Table) -> None:
    done = table.upsert(rows(3, ts=1, day="d"))
    name = f".hoodie/timeline/{done.instant}_{done.completion}.deltacommit"
    (folder(table) / name).unlink()
    _, found = findings(tidelock, table)
    assert any("not on the timeline yet" in each["message"] for each in found)
    tidelock("doctor", table.uri, "--fix")
    assert (folder(table) / name).exists()


def test_dangling_lock_is_distinguished_from_a_corrupt_one(
    tidelock: Program, table: tl.Table
) -> None:
    plant(folder(table), java_record(expired=False, valid_until_epoch_ms=now_ms() - 600_000))
    code, (found,) = findings(tidelock, table)
    assert code == 0
    assert "never released it" in found["message"]
    plant(folder(table), b"no lock")
    code, found_broken = findings(tidelock, table)
    assert code == 7
    assert found_broken[0]["about"] == "record"
    assert tidelock("doctor", table.uri, "--fix").code == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hoodie.write.lock.storage.renew.interval.secs": "60"}, "at least 10 times"),
        ({"hoodie.write.concurrency.mode": OCC, "hoodie.clean.failed.writes.policy": "EAGER"},
         "EAGER"),
        ({"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}, "bucket index"),
        ({"hoodie.write.lock.provider": f"{STORAGE.rpartition('.')[0]}.InProcessLockProvider",
          "hoodie.write.concurrency.mode": OCC}, "threads of one process"),
        ({"hoodie.write.lock.provider": "Nothing", "hoodie.write.concurrency.mode": OCC},
         "unknown lock provider"),
        ({"hoodie.write.lock.provdier": STORAGE}, "provdier"),
        ({"hoodie.write.lock.provider": STORAGE}, "Hudi ignores the lock provider"),
        ({"hoodie.populate.meta.fields": "false"}, "rows are looked up by their meta columns"),
    ],
)  # fmt: skip
def test_configuration_error_is_reported_with_its_fix(
    table: tl.Table, settings: dict[str, object], says: str
) -> None:
    found = [f for f in check_settings(settings, table.properties) if f.level is not Level.OK]
    assert len(found) == 1
    assert says in found[0].message
    assert found[0].advice


def test_consistent_settings_have_no_findings(tidelock: Program, table: tl.Table) -> None:
    props = ("--prop", f"hoodie.write.lock.provider={STORAGE}")
    mode = ("--prop", f"hoodie.write.concurrency.mode={OCC}")
    assert findings(tidelock, table, *props, *mode) == (0, [])


NOW = 1_800_000_000_000
BEAT = Heartbeat("me", 1, "n", 60_000, 10, NOW, host="here", pid=1, lock="", mode=OCC)


def lock_findings(
    *, settings: dict[str, object] | None = None, state: LedgerState | None = None, **more: Any
) -> list[DoctorFinding]:
    found = check_writers(
        settings or {},
        state or LedgerState(),
        more.get("entries", ()),
        more.get("heartbeats", {}),
        NOW,
    )
    return [each for each in found if each.level is not Level.OK]


def heartbeats(*beats: Heartbeat) -> dict[str, HeartbeatStatus]:
    return {str(at): HeartbeatStatus(str(at), NOW, beat) for at, beat in enumerate(beats)}


def commit(at: int, owner: str, *, token: int = 0) -> LedgerEntry:
    time_ = format_time(NOW - 1_000 + at)
    fact = Commit(
        time_, Action.COMMIT, 1, Footprint(CommitKind.UPSERT), InlineContent(b""), token=token
    )
    return LedgerEntry(at, time_, owner, f"n{at}", "", 0, fact)


def test_writers_with_different_locks_are_a_problem() -> None:
    alike = heartbeats(BEAT, BEAT)
    assert lock_findings(heartbeats=alike) == []
    other = replace(BEAT, lock="ZookeeperLockProvider", host="there")
    (found,) = lock_findings(heartbeats=heartbeats(BEAT, other))
    assert found.level is Level.PROBLEM
    assert "no lock: here:1" in found.message
    assert "ZookeeperLockProvider: there:1" in found.message


def test_single_writer_mode_with_other_writers_is_a_problem() -> None:
    alone = replace(BEAT, mode="SINGLE_WRITER")
    assert lock_findings(heartbeats=heartbeats(alone)) == []
    (found,) = lock_findings(heartbeats=heartbeats(alone, BEAT))
    assert "runs as SINGLE_WRITER with other writers active" in found.message


def test_lock_used_by_only_some_writers_is_noted() -> None:
    (found,) = lock_findings(entries=[commit(1, "a", token=4), commit(2, "b")])
    assert found.level is Level.NOTE
    assert "1 did not: b" in found.message


def test_java_writers_without_our_lock_are_a_problem() -> None:
    state = LedgerState(external=True)
    assert lock_findings(state=state, entries=[commit(1, "a", token=1)]) == []
    (found,) = lock_findings(state=state, entries=[commit(1, "a")])
    assert STORAGE in found.advice


def test_eager_cleaning_with_many_writers_is_a_problem() -> None:
    eager: dict[str, object] = {"hoodie.clean.failed.writes.policy": "EAGER"}
    assert lock_findings(settings=eager, entries=[commit(1, "a")]) == []
    (found,) = lock_findings(settings=eager, entries=[commit(1, "a"), commit(2, "b")])
    assert found.advice == "set hoodie.clean.failed.writes.policy=LAZY"


def test_ledger_ahead_of_the_clock_is_a_problem() -> None:
    (found,) = lock_findings(state=LedgerState(position=1, time=format_time(NOW + 60_000)))
    assert found.about == "clock"
    assert "1 min 0 s ahead" in found.message


def waits_for(table: tl.Table, owner: str, pid: int, *, waited_ms: int) -> None:
    output = LockWaiter(owner, "north", pid, now_ms() - waited_ms, now_ms() + 600_000)
    path = folder(table) / WAITING_FOLDER / owner
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "owner": output.owner,
                "host": output.host,
                "pid": output.pid,
                "since": output.since_epoch_ms,
                "until": output.until_epoch_ms,
            }
        )
    )


def test_lock_waiters_are_reported_with_the_holder(tidelock: Program, table: tl.Table) -> None:
    settings = {**OPTIONS, "hoodie.write.lock.provider": STORAGE}
    waits_for(table, "ben", 42, waited_ms=36_000_000)
    waits_for(table, "cleo", 43, waited_ms=2_000)
    with TransactionManager(table._store, settings, owner="ada") as transactions:
        transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        with tl.lock(table.uri) as held:
            ended = tidelock("doctor", table.uri, "--json")
            found = {f["message"]: f for f in ended.facts["findings"] if f["about"] == "waiting"}
            assert ended.code == 0
            (long, short) = found
            assert "ben (process 42 on north) has waited for the lock for 10 h 0 min" in long
            assert f"{held.owner} holds it, renewed" in long
            assert found[long]["level"] == "note"
            assert "ada (process" in found[long]["advice"]
            assert "force-release" in found[long]["advice"]
            assert "cleo (process 43 on north) has waited for the lock for" in short
            assert found[short]["level"] == "fine"
    assert any(
        "it is not held" in f["message"]
        for f in tidelock("doctor", table.uri, "--json").facts["findings"]
    )


def test_lock_hold_times_are_reported_from_the_audit_log(
    tidelock: Program, table: tl.Table
) -> None:
    assert tidelock("lock", "audit", table.uri, "enable").code == 0
    waits_for(table, "ben", 42, waited_ms=90_000)
    with tl.lock(table.uri) as held:
        (output,) = (
            f["message"]
            for f in tidelock("doctor", table.uri, "--json").facts["findings"]
            if f["about"] == "waiting"
        )
    assert f"{held.owner} has held it for" in output


def test_other_lock_providers_are_asked_for_the_holder(tidelock: Program, table: tl.Table) -> None:
    provider = f"{STORAGE.rpartition('.')[0]}.FileSystemBasedLockProvider"
    settings = (f"hoodie.write.lock.provider={provider}", f"hoodie.write.concurrency.mode={OCC}")
    arguments = [word for setting in settings for word in ("--prop", setting)]
    ended = tidelock("doctor", table.uri, "--json", *arguments)
    output = {f["about"]: f["message"] for f in ended.facts["findings"]}
    assert output["lock"] == "FileSystemBasedLockProvider: it is not held"
    assert output["waiting"] == "no writer reports that it waits for the lock"
    elsewhere = f"{STORAGE.rpartition('.')[0]}.ZookeeperBasedLockProvider"
    ended = tidelock(
        "doctor", table.uri, "--json", "--prop", f"hoodie.write.lock.provider={elsewhere}"
    )
    output = {f["about"]: f["message"] for f in ended.facts["findings"]}
    assert "ZookeeperBasedLockProvider: the holder could not be read" in output["lock"]
