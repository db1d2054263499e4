"""rollback, savepoint, restore, ttl and services cancel, on tables in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.ops.program import Ended, Program
from tidelock.tableservice.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
DAYS = "hoodie.partition.ttl.strategy.days.retain"


def rows(*ids: int, day: str = "mon", ts: int = 1) -> pa.Table:
    return pa.table([list(ids), [day] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "orders"
    with Table.create(
        str(place),
        SCHEMA,
        key="id",
        partition_by="day",
        ordering="ts",
        type="MERGE_ON_READ",
        options=QUIET,
    ) as table:
        table.insert(rows(1, 2))
        table.upsert(rows(1, ts=2))
    return place


def told(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err + ended.out
    found: dict[str, Any] = json.loads(ended.out)
    return found


def ids(folder: Path) -> list[int]:
    with Table.open(str(folder)) as table:
        return sorted(table.read(columns=["id"])["id"].to_pylist())


def write(folder: Path, *numbers: int) -> str:
    with Table.open(str(folder), options=QUIET) as table:
        return table.upsert(rows(*numbers, ts=3)).instant


def test_a_savepoint_is_made_shown_restored_and_deleted(tidelock: Program, folder: Path) -> None:
    place = str(folder)
    (saved,) = told(
        tidelock("savepoint", place, "create", "--comment", "why", "--by", "me", "--json")
    )["savepoints"]
    assert (saved["by"], saved["comment"]) == ("me", "why")
    assert saved["instant"] in tidelock("savepoint", place, "list").out
    later = write(folder, 3, 4)
    dry = told(tidelock("restore", place, "run", "--to", saved["instant"], "--dry-run", "--json"))
    assert dry["would_remove"] == [later]
    assert ids(folder) == [1, 2, 3, 4]
    done = told(tidelock("restore", place, "run", "--to", saved["instant"], "--json"))
    assert [each["instant"] for each in done["executed"][0]["undone"]] == [later]
    assert ids(folder) == [1, 2]
    assert "nothing to do" in tidelock("restore", place, "run", "--to", saved["instant"]).out
    assert told(tidelock("savepoint", place, "delete", saved["instant"], "--json"))["deleted"]
    assert told(tidelock("savepoint", place, "list", "--json"))["savepoints"] == []


def test_a_restore_may_be_scheduled_by_one_and_executed_by_another(
    tidelock: Program, folder: Path
) -> None:
    place = str(folder)
    (saved,) = told(tidelock("savepoint", place, "create", "--json"))["savepoints"]
    write(folder, 3)
    (planned,) = told(tidelock("restore", place, "schedule", "--to", saved["instant"], "--json"))[
        "scheduled"
    ]
    (waiting,) = told(tidelock("services", place, "--json"))["services"]
    assert (waiting["instant"], waiting["service"]) == (planned, "restore")
    assert tidelock("services", place, "cancel", planned).code == 4
    (done,) = told(tidelock("restore", place, "execute", "--json"))["executed"]
    assert done["instant"] == planned
    assert ids(folder) == [1, 2]


def test_a_restore_says_what_is_in_its_way(tidelock: Program, folder: Path) -> None:
    place = str(folder)
    assert tidelock("restore", place, "run").code == 2
    ended = tidelock("restore", place, "run", "--to", "20200101000000000")
    assert ended.code != 0
    assert "20200101000000000" in ended.err


def test_the_last_commit_is_rolled_back(tidelock: Program, folder: Path) -> None:
    place = str(folder)
    first, second = write(folder, 3), write(folder, 4)
    assert tidelock("rollback", place, "run", first).code == 4
    dry = told(tidelock("rollback", place, "run", second, "--dry-run", "--json"))
    assert dry["would_remove"] == [second]
    (done,) = told(tidelock("rollback", place, "run", second, "--json"))["executed"]
    assert done["undone"][0]["instant"] == second
    assert ids(folder) == [1, 2, 3]
    assert "nothing to do" in tidelock("rollback", place, "run").out


def test_what_a_dead_writer_left_is_rolled_back(tidelock: Program, folder: Path) -> None:
    dead = folder / ".hoodie/timeline/20200101000000000.deltacommit.requested"
    dead.touch()
    (planned,) = told(tidelock("rollback", str(folder), "schedule", "--json"))["scheduled"]
    assert dead.exists()
    (done,) = told(tidelock("rollback", str(folder), "execute", planned, "--json"))["executed"]
    assert done["undone"][0]["instant"] == "20200101000000000"
    assert not dead.exists()


def test_partitions_expire_only_with_a_limit(tidelock: Program, folder: Path) -> None:
    place = str(folder)
    ended = tidelock("ttl", place, "run")
    assert ended.code != 0
    assert DAYS in ended.err
    dry = told(tidelock("ttl", place, "run", "-O", f"{DAYS}=1", "--dry-run", "--json"))
    assert dry["would_remove"] == []
    done = told(tidelock("ttl", place, "run", "-O", f"{DAYS}=1", "--json"))
    assert done["partitions"] == []


def test_a_broken_plan_is_cancelled(tidelock: Program, folder: Path) -> None:
    place = str(folder)
    planned = told(tidelock("compact", place, "schedule", "--json"))["scheduled"]
    assert tidelock("services", place, "cancel").code == 2
    assert tidelock("services", place, "cancel", planned).code == 4
    (folder / f".hoodie/timeline/{planned}.compaction.requested").write_bytes(b"")
    said = told(tidelock("services", place, "cancel", planned, "--json"))
    assert "empty" in said["fault"]
    assert told(tidelock("services", place, "--json"))["services"] == []
    assert ids(folder) == [1, 2]
