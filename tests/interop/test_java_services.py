"""Java Hudi and our executors on the same plans: each respects the other's heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.base.errors import Conflict
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.claiming import claimed
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.running import compaction
from tidelock.testing.java import JavaTables

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
OPTIONS = {"hoodie.parquet.small.file.limit": "0", "tidelock.write.mixed": "true"}


class Planned:
    """A merge-on-read table with a compaction that we planned."""

    def __init__(self, uri: str, java: JavaTables) -> None:
        """Make it."""
        self.uri, self.java = uri, java
        self.table = tl.Table.create(
            uri, SCHEMA, key="id", type="MERGE_ON_READ", options=dict(OPTIONS)
        )
        self.table.upsert([{"id": "a", "value": 1}, {"id": "b", "value": 1}])
        self.table.upsert([{"id": "a", "value": 2}])
        self.rows = {"a": 2, "b": 1}
        scheduled = compaction(self.table.writer(), OPTIONS).schedule()
        assert scheduled is not None
        self.instant = scheduled

    def check(self) -> None:
        """Both sides read the same rows, and nothing is wrong with the table."""
        self.table.refresh()
        ours = {row["id"]: row["value"] for row in self.table.read().to_pylist()}
        theirs = {row["id"]: row["value"] for row in self.java.snapshot(self.uri)}
        assert ours == theirs == self.rows
        assert validate(open_store(self.uri), more=[check_ledger]).problems == ()


@pytest.fixture
def planned(tmp_path: Path, hudi_java_tables: JavaTables) -> Iterator[Planned]:
    made = Planned(str(tmp_path / "t"), hudi_java_tables)
    with made.table:
        yield made


def test_java_executes_a_compaction_that_we_planned(planned: Planned) -> None:
    assert planned.java.execute_compaction(planned.uri, planned.instant) == planned.instant
    with pytest.raises(Conflict):
        Compaction(planned.table.writer()).execute(planned.instant)
    fold = planned.table.writer().transactions.ledger.refresh(foreign=True)
    assert fold.plans == {}
    assert planned.instant in fold.committed
    planned.check()
    planned.table.upsert([{"id": "b", "value": 3}])
    planned.rows |= {"b": 3}
    planned.table.compact()
    planned.check()


def test_java_reads_the_table_after_each_service_of_ours(planned: Planned) -> None:
    for service in (planned.table.compact, planned.table.cluster, planned.table.clean):
        service()
        planned.check()


def test_java_leaves_a_plan_alone_that_we_execute(planned: Planned) -> None:
    transactions = planned.table.writer().transactions
    with claimed(transactions, planned.instant, OperationType.COMPACT):
        with pytest.raises(AssertionError, match="heartbeat"):
            planned.java.execute_compaction(planned.uri, planned.instant)
        assert transactions.ledger.refresh().plans[planned.instant].attempt == 1
    planned.table.compact()
    planned.check()


def test_we_leave_a_plan_alone_that_java_executes(planned: Planned) -> None:
    planned.java.beat(planned.uri, planned.instant)
    with pytest.raises(Conflict, match="is executed by another writer"):
        Compaction(planned.table.writer()).execute(planned.instant)
    planned.java.beat(planned.uri, planned.instant, beats=False)
    assert Compaction(planned.table.writer()).execute(planned.instant).files_written == 1
    planned.check()
