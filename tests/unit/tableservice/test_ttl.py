"""Partitions expire by their age, unless somebody writes to them; the commit is Hudi's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidelock.base.errors import InvalidInput
from tidelock.operation.reads import snapshot_now
from tidelock.store.local import LocalStore
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType, ReplaceCommitMetadata
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.compaction.plan import Choice
from tidelock.tableservice.table import Table
from tidelock.tableservice.ttl.execute import PartitionTtl
from tidelock.tableservice.ttl.plan import Expiry
from tidelock.testing.tablecrash.stops import OffClock

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])
DAYS = "hoodie.partition.ttl.strategy.days.retain"
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
DAY_MS = 86_400_000


def rows(day: str, *ids: int, ts: int = 1) -> pa.Table:
    return pa.table([list(ids), [day] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture
def place(tmp_path: Path) -> Path:
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


def later(place: Path, days: float, **settings: str) -> Table:
    """Open the table as somebody does who comes so many days later."""
    clock = OffClock(int(days * DAY_MS))
    return Table(snapshot_now(LocalStore(place)), options={**QUIET, **settings}, clock=clock)


@pytest.fixture
def aged(place: Path) -> Iterator[Table]:
    """The table ten days later: monday was written to yesterday, tuesday was not."""
    with later(place, 9) as table:
        table.upsert(rows("mon", 1, ts=2))
    with later(place, 10) as table:
        yield table


def ids(table: Table) -> list[int]:
    table.refresh()
    return sorted(table.read(columns=["id"])["id"].to_pylist())


def test_a_partition_that_nobody_wrote_to_expires(aged: Table) -> None:
    done = PartitionTtl(aged.writer()).run(Expiry(days=5))
    assert done.partitions == ("tue",)
    assert ids(aged) == [1, 2]
    timeline = snapshot_now(aged.writer().store).timeline
    (shown,) = timeline.completed(Action.REPLACE_COMMIT)
    said = timeline.read(ReplaceCommitMetadata, shown)
    assert said.operation_type == OperationType.DELETE_PARTITION
    assert set(said.partition_to_replace_file_ids) == {"tue"}
    assert PartitionTtl(aged.writer()).run(Expiry(days=5)).partitions == ()


def test_by_creation_both_expire(place: Path, aged: Table) -> None:
    kind = "hoodie.partition.ttl.management.strategy.type"
    settings = {DAYS: "5", kind: "KEEP_BY_CREATION_TIME"}
    with later(place, 10, **settings) as table:
        assert set(table.expire_partitions().partitions) == {"mon", "tue"}
        assert ids(table) == []
    assert ids(aged) == []


def test_only_chosen_partitions_expire(place: Path) -> None:
    chosen = {DAYS: "5", "hoodie.partition.ttl.strategy.partition.selected": "mon, wed"}
    with later(place, 10, **chosen) as table:
        assert table.expire_partitions().partitions == ("mon",)
        assert ids(table) == [3]


def test_without_days_nothing_expires(aged: Table) -> None:
    assert aged.expire_partitions().partitions == ()
    assert ids(aged) == [1, 2, 3]


def test_a_partition_that_is_written_to_meanwhile_stays(
    place: Path, aged: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer comes between the look and the commit: its partition is not forsaken any more."""
    true = PartitionTtl._delete

    def slow(self: PartitionTtl, *given: object) -> object:
        monkeypatch.setattr(PartitionTtl, "_delete", true)
        with later(place, 10) as writer:
            writer.upsert(rows("tue", 3, ts=9))
        return true(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionTtl, "_delete", slow)
    assert PartitionTtl(aged.writer()).run(Expiry(days=5)).partitions == ()
    assert ids(aged) == [1, 2, 3]
    assert snapshot_now(aged.writer().store).timeline.pending() == ()


def test_a_partition_with_a_pending_plan_waits(place: Path) -> None:
    with later(place, 0) as table:
        table.upsert(rows("tue", 3, ts=2))
        planned = Compaction(table.writer()).schedule(Choice())
        assert planned is not None
    with later(place, 10) as table:
        assert PartitionTtl(table.writer()).plan(Expiry(days=5)) == ("mon",)
        table.compact()


def test_a_table_without_partitions_is_refused(tmp_path: Path) -> None:
    with (
        Table.create(str(tmp_path / "flat"), SCHEMA, key="id") as table,
        pytest.raises(InvalidInput, match="no partitions"),
    ):
        PartitionTtl(table.writer()).run(Expiry(days=1))


def test_partitions_expire_after_writes_if_asked(place: Path) -> None:
    often = {
        DAYS: "5",
        "hoodie.partition.ttl.inline": "true",
        "hoodie.clean.trigger.max.commits": "1",
    }
    with later(place, 10, **often) as table:
        table.upsert(rows("mon", 1, ts=5))
        assert ids(table) == [1, 2]
