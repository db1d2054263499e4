"""Partitions expire by age unless they are written to; the commit is Hudi's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from testkit.tablecrash.stops import OffClock
from tidelock.core.errors import InvalidInput
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType, ReplaceCommitMetadata
from tidelock.operations.read import snapshot_now
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.services.ttl import PartitionTtl, TtlRule
from tidelock.storage.local import LocalStore
from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])
DAYS = "hoodie.partition.ttl.strategy.days.retain"
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
DAY_MS = 86_400_000


def rows(day: str, *ids: int, ts: int = 1) -> pa.Table:
    return pa.table([list(ids), [day] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Table.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="day",
        ordering="ts",
        type="MERGE_ON_READ",
        options=QUIET,
    ) as made:
        made.insert(rows("mon", 1, 2))
        made.insert(rows("tue", 3))
    return tmp_path / "t"


def later(path: Path, days: float, **settings: str) -> Table:
    """Open the table with a clock that many days later."""
    clock = OffClock(int(days * DAY_MS))
    return Table(snapshot_now(LocalStore(path)), options={**QUIET, **settings}, clock=clock)


@pytest.fixture
def aged(path: Path) -> Iterator[Table]:
    """The table ten days later: monday was written to yesterday, tuesday was not."""
    with later(path, 9) as table:
        table.upsert(rows("mon", 1, ts=2))
    with later(path, 10) as table:
        yield table


def ids(table: Table) -> list[int]:
    table.refresh()
    return sorted(table.read(columns=["id"])["id"].to_pylist())


def test_partition_without_recent_writes_expires(aged: Table) -> None:
    done = PartitionTtl(aged.writer()).run(TtlRule(days=5))
    assert done.partitions == ("tue",)
    assert ids(aged) == [1, 2]
    timeline = snapshot_now(aged.writer().store).timeline
    (shown,) = timeline.completed(Action.REPLACE_COMMIT)
    metadata = timeline.read(ReplaceCommitMetadata, shown)
    assert metadata.operation_type == OperationType.DELETE_PARTITION
    assert set(metadata.partition_to_replace_file_ids) == {"tue"}
    assert PartitionTtl(aged.writer()).run(TtlRule(days=5)).partitions == ()


def test_both_partitions_expire_by_creation_time(path: Path, aged: Table) -> None:
    kind = "hoodie.partition.ttl.management.strategy.type"
    settings = {DAYS: "5", kind: "KEEP_BY_CREATION_TIME"}
    with later(path, 10, **settings) as table:
        assert set(table.expire_partitions().partitions) == {"mon", "tue"}
        assert ids(table) == []
    assert ids(aged) == []


def test_only_selected_partitions_expire(path: Path) -> None:
    chosen = {DAYS: "5", "hoodie.partition.ttl.strategy.partition.selected": "mon, wed"}
    with later(path, 10, **chosen) as table:
        assert table.expire_partitions().partitions == ("mon",)
        assert ids(table) == [3]


def test_nothing_expires_without_a_ttl(aged: Table) -> None:
    assert aged.expire_partitions().partitions == ()
    assert ids(aged) == [1, 2, 3]


def test_partition_that_is_written_to_concurrently_stays(
    path: Path, aged: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer commits between the check and the commit: its partition has not expired."""
    true = PartitionTtl._delete

    def slow(self: PartitionTtl, *given: object) -> object:
        monkeypatch.setattr(PartitionTtl, "_delete", true)
        with later(path, 10) as writer:
            writer.upsert(rows("tue", 3, ts=9))
        return true(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionTtl, "_delete", slow)
    assert PartitionTtl(aged.writer()).run(TtlRule(days=5)).partitions == ()
    assert ids(aged) == [1, 2, 3]
    assert snapshot_now(aged.writer().store).timeline.pending() == ()


def test_partition_with_a_pending_plan_waits(path: Path) -> None:
    with later(path, 0) as table:
        table.upsert(rows("tue", 3, ts=2))
        planned = Compaction(table.writer()).schedule(CompactionRule())
        assert planned is not None
    with later(path, 10) as table:
        assert PartitionTtl(table.writer()).plan(TtlRule(days=5)) == ("mon",)
        table.compact()


def test_table_without_partitions_is_refused(tmp_path: Path) -> None:
    with (
        Table.create(str(tmp_path / "flat"), SCHEMA, key="id") as table,
        pytest.raises(InvalidInput, match="not partitioned"),
    ):
        PartitionTtl(table.writer()).run(TtlRule(days=1))


def test_partitions_expire_after_writes_if_configured(path: Path) -> None:
    often = {
        DAYS: "5",
        "hoodie.partition.ttl.inline": "true",
        "hoodie.clean.trigger.max.commits": "1",
    }
    with later(path, 10, **often) as table:
        table.upsert(rows("mon", 1, ts=5))
        assert ids(table) == [1, 2]
