"""`compact`, `cluster`, `clean`, `archive` and `services`, on tables in a folder."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from tests.cli.program import Ended, Program
from tidelock.cli.output import progress_bar
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.services.compaction import Compaction
from tidelock.services.plans import claimed
from tidelock.table import Table
from tidelock.txn.heartbeats import heartbeat_key

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
QUIET = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
}


def rows(*ids: int, v: str = "x", ts: int = 1) -> pa.Table:
    return pa.table([list(ids), [v] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a merge-on-read table with three file groups, one of which has a log file."""
    orders = tmp_path / "orders"
    with Table.create(
        str(orders), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=QUIET
    ) as table:
        for number in range(3):
            table.insert(rows(number, number + 10))
        table.upsert(rows(1, v="up", ts=2))
    return orders


def facts(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err + ended.out
    found: dict[str, Any] = json.loads(ended.out)
    return found


def content(folder: Path) -> list[dict[str, object]]:
    with Table.open(str(folder)) as table:
        found: list[dict[str, object]] = table.read().sort_by("id").to_pylist()
    return found


def test_compaction_is_scheduled_shown_and_executed(tidelock: Program, folder: Path) -> None:
    before = content(folder)
    scheduled = facts(tidelock("compact", str(folder), "schedule", "--json"))["scheduled"]
    (waiting,) = facts(tidelock("services", str(folder), "--json"))["services"]
    assert waiting["instant"] == scheduled
    assert (waiting["service"], waiting["state"], waiting["alive"]) == (
        "compaction",
        "requested",
        False,
    )
    assert len(waiting["groups"]) == 1
    assert "can be executed by any process" in tidelock("services", str(folder)).out
    done = facts(tidelock("compact", str(folder), "execute", "--instant", scheduled, "--json"))
    assert [each["instant"] for each in done["executed"]] == [scheduled]
    assert facts(tidelock("services", str(folder), "--json"))["services"] == []
    assert content(folder) == before


def test_dry_run_changes_nothing(tidelock: Program, folder: Path) -> None:
    names = {path.name for path in folder.rglob("*")}
    for service in ("compact", "cluster", "clean", "archive"):
        ended = facts(tidelock(service, str(folder), "run", "--dry-run", "--json"))
        assert ended["dry_run"]
    assert {path.name for path in folder.rglob("*")} == names
    text = tidelock("compact", str(folder), "run", "--dry-run").out
    assert text.count("would plan") == 1
    assert tidelock("cluster", str(folder), "run", "--dry-run").out.count("would plan") == 3


def test_run_executes_pending_plans_before_scheduling(tidelock: Program, folder: Path) -> None:
    scheduled = facts(tidelock("compact", str(folder), "schedule", "--json"))["scheduled"]
    with Table.open(str(folder), options=QUIET) as table:
        table.upsert(rows(2, v="more", ts=3))
    done = facts(tidelock("compact", str(folder), "run", "--json"))
    assert [each["instant"] for each in done["executed"]] == [scheduled, done["scheduled"]]
    assert "nothing to do" in tidelock("compact", str(folder), "run").out


def test_plan_that_is_being_executed_is_skipped(tidelock: Program, folder: Path) -> None:
    with Table.open(str(folder), options=QUIET) as other:
        scheduled = facts(tidelock("compact", str(folder), "schedule", "--json"))["scheduled"]
        transactions = other.writer().transactions
        with claimed(transactions, scheduled, OperationType.COMPACT):
            (seen,) = facts(tidelock("services", str(folder), "--json"))["services"]
            assert (seen["owner"], seen["alive"], seen["attempt"]) == (transactions.owner, True, 1)
            assert seen["heartbeat_age_ms"] is not None
            assert "is being executed" in tidelock("services", str(folder)).out
            for step in ("run", "execute"):
                ended = tidelock("compact", str(folder), step, "--json")
                assert ended.code == 4
                assert ended.facts["outcome"] == "left to others"
                (left,) = ended.facts["left"]
                assert left["instant"] == scheduled
            ended = tidelock("compact", str(folder), "run")
            assert ended.code == 4
            assert "0 executed, 1 skipped" in ended.out
            ended = tidelock("compact", str(folder), "execute", "--instant", scheduled)
            assert ended.code == 4
            assert "executing it" in ended.err
        assert Compaction(other.writer()).pending() == (scheduled,)
    assert len(facts(tidelock("compact", str(folder), "execute", "--json"))["executed"]) == 1


def test_clean_reports_rolled_back_instants(tidelock: Program, folder: Path) -> None:
    with Table.open(str(folder), options=QUIET) as dead:
        txns = dead.writer().transactions
        begun = txns.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        txns.heartbeat_thread.drop(begun.instant)
        os.utime(folder / heartbeat_key(begun.instant), (1, 1))
    done = facts(tidelock("clean", str(folder), "run", "--json"))
    assert done["rolled_back"] == [
        {"instant": begun.instant, "action": "deltacommit", "files_deleted": 0}
    ]
    assert done["outcome"] in ("executed", "nothing to do")
    assert "rolled back" not in tidelock("clean", str(folder), "run").out


def test_clustering_merges_small_files(tidelock: Program, folder: Path) -> None:
    before = content(folder)
    done = facts(tidelock("cluster", str(folder), "run", "--json"))
    assert [each["files_written"] for each in done["executed"]] == [1]
    with Table.open(str(folder)) as table:
        assert len(table.files()) == 1
    assert content(folder) == before
    assert tidelock("table", "validate", str(folder)).code == 0
    assert tidelock("ledger", "verify", str(folder)).code == 0


def test_missing_sort_column_is_reported(tidelock: Program, folder: Path) -> None:
    key = "hoodie.clustering.plan.strategy.sort.columns"
    ended = tidelock("cluster", str(folder), "run", "-O", f"{key}=nope")
    assert ended.code == 2
    assert "the column 'nope' is not in the table" in ended.err
    assert facts(tidelock("services", str(folder), "--json"))["services"] == []


def test_clean_deletes_files_needed_only_by_old_snapshots(tidelock: Program, folder: Path) -> None:
    facts(tidelock("cluster", str(folder), "run", "--json"))
    with Table.open(str(folder), options=QUIET) as table:
        for number in range(3):
            table.upsert(rows(0, v=f"v{number}", ts=5 + number))
    before = content(folder)
    keep = ("-O", "hoodie.clean.commits.retained=1")
    files = facts(tidelock("clean", str(folder), "run", "--dry-run", "--json", *keep))["would_plan"]
    assert files
    assert all((folder / name).exists() for name in files)
    done = facts(tidelock("clean", str(folder), "run", "--json", *keep))
    assert len(done["executed"]) == 1
    assert not any((folder / name).exists() for name in files)
    assert content(folder) == before
    assert tidelock("table", "validate", str(folder)).code == 0


def test_archive_moves_the_oldest_instants(tidelock: Program, folder: Path) -> None:
    with Table.open(str(folder), options=QUIET) as table:
        for number in range(6):
            table.upsert(rows(0, v=f"v{number}", ts=5 + number))
    few = ["-O", "hoodie.keep.min.commits=2", "-O", "hoodie.keep.max.commits=3"]
    few += ["-O", "hoodie.clean.commits.retained=1"]
    would = facts(tidelock("archive", str(folder), "run", "--dry-run", "--json", *few))
    done = facts(tidelock("archive", str(folder), "run", "--json", *few))
    assert done["instants"] == len(would["would_archive"]) > 0
    assert "0 instants archived" in tidelock("archive", str(folder), "run", *few).out
    assert tidelock("table", "validate", str(folder)).code == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("compact", "{}", "sideways"), "sideways"),
        (("archive", "{}", "schedule"), "schedule"),
        (
            ("compact", "{}", "run", "--instant", "20260101000000000"),
            "--instant: can only be used with execute",
        ),
        (("compact", "{}", "run", "-O", "hoodie.compaction.strategy=Nope"), "got 'Nope'"),
        (("clean", "{}", "run", "-O", "hoodie.clean.commits.retained=0"), "a positive integer"),
        (("clean", "{}", "run", "-O", "hoodie.clean.comits.retained=2"), "unknown setting"),
    ],
)
def test_usage_error_is_explained(
    tidelock: Program, folder: Path, call: tuple[str, ...], says: str
) -> None:
    ended = tidelock(*(part.format(folder) for part in call))
    assert ended.code == 2
    assert says in ended.err


def test_missing_plan_is_a_conflict(tidelock: Program, folder: Path) -> None:
    ended = tidelock("cluster", str(folder), "execute", "--instant", "20260101000000000")
    assert ended.code == 4
    assert "is not pending" in ended.err


def test_log_compact_merges_log_files(tidelock: Program, folder: Path) -> None:
    with Table.open(str(folder), options=QUIET) as table:
        table.upsert(rows(1, v="again", ts=3))
    before = content(folder)
    threshold = ("-O", "hoodie.log.compaction.blocks.threshold=2")
    preview = facts(tidelock("log-compact", str(folder), "run", "--dry-run", "--json", *threshold))
    assert len(preview["would_plan"]) == 1
    done = facts(tidelock("log-compact", str(folder), "run", "--json", *threshold))
    assert [each["files_written"] for each in done["executed"]] == [1]
    assert content(folder) == before
    ended = tidelock("log-compact", str(folder), "run", *threshold)
    assert "nothing to do" in ended.out


def test_progress_bar_is_shown_only_on_a_terminal() -> None:
    shown = {}
    for terminal in (True, False):
        stream = StringIO()
        console = Console(file=stream, force_terminal=terminal, width=100)
        with progress_bar("compaction", console, hidden=False) as told_of:
            told_of(0, 2_000_000)
            told_of(1_000_000, 2_000_000)
        shown[terminal] = stream.getvalue()
    assert "compaction" in shown[True]
    assert "1.0/2.0 MB" in shown[True]
    assert shown[False] == ""
