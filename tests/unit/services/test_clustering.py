"""Clustering on real tables: rows are unchanged, and no writer loses an update."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testkit.judges.hudi_rs import HudiRs
from tidelock.core.errors import Conflict, DataCorrupt, Unsupported, WriteConflict
from tidelock.execution import service_tasks
from tidelock.execution.filegroup.clustering import cluster_base
from tidelock.execution.filegroup.context import FileResult
from tidelock.execution.local.write import LocalWriter
from tidelock.hudi.schema import FILE_NAME
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType, RequestedReplaceMetadata, encode
from tidelock.operations.file_view import replaced_groups
from tidelock.services.clustering import Clustering, ClusteringRule
from tidelock.services.compaction import Compaction, CompactionRule, plan_compaction
from tidelock.services.plans import claimed
from tidelock.services.runner import clustering
from tidelock.table import Table
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.writers import conflicts

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.string())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


def rows(*ids: int, v: str = "x", day: str = "a") -> pa.Table:
    return pa.table([list(ids), [f"{v}{i}" for i in ids], [day] * len(ids)], schema=SCHEMA)


def create_table(table_folder: Path, kind: str = "COPY_ON_WRITE", **more: str) -> Table:
    """Return a table with two partitions of three file groups."""
    table = Table.create(
        str(table_folder),
        SCHEMA,
        key="id",
        partition_by="day",
        type=kind,
        options={**OPTIONS, **more},
    )
    for number in range(3):
        table.insert(rows(number, number + 10, day="a"))
        table.insert(rows(number + 20, number + 30, day="b"))
    table.upsert(rows(1, v="changed"))
    table.delete(rows(12))
    return table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with create_table(tmp_path / "t") as found:
        yield found


def content(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.read(meta_columns=True).sort_by("id").to_pylist()
    return [{name: row[name] for name in row if name != FILE_NAME} for row in found]


def values(table: Table) -> dict[int, str]:
    table.refresh()
    return {row["id"]: row["v"] for row in table.read().to_pylist()}


def leftovers(table: Table) -> list[str]:
    """Return leftover markers and heartbeats."""
    store = table._store
    return [m.key for folder in (".temp", ".heartbeat") for m in store.list(f".hoodie/{folder}/")]


def meanwhile(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Run a function after the files of the first cluster are written."""
    inner = cluster_base
    left = [do]

    def writes(*args: Any, **more: Any) -> tuple[FileResult, ...]:
        results = inner(*args, **more)
        if left:
            left.pop()()
        return results

    monkeypatch.setattr(service_tasks, "cluster_base", writes)


@pytest.mark.parametrize("kind", TYPES)
def test_rows_keep_everything_but_their_file(tmp_path: Path, kind: str) -> None:
    with create_table(tmp_path / "t", kind) as table:
        before, since = content(table), table.latest_completion
        assert len(table.files()) == 6
        ran = table.cluster()
        assert [done.files_written for done in ran.executed] == [2]
        assert content(table) == before
        assert [len(piece.logs) for piece in table.files()] == [0, 0]
        assert since is not None
        assert table.changes(since).num_rows == 0
        assert leftovers(table) == []
        assert table.cluster().scheduled is None


@pytest.mark.parametrize("kind", TYPES)
def test_changes_before_a_clustering_equal_those_after_it(tmp_path: Path, kind: str) -> None:
    with create_table(tmp_path / "t", kind) as table:
        points = [i.completion for i in table.timeline if i.is_completed]
        before = [table.changes(point).sort_by("id").to_pylist() for point in points]
        table.cluster()
        assert [table.changes(point).sort_by("id").to_pylist() for point in points] == before


@pytest.mark.parametrize("kind", TYPES)
def test_independent_reader_reads_the_same_rows(tmp_path: Path, kind: str) -> None:
    with create_table(tmp_path / "t", kind) as table:
        judge, table_folder = HudiRs(), str(tmp_path / "t")

        def seen() -> list[dict[str, Any]]:
            found = judge.snapshot(table_folder)
            return [{name: row[name] for name in row if name != FILE_NAME} for row in found]

        before = seen()
        table.cluster()
        assert seen() == before
        table.upsert(rows(2, v="later"))
        assert {row["id"]: row["v"] for row in seen()} == values(table)


def test_history_is_unchanged(table: Table) -> None:
    last = table.timeline[-1].requested
    before = table.read(as_of=last).sort_by("id").to_pylist()
    table.cluster()
    table.upsert(rows(0, v="later"))
    assert table.read(as_of=last).sort_by("id").to_pylist() == before


def test_rows_are_sorted_over_all_files_of_a_partition(tmp_path: Path) -> None:
    key = "hoodie.clustering.plan.strategy."
    sort = {f"{key}sort.columns": "v,id", f"{key}target.file.max.bytes": "1"}
    with create_table(tmp_path / "t", "COPY_ON_WRITE", **sort) as table:
        before = content(table)
        (done,) = table.cluster().executed
        assert done.files_written > 2
        assert content(table) == before
        by_file = {
            piece.base.name: piece.file_id.rpartition("-")[2]
            for piece in table.files()
            if piece.base is not None
        }
        for day in ("a", "b"):
            found = table.read(["v", FILE_NAME], partitions=[day]).to_pylist()
            numbered = sorted(found, key=lambda row: int(by_file[row[FILE_NAME]]))
            assert [row["v"] for row in numbered] == sorted(row["v"] for row in found)


def test_commit_lists_the_replaced_groups(table: Table) -> None:
    sources = {(piece.partition, piece.file_id) for piece in table.files()}
    (done,) = table.cluster().executed
    instant = next(i for i in table.timeline if i.requested == done.instant)
    assert instant.action is Action.REPLACE_COMMIT
    metadata = table._snapshot.timeline.commit(instant)
    assert metadata.operation_type == OperationType.CLUSTER.value
    assert set(replaced_groups(metadata)) == sources


def test_writer_that_changes_a_source_wins(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with Table.open(table.uri, options=OPTIONS) as writer:
        meanwhile(monkeypatch, lambda: writer.upsert(rows(2, v="won")))
        ran = table.cluster()
        assert ran.executed == ()
        (skipped,) = ran.skipped
        assert skipped.conflicted
        assert "a writer changed these file groups" in skipped.why
        assert values(table) == values(writer)
        assert values(table)[2] == "won2"
        assert Clustering(table.writer()).pending() == ()
        assert leftovers(table) == []
        files = {path.name for path in Path(table.uri.removeprefix("file://")).rglob("*.parquet")}
        assert not [name for name in files if skipped.instant in name]
        (conflict,) = conflicts(table._store)
        assert conflict.instant == skipped.instant
        assert len(conflict.groups) == 1
        assert conflict.conflicting_owners == (writer.writer().transactions.owner,)
        assert len(table.cluster().executed) == 1
        assert values(table)[2] == "won2"


def test_clustering_that_conflicts_during_execution_reports_it(table: Table) -> None:
    service = Clustering(table.writer())
    planned = service.schedule(ClusteringRule())
    assert planned is not None
    table.upsert(rows(0, v="between"))
    with pytest.raises(WriteConflict, match="a writer changed these file groups"):
        service.execute(planned)
    assert values(table)[0] == "between0"
    assert service.pending() == ()


def test_writer_of_other_groups_and_a_clustering_both_succeed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = values(table)
    with Table.open(table.uri, options=OPTIONS) as writer:
        new = rows(90, 91, v="new", day="c")
        meanwhile(monkeypatch, lambda: (writer.upsert(new), writer.insert(rows(92, v="new"))))
        assert len(table.cluster().executed) == 1
    assert values(table) == {**before, 90: "new90", 91: "new91", 92: "new92"}
    assert len(table.files()) == 4


@pytest.mark.parametrize("kind", TYPES)
def test_writer_that_conflicts_with_a_clustering_writes_to_the_new_groups(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        create_table(tmp_path / "t", kind) as table,
        Table.open(table.uri, options=OPTIONS) as slow,
    ):
        before = values(slow)
        inner, once = LocalWriter.write, [table.cluster]

        def writes(self: LocalWriter, *args: Any, **more: Any) -> tuple[FileResult, ...]:
            results = inner(self, *args, **more)
            if once:
                assert len(once.pop()().executed) == 1
            return results

        monkeypatch.setattr(LocalWriter, "write", writes)
        report = slow.upsert(rows(2, 11, v="slow"))
        assert report.rebases == 1
        assert values(table) == {**before, 2: "slow2", 11: "slow11"}
        assert leftovers(table) == []


def test_plan_is_executed_by_one_process_at_a_time(table: Table) -> None:
    service = Clustering(table.writer())
    planned = service.schedule(ClusteringRule())
    assert planned is not None
    with Table.open(table.uri, options=OPTIONS) as other:
        mine = claimed(table.writer().transactions, planned, OperationType.CLUSTER)
        with mine, pytest.raises(Conflict, match="is executing it"):
            Clustering(other.writer()).execute(planned)
        # An abandoned removable plan is gone.
        with pytest.raises(Conflict, match="not pending"):
            Clustering(other.writer()).execute(planned)


def test_file_group_is_in_one_plan_at_a_time(table: Table) -> None:
    service = Clustering(table.writer())
    assert service.schedule(ClusteringRule()) is not None
    assert service.schedule(ClusteringRule()) is None


def test_file_groups_in_a_plan_unknown_to_the_ledger_are_skipped(tmp_path: Path) -> None:
    with create_table(tmp_path / "t", "MERGE_ON_READ") as table:
        plan = plan_compaction(table.files(), CompactionRule())
        assert plan is not None
        taken = {(each.partition_path, each.file_id) for each in plan.operations or ()}
        assert len(taken) == 2
        name = f"{table.timeline[-1].completion}.compaction.requested"
        (tmp_path / "t/.hoodie/timeline" / name).write_bytes(encode(plan))
        assert Compaction(table.writer()).schedule(CompactionRule()) is None
        clusters = Clustering(table.writer()).plan(ClusteringRule())
        chosen = {(p.partition, p.file_id) for cluster in clusters for p in cluster.slices}
        assert len(chosen) == 3, "a file that is left alone in its partition is not clustered"
        assert not taken & chosen


def test_leftovers_of_a_dead_executor_are_rolled_back_by_a_clean(
    table: Table, tmp_path: Path
) -> None:
    before = content(table)
    service = Clustering(table.writer())
    planned = service.schedule(ClusteringRule())
    assert planned is not None
    with Table.open(table.uri, options=OPTIONS) as dead:
        transactions = dead.writer().transactions
        taken = transactions.claim(planned, OperationType.CLUSTER)
        assert not hasattr(taken, "why")
        transactions.heartbeat_thread.drop(planned)
    table.clean()
    assert service.pending() == (planned,), "it may still be alive"
    os.utime(tmp_path / "t" / heartbeat_key(planned), (1, 1))
    table.clean()
    assert service.pending() == ()
    assert leftovers(table) == []
    assert len(table.cluster().executed) == 1
    assert content(table) == before


def test_unstarted_plan_is_rolled_back_eventually(table: Table) -> None:
    service = Clustering(table.writer())
    planned = service.schedule(ClusteringRule())
    table.clean()
    assert service.pending() == (planned,)
    at_once = {**OPTIONS, "hoodie.clustering.expiration.threshold.mins": "0"}
    with Table.open(table.uri, options=at_once) as other:
        other.clean()
    assert service.pending() == ()


def test_plan_with_a_missing_file_is_rolled_back(table: Table, tmp_path: Path) -> None:
    service = Clustering(table.writer())
    planned = service.schedule(ClusteringRule())
    assert planned is not None
    base = table.files()[0].base
    assert base is not None
    (tmp_path / "t" / base.key).unlink()
    with pytest.raises(
        DataCorrupt, match="the clustering plan reads this file, and it does not exist"
    ):
        service.execute(planned)
    assert service.pending() == ()


def test_table_with_buckets_is_not_clustered(tmp_path: Path) -> None:
    buckets = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    with (
        create_table(tmp_path / "t", "COPY_ON_WRITE", **buckets) as table,
        pytest.raises(Unsupported, match="bucket index"),
    ):
        table.cluster()


def test_clustering_runs_after_a_write_when_due(tmp_path: Path) -> None:
    inline = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "3"}
    with create_table(tmp_path / "t", "COPY_ON_WRITE", **inline) as table:
        assert len(table.files()) < 6
        assert sorted(values(table)) == [0, 1, 2, 10, 11, 20, 21, 22, 30, 31, 32]


def test_every_row_names_its_file(table: Table) -> None:
    table.cluster()
    names = {piece.base.name for piece in table.files() if piece.base is not None}
    assert set(table.read([FILE_NAME]).column(FILE_NAME).to_pylist()) == names


@pytest.mark.parametrize("kind", TYPES)
def test_no_update_is_lost_while_clusterings_run(tmp_path: Path, kind: str) -> None:
    rounds = 12
    with create_table(tmp_path / "t", kind) as table:
        before = values(table)
        failed: list[BaseException] = []

        def update(first: int) -> None:
            try:
                with Table.open(table.uri, options=OPTIONS) as mine:
                    for number in range(rounds):
                        mine.upsert(rows(first, first + 10, v=f"r{number}-"))
                        mine.insert(rows(100 * (number + 1) + first, v="new"))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=update, args=(first,)) for first in (0, 1)]
        for thread in threads:
            thread.start()
        executed = 0
        while any(thread.is_alive() for thread in threads):
            executed += len(table.cluster().executed)
        for thread in threads:
            thread.join()
        assert not failed
        assert len(table.cluster().executed) + executed > 0
        expected = dict(before)
        for first in (0, 1):
            last = f"r{rounds - 1}-"
            expected |= {first: f"{last}{first}", first + 10: f"{last}{first + 10}"}
            expected |= {n: f"new{n}" for n in range(100 + first, 100 * rounds + 100, 100)}
        assert values(table) == expected


@pytest.mark.parametrize("layout", ["z-order", "hilbert"])
def test_curve_lets_queries_on_either_column_skip_files(tmp_path: Path, layout: str) -> None:
    size, files = 8_192, 16
    values = np.random.default_rng(3).permutation(size)
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("name", pa.string())])
    names = [f"n{value:06}" if value % 100 else None for value in values[::-1]]
    found = pa.table([list(range(size)), list(values), names], schema=schema)
    touched: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for kind in ("linear", layout):
        options = {
            **OPTIONS,
            "hoodie.clustering.plan.strategy.sort.columns": "x,name",
            "hoodie.layout.optimize.strategy": kind,
        }
        with Table.create(str(tmp_path / kind), schema, key="id", options=options) as table:
            table.bulk_insert(found)
            (piece,) = table.files()
            assert piece.base is not None
            target = str(piece.base.size_bytes // files)
            table._options["hoodie.clustering.plan.strategy.target.file.max.bytes"] = target
            table.cluster()
            assert table.read().sort_by("id").equals(found)
            touched[kind] = [_files_with(table, "x", 1_000, 1_200)]
            touched[kind] += [_files_with(table, "name", "n001000", "n001200")]
            counts[kind] = len(table.files())
    assert min(counts.values()) >= files // 2
    by_x, by_name = touched["linear"]
    assert by_x <= 2
    assert by_name == counts["linear"]
    assert max(touched[layout]) <= counts[layout] // 2


def _files_with(table: Table, name: str, low: Any, high: Any) -> int:
    """Return how many files may have a value in a range, by their statistics."""
    bounds = []
    for piece in table.files():
        assert piece.base is not None
        file = pq.ParquetFile(Path(table.uri.removeprefix("file://")) / piece.base.key)
        table_folder = file.schema.names.index(name)
        groups = range(file.num_row_groups)
        found = [file.metadata.row_group(group).column(table_folder).statistics for group in groups]
        bounds.append((min(each.min for each in found), max(each.max for each in found)))
    return sum(1 for least, greatest in bounds if least <= high and greatest >= low)


def test_plan_with_an_unknown_layout_is_refused(table: Table) -> None:
    service = Clustering(table.writer())
    planned = service.schedule(ClusteringRule(), sort_by=["v"])
    assert planned is not None
    path = f".hoodie/timeline/{planned}.clustering.requested"
    plan = service._load_plan(planned)
    assert plan.strategy is not None
    strategy = replace(plan.strategy, strategy_params={"hoodie.layout.optimize.strategy": "spiral"})
    request = RequestedReplaceMetadata("CLUSTER", replace(plan, strategy=strategy), {}, 1)
    (Path(table.uri.removeprefix("file://")) / path).write_bytes(encode(request))
    with pytest.raises(DataCorrupt, match="spiral"):
        service.execute(planned)


def test_immutable_plan_is_resumed_and_late_files_of_a_dead_attempt_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = {"tidelock.clustering.removable": "false"}
    with create_table(tmp_path / "t", "COPY_ON_WRITE", **stays) as table:
        before = values(table)
        (planned,) = [clustering(table.writer(), {**OPTIONS, **stays}).schedule()]
        assert planned is not None
        late: dict[Path, bytes] = {}

        def die() -> None:
            found = (tmp_path / "t").rglob(f"*_{planned}.parquet")
            late.update({path: path.read_bytes() for path in found})
            raise OSError("the machine is switched off")

        meanwhile(monkeypatch, die)
        with pytest.raises(OSError, match="switched off"):
            Clustering(table.writer()).execute(planned)
        table.clean()
        assert Clustering(table.writer()).pending() == (planned,)
        (done,) = table.cluster().executed
        assert done.instant == planned
        assert late
        assert not any(path.exists() for path in late)
        for path, body in late.items():
            path.write_bytes(body)
            path.with_name(path.name.replace("-0_", "-7_", 1)).write_bytes(body)
        assert values(table) == before
        assert table.read().num_rows == len(before)


def test_immutable_plan_is_removed_once_a_writer_changed_a_source(tmp_path: Path) -> None:
    stays = {"tidelock.clustering.removable": "false"}
    with create_table(tmp_path / "t", "COPY_ON_WRITE", **stays) as table:
        service = clustering(table.writer(), {**OPTIONS, **stays})
        planned = service.schedule()
        assert planned is not None
        table.upsert(rows(2, v="later"))
        with pytest.raises(WriteConflict):
            service.plans.execute(planned)
        assert service.plans.pending() == ()
        assert values(table)[2] == "later2"
