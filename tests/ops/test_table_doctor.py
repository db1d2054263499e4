"""`doctor`: what blocks a table is named with its fix, and mended only where that is safe."""

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
from tests.ops.program import Program, java_record, now_ms, plant
from tests.ops.scene import OPTIONS, made, rows
from tests.unit.operation.foreign import set_properties, with_metadata_table, without_ledger
from tidelock.base.errors import Unsupported
from tidelock.ops.doctor.findings import Finding, Level
from tidelock.ops.doctor.settings_checks import check_settings, check_writers
from tidelock.table.properties import TIMEZONE
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, format_time
from tidelock.table.timeline.metadata import CommitMetadata, OperationType
from tidelock.tableservice.running import compaction
from tidelock.txn.content import Inline
from tidelock.txn.entry import Commit, Entry
from tidelock.txn.fold import Fold
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.heartbeat import Heartbeat, Pulse
from tidelock.txn.transactions import Transactions
from tidelock.txn.waits import WAITING_FOLDER, Waiter

STORAGE = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
OCC = "OPTIMISTIC_CONCURRENCY_CONTROL"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tl.Table]:
    with made(tmp_path / "orders", name="orders") as found:
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


def left_behind(table: tl.Table) -> str:
    """Begin a write whose writer is not heard of any more."""
    with Transactions(table._store, OPTIONS) as transactions:
        instant = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT).instant
    age(folder(table) / ".hoodie/.heartbeat" / instant)
    return instant


def test_a_sound_table_is_sound(tidelock: Program, table: tl.Table) -> None:
    assert findings(tidelock, table) == (0, [])
    said = tidelock("doctor", table.uri).out
    assert "PROBLEM" not in said
    assert "timeline, files and ledger agree" in said


def about(found: list[dict[str, Any]], word: str) -> list[str]:
    return [f"{each['message']} {each['advice']}" for each in found if word in each["message"]]


def test_a_table_in_local_time_is_said_to_be_refused(tidelock: Program, table: tl.Table) -> None:
    set_properties(folder(table), {TIMEZONE: "LOCAL"})
    code, found = findings(tidelock, table)
    assert code == 10
    (said,) = about(found, "local time")
    assert [each["about"] for each in found] == ["time zone"]
    assert "every write and service is refused" in said
    assert "tidelock.timeline.timezone.policy=utc" in said


def test_a_metadata_table_is_said_to_be_refused(tidelock: Program, table: tl.Table) -> None:
    with_metadata_table(folder(table))
    code, found = findings(tidelock, table)
    assert code == 10
    (said,) = about(found, "has a metadata table")
    assert "tidelock.metadata.table.policy=disable" in said


def test_commits_of_java_s_and_the_missing_lock_are_named(
    tidelock: Program, table: tl.Table
) -> None:
    without_ledger(folder(table), lambda java: java.upsert(rows(1, ts=2, day="d")))
    code, found = findings(tidelock, table)
    assert code == 1
    (unknown,) = about(found, "not in it yet")
    assert "1 commit of writers that keep no ledger" in unknown
    (unlocked,) = about(found, "take no lock")
    assert "hoodie.write.lock.provider=" in unlocked
    table.upsert(rows(1, ts=3, day="d"))
    code, found = findings(tidelock, table)
    assert (code, len(about(found, "take no lock"))) == (1, 1)
    assert not about(found, "not in it yet")


@pytest.mark.parametrize("hours", [-8, 5.5], ids=["west", "east"])
def test_a_java_writer_in_another_zone_is_named(
    tidelock: Program, table: tl.Table, hours: float
) -> None:
    now = time.time_ns() // 1_000_000
    there = format_time(now + int(hours * 3_600_000))
    (folder(table) / f".hoodie/timeline/{there}_{there}.deltacommit").write_bytes(
        encode(CommitMetadata())
    )
    _, found = findings(tidelock, table)
    (said,) = about(found, "another time zone")
    assert [each["about"] for each in found].count("time zone") == 1
    assert there in said
    assert "-Duser.timezone=UTC" in said
    with pytest.raises(Unsupported, match="another time zone"):
        table.upsert(rows(1, ts=3, day="d"))


def test_every_commit_of_another_zone_is_named_once(tidelock: Program, table: tl.Table) -> None:
    now = time.time_ns() // 1_000_000
    for minutes in (30, 15):
        there = format_time(now - (8 * 60 + minutes) * 60_000)
        path = folder(table) / f".hoodie/timeline/{there}_{there}.deltacommit"
        path.write_bytes(encode(CommitMetadata()))
    _, found = findings(tidelock, table)
    (said,) = about(found, "another time zone")
    assert "2 commits" in said
    assert [each["about"] for each in found].count("time zone") == 1


def test_a_dead_writer_is_named_and_rolled_back(tidelock: Program, table: tl.Table) -> None:
    instant = left_behind(table)
    code, (found,) = findings(tidelock, table)
    assert code == 0
    assert instant in found["message"]
    assert "--fix" in found["advice"]
    fixed = tidelock("doctor", table.uri, "--json", "--fix").facts
    assert f"rolled back {instant}" in fixed["fixed"]
    assert findings(tidelock, table) == (0, [])


def test_a_writer_at_work_is_left_alone_by_the_fix(tidelock: Program, table: tl.Table) -> None:
    dead = left_behind(table)
    with Transactions(table._store, OPTIONS) as transactions:
        running = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        fixed = tidelock("doctor", table.uri, "--json", "--fix").facts["fixed"]
        assert f"rolled back {dead}" in fixed
        assert f"left {running.instant} alone: it is alive" in fixed
        running.rollback()


def test_a_plan_that_cannot_be_read_is_a_problem(tidelock: Program, table: tl.Table) -> None:
    table.upsert(rows(1, ts=2, day="d"))
    planned = compaction(table.writer(), {}).schedule()
    request = folder(table) / f".hoodie/timeline/{planned}.compaction.requested"
    request.write_bytes(b"no plan")
    code, found = findings(tidelock, table)
    assert code == 7
    assert any(f"the plan {planned} cannot be read" in each["message"] for each in found)


def test_an_old_plan_says_what_it_holds_and_who_may_execute_it(
    tidelock: Program, table: tl.Table
) -> None:
    from tidelock.ops.doctor.table_checks import check_plans
    from tidelock.tableservice.overview import PendingService
    from tidelock.txn.writers import Writer

    group = ("d", "f-0")
    plan = PendingService(
        "20260101000000000", "compaction", "requested", 2 * 3_600_000, True, False, 0, "", False,
        None, "", 0, frozenset({group}),
    )  # fmt: skip
    writer = Writer("2", "deltacommit", "inflight", True, 1, groups=frozenset({group}))
    (found,) = check_plans([plan], [writer])
    assert found.level is Level.NOTE
    assert "it holds 1 file group: d/f-0; 1 running write there" in found.says
    assert "tidelock compact" in found.advice


def test_files_of_an_undone_write_are_orphans_and_swept(tidelock: Program, table: tl.Table) -> None:
    with Transactions(table._store, OPTIONS) as transactions:
        undone = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        undone.rollback()
    late = folder(table) / f"d/late-0_0-1-1_{undone.instant}.parquet"
    late.write_bytes(b"written by a zombie")
    _, (found,) = findings(tidelock, table)
    assert late.name in found["message"]
    assert "deleted 1 objects" in str(tidelock("doctor", table.uri, "--json", "--fix").facts)
    assert not late.exists()


def test_markers_and_heartbeats_of_completed_writes_are_swept(
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


def test_a_commit_that_is_not_on_the_timeline_yet_is_published(
    tidelock: Program, table: tl.Table
) -> None:
    done = table.upsert(rows(3, ts=1, day="d"))
    name = f".hoodie/timeline/{done.instant}_{done.completion}.deltacommit"
    (folder(table) / name).unlink()
    _, found = findings(tidelock, table)
    assert any("not on the timeline yet" in each["message"] for each in found)
    tidelock("doctor", table.uri, "--fix")
    assert (folder(table) / name).exists()


def test_a_dangling_lock_and_a_broken_one_are_told_apart(
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
         "is no lock provider"),
        ({"hoodie.write.lock.provdier": STORAGE}, "provdier"),
        ({"hoodie.write.lock.provider": STORAGE}, "Hudi takes no lock then"),
        ({"hoodie.populate.meta.fields": "false"}, "rows need their meta columns"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_settings_is_named_with_its_fix(
    table: tl.Table, settings: dict[str, object], says: str
) -> None:
    found = [f for f in check_settings(settings, table.properties) if f.level is not Level.FINE]
    assert len(found) == 1
    assert says in found[0].says
    assert found[0].advice


def test_settings_that_go_together_are_fine(tidelock: Program, table: tl.Table) -> None:
    props = ("--prop", f"hoodie.write.lock.provider={STORAGE}")
    mode = ("--prop", f"hoodie.write.concurrency.mode={OCC}")
    assert findings(tidelock, table, *props, *mode) == (0, [])


NOW = 1_800_000_000_000
BEAT = Heartbeat("me", 1, "n", 60_000, 10, NOW, host="here", pid=1, lock="", mode=OCC)


def judged(
    *, settings: dict[str, object] | None = None, fold: Fold | None = None, **more: Any
) -> list[Finding]:
    found = check_writers(
        settings or {}, fold or Fold(), more.get("entries", ()), more.get("pulses", {}), NOW
    )
    return [each for each in found if each.level is not Level.FINE]


def pulses(*beats: Heartbeat) -> dict[str, Pulse]:
    return {str(at): Pulse(str(at), NOW, beat) for at, beat in enumerate(beats)}


def commit(at: int, owner: str, *, token: int = 0) -> Entry:
    time_ = format_time(NOW - 1_000 + at)
    fact = Commit(time_, Action.COMMIT, 1, Footprint(Deed.UPSERT), Inline(b""), token=token)
    return Entry(at, time_, owner, f"n{at}", "", 0, fact)


def test_writers_with_different_locks_keep_nobody_out() -> None:
    alike = pulses(BEAT, BEAT)
    assert judged(pulses=alike) == []
    other = replace(BEAT, lock="ZookeeperLockProvider", host="there")
    (found,) = judged(pulses=pulses(BEAT, other))
    assert found.level is Level.PROBLEM
    assert "no lock: here:1" in found.says
    assert "ZookeeperLockProvider: there:1" in found.says


def test_a_single_writer_beside_others_is_a_problem() -> None:
    alone = replace(BEAT, mode="SINGLE_WRITER")
    assert judged(pulses=pulses(alone)) == []
    (found,) = judged(pulses=pulses(alone, BEAT))
    assert "runs as SINGLE_WRITER beside other writers" in found.says


def test_writers_of_which_only_some_take_the_lock_are_noted() -> None:
    (found,) = judged(entries=[commit(1, "a", token=4), commit(2, "b")])
    assert found.level is Level.NOTE
    assert "1 did not: b" in found.says


def test_java_writers_without_our_lock_are_a_problem() -> None:
    fold = Fold(foreign=True)
    assert judged(fold=fold, entries=[commit(1, "a", token=1)]) == []
    (found,) = judged(fold=fold, entries=[commit(1, "a")])
    assert STORAGE in found.advice


def test_eager_clean_up_with_many_writers_is_a_problem() -> None:
    eager: dict[str, object] = {"hoodie.clean.failed.writes.policy": "EAGER"}
    assert judged(settings=eager, entries=[commit(1, "a")]) == []
    (found,) = judged(settings=eager, entries=[commit(1, "a"), commit(2, "b")])
    assert found.advice == "set hoodie.clean.failed.writes.policy=LAZY"


def test_a_ledger_ahead_of_the_clock_is_a_problem() -> None:
    (found,) = judged(fold=Fold(position=1, time=format_time(NOW + 60_000)))
    assert found.about == "clock"
    assert "1 min 0 s ahead" in found.says


def waits_for(table: tl.Table, owner: str, pid: int, *, waited_ms: int) -> None:
    said = Waiter(owner, "north", pid, now_ms() - waited_ms, now_ms() + 600_000)
    path = folder(table) / WAITING_FOLDER / owner
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "owner": said.owner,
                "host": said.host,
                "pid": said.pid,
                "since": said.since_epoch_ms,
                "until": said.until_epoch_ms,
            }
        )
    )


def test_who_waits_for_the_lock_is_named_with_who_holds_it(
    tidelock: Program, table: tl.Table
) -> None:
    settings = {**OPTIONS, "hoodie.write.lock.provider": STORAGE}
    waits_for(table, "ben", 42, waited_ms=36_000_000)
    waits_for(table, "cleo", 43, waited_ms=2_000)
    with Transactions(table._store, settings, owner="ada") as transactions:
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
        "nobody holds it at this moment" in f["message"]
        for f in tidelock("doctor", table.uri, "--json").facts["findings"]
    )


def test_how_long_the_lock_is_held_is_told_where_it_is_audited(
    tidelock: Program, table: tl.Table
) -> None:
    assert tidelock("lock", "audit", table.uri, "enable").code == 0
    waits_for(table, "ben", 42, waited_ms=90_000)
    with tl.lock(table.uri) as held:
        (said,) = (
            f["message"]
            for f in tidelock("doctor", table.uri, "--json").facts["findings"]
            if f["about"] == "waiting"
        )
    assert f"{held.owner} has held it for" in said


def test_a_lock_of_another_kind_is_asked_who_holds_it(tidelock: Program, table: tl.Table) -> None:
    provider = f"{STORAGE.rpartition('.')[0]}.FileSystemBasedLockProvider"
    settings = (f"hoodie.write.lock.provider={provider}", f"hoodie.write.concurrency.mode={OCC}")
    told = [word for setting in settings for word in ("--prop", setting)]
    ended = tidelock("doctor", table.uri, "--json", *told)
    said = {f["about"]: f["message"] for f in ended.facts["findings"]}
    assert said["lock"] == "FileSystemBasedLockProvider: nobody holds it at this moment"
    assert said["waiting"] == "nobody says that it waits for the lock"
    elsewhere = f"{STORAGE.rpartition('.')[0]}.ZookeeperBasedLockProvider"
    ended = tidelock(
        "doctor", table.uri, "--json", "--prop", f"hoodie.write.lock.provider={elsewhere}"
    )
    said = {f["about"]: f["message"] for f in ended.facts["findings"]}
    assert "ZookeeperBasedLockProvider could not be asked" in said["lock"]
