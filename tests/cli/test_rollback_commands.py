"""`rollback`, `savepoint`, `restore`, `ttl` and `services cancel`, on tables in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.program import Ended, Program
from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
DAYS = "hoodie.partition.ttl.strategy.days.retain"


def rows(*ids: int, day: str = "mon", ts: int = 1) -> pa.Table:
    return pa.table([list(ids), [day] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    with Table.create(
        str(path),
        SCHEMA,
        key="id",
        partition_by="day",
        ordering="ts",
        type="MERGE_ON_READ",
        options=QUIET,
    ) as table:
        table.insert(rows(1, 2))
        table.upsert(rows(1, ts=2))
    return path


def facts(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err + ended.out
    found: dict[str, Any] = json.loads(ended.out)
    return found


def ids(folder: Path) -> list[int]:
    with Table.open(str(folder)) as table:
        return sorted(table.read(columns=["id"])["id"].to_pylist())


def write(folder: Path, *numbers: int) -> str:
    with Table.open(str(folder), options=QUIET) as table:
        return table.upsert(rows(*numbers, ts=3)).instant


def test_savepoint_is_created_shown_restored_and_deleted(tidelock: Program, folder: Path) -> None:
    path = str(folder)
    (saved,) = facts(
        tidelock("savepoint", path, "create", "--comment", "why", "--by", "me", "--json")
    )["savepoints"]
    assert (saved["by"], saved["comment"]) == ("me", "why")
    assert saved["instant"] in tidelock("savepoint", path, "list").out
    later = write(folder, 3, 4)
    dry = facts(tidelock("restore", path, "run", "--to", saved["instant"], "--dry-run", "--json"))
    assert dry["would_remove"] == [later]
    assert ids(folder) == [1, 2, 3, 4]
    done = facts(tidelock("restore", path, "run", "--to", saved["instant"], "--json"))
    assert [each["instant"] for each in done["executed"][0]["undone"]] == [later]
    assert ids(folder) == [1, 2]
    assert "nothing to do" in tidelock("restore", path, "run", "--to", saved["instant"]).out
    assert facts(tidelock("savepoint", path, "delete", saved["instant"], "--json"))["deleted"]
    assert facts(tidelock("savepoint", path, "list", "--json"))["savepoints"] == []


def test_restore_can_be_scheduled_and_executed_by_different_processes(
    tidelock: Program, folder: Path
) -> None:
    path = str(folder)
    (saved,) = facts(tidelock("savepoint", path, "create", "--json"))["savepoints"]
    write(folder, 3)
    (planned,) = facts(tidelock("restore", path, "schedule", "--to", saved["instant"], "--json"))[
        "scheduled"
    ]
    (waiting,) = facts(tidelock("services", path, "--json"))["services"]
    assert (waiting["instant"], waiting["service"]) == (planned, "restore")
    assert tidelock("services", path, "cancel", planned).code == 4
    (done,) = facts(tidelock("restore", path, "execute", "--json"))["executed"]
    assert done["instant"] == planned
    assert ids(folder) == [1, 2]


def test_restore_reports_what_blocks_it(tidelock: Program, folder: Path) -> None:
    path = str(folder)
    assert tidelock("restore", path, "run").code == 2
    ended = tidelock("restore", path, "run", "--to", "20200101000000000")
    assert ended.code != 0
    assert "20200101000000000" in ended.err


def test_last_commit_is_rolled_back(tidelock: Program, folder: Path) -> None:
    path = str(folder)
    first, second = write(folder, 3), write(folder, 4)
    assert tidelock("rollback", path, "run", first).code == 4
    dry = facts(tidelock("rollback", path, "run", second, "--dry-run", "--json"))
    assert dry["would_remove"] == [second]
    (done,) = facts(tidelock("rollback", path, "run", second, "--json"))["executed"]
    assert done["undone"][0]["instant"] == second
    assert ids(folder) == [1, 2, 3]
    assert "nothing to do" in tidelock("rollback", path, "run").out


def test_leftovers_of_a_dead_writer_are_rolled_back(tidelock: Program, folder: Path) -> None:
    dead = folder / ".hoodie/timeline/20200101000000000.deltacommit.requested"
    dead.touch()
    (planned,) = facts(tidelock("rollback", str(folder), "schedule", "--json"))["scheduled"]
    assert dead.exists()
    (done,) = facts(tidelock("rollback", str(folder), "execute", planned, "--json"))["executed"]
    assert done["undone"][0]["instant"] == "20200101000000000"
    assert not dead.exists()


def test_partitions_expire_only_with_a_configured_ttl(tidelock: Program, folder: Path) -> None:
    path = str(folder)
    ended = tidelock("ttl", path, "run")
    assert ended.code != 0
    assert DAYS in ended.err
    dry = facts(tidelock("ttl", path, "run", "-O", f"{DAYS}=1", "--dry-run", "--json"))
    assert dry["would_remove"] == []
    done = facts(tidelock("ttl", path, "run", "-O", f"{DAYS}=1", "--json"))
    assert done["partitions"] == []


def test_unreadable_plan_is_cancelled(tidelock: Program, folder: Path) -> None:
    path = str(folder)
    planned = facts(tidelock("compact", path, "schedule", "--json"))["scheduled"]
    assert tidelock("services", path, "cancel").code == 2
    assert tidelock("services", path, "cancel", planned).code == 4
    (folder / f".hoodie/timeline/{planned}.compaction.requested").write_bytes(b"")
    cancelled = facts(tidelock("services", path, "cancel", planned, "--json"))
    assert "empty" in cancelled["fault"]
    assert facts(tidelock("services", path, "--json"))["services"] == []
    assert ids(folder) == [1, 2]
