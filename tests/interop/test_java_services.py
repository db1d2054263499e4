"""Java Hudi and our executors on the same plans: each respects the other's heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.base.errors import Conflict, WriteConflict
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.adopting import adopted
from tidelock.tableservice.cancelling import cancel
from tidelock.tableservice.clustering.execute import Clustering
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.guard import claimed
from tidelock.tableservice.overview import pending_services
from tidelock.tableservice.running import clustering, compaction, log_compaction
from tidelock.testing.java import JavaTables
from tidelock.txn.fold import Fold
from tidelock.txn.heartbeat import heartbeat_key

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "tidelock.write.mixed": "true",
    # Both sides have one clock here.
    "hoodie.time.generator.max_expected_clock_skew_ms": "5",
}
SERVICES = {"compaction": compaction, "log_compaction": log_compaction, "clustering": clustering}


class Shared:
    """A merge-on-read table with log files, which both sides serve."""

    def __init__(self, uri: str, java: JavaTables) -> None:
        """Make it."""
        self.uri, self.java = uri, java
        self.table = tl.Table.create(
            uri, SCHEMA, key="id", type="MERGE_ON_READ", options=dict(OPTIONS)
        )
        self.table.insert([{"id": "a", "value": 1}, {"id": "b", "value": 1}])
        self.table.insert([{"id": "c", "value": 1}])
        self.table.upsert([{"id": "a", "value": 2}])
        self.table.upsert([{"id": "a", "value": 3}])
        self.rows = {"a": 3, "b": 1, "c": 1}

    def planned(self, service: str) -> str:
        """Plan a service of ours; return its instant."""
        scheduled = SERVICES[service](self.table.writer(), OPTIONS).schedule()
        assert scheduled is not None
        return scheduled

    def java_planned(self, service: str) -> str:
        """Let Java plan a service; return its instant."""
        instant = self.java.schedule(service, self.uri)
        assert instant
        return instant

    def fold(self) -> Fold:
        """Return what the ledger says, with what Java did."""
        return self.table.writer().transactions.ledger.refresh(foreign=True)

    def pending(self) -> list[str]:
        """Return what Java takes for pending."""
        return [
            requested
            for requested, _, state, _ in self.java.timeline(self.uri)
            if state != "COMPLETED"
        ]

    def check(self) -> None:
        """Both sides read the same rows, and nothing is wrong with the table."""
        self.table.refresh()
        ours = {row["id"]: row["value"] for row in self.table.read().to_pylist()}
        theirs = {row["id"]: row["value"] for row in self.java.snapshot(self.uri)}
        assert ours == theirs == self.rows
        assert validate(open_store(self.uri), more=[check_ledger]).problems == ()

    def goes_on(self) -> None:
        """Both sides read the rows, and a write and a compaction find nothing in their way."""
        self.check()
        assert self.fold().plans == {}
        assert self.pending() == []
        self.table.upsert([{"id": "b", "value": 4}])
        self.rows |= {"b": 4}
        assert self.table.compact().executed
        self.check()


@pytest.fixture
def shared(tmp_path: Path, hudi_java_tables: JavaTables) -> Iterator[Shared]:
    made = Shared(str(tmp_path / "t"), hudi_java_tables)
    with made.table:
        yield made


@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_java_executes_what_we_planned(shared: Shared, service: str) -> None:
    planned = shared.planned(service)
    assert shared.java.execute(service, shared.uri, planned) == planned
    plans = SERVICES[service](shared.table.writer(), OPTIONS).plans
    with pytest.raises(Conflict):
        plans.execute(planned)
    assert planned in shared.fold().committed
    shared.goes_on()


@pytest.mark.parametrize("service", SERVICES)
def test_we_execute_what_java_planned(shared: Shared, service: str) -> None:
    planned = shared.java_planned(service)
    (shown,) = pending_services(open_store(shared.uri))
    assert (shown.instant, shown.scheduled_by) == (planned, "a writer without a ledger")
    ran = SERVICES[service](shared.table.writer(), OPTIONS).execute_pending()
    assert [each.instant for each in ran.executed] == [planned]
    assert planned in shared.fold().committed
    shared.goes_on()


def test_log_files_that_came_after_a_plan_of_java_lie_on_top(shared: Shared) -> None:
    planned = shared.java_planned("compaction")
    shared.table.upsert([{"id": "b", "value": 9}])
    shared.rows |= {"b": 9}
    assert Compaction(shared.table.writer()).execute(planned).files_written
    shared.goes_on()


def test_java_reads_the_table_after_each_service_of_ours(shared: Shared) -> None:
    table = shared.table
    for service in (table.log_compact, table.compact):
        assert service().executed
        shared.check()
    table.clean()
    shared.check()
    few = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    few["hoodie.clean.commits.retained"] = "1"
    with tl.Table.open(shared.uri, options={**OPTIONS, **few}) as other:
        assert other.archive().instants
    shared.check()
    assert table.cluster().executed
    shared.check()
    kept = table.savepoint()
    shared.check()
    table.upsert([{"id": "b", "value": 7}])
    last = table.upsert([{"id": "c", "value": 7}]).instant
    shared.rows |= {"b": 7, "c": 7}
    shared.check()
    table.rollback(last)
    shared.rows |= {"c": 1}
    shared.check()
    table.restore(kept.instant)
    shared.rows |= {"b": 1}
    shared.check()
    table.delete_savepoint(kept.instant)
    shared.goes_on()


def test_java_leaves_a_plan_alone_that_we_execute(shared: Shared) -> None:
    planned = shared.planned("compaction")
    transactions = shared.table.writer().transactions
    with claimed(transactions, planned, OperationType.COMPACT):
        with pytest.raises(AssertionError, match="heartbeat"):
            shared.java.execute("compaction", shared.uri, planned)
        assert transactions.ledger.refresh().plans[planned].attempt == 1
    shared.table.compact()
    shared.check()


@pytest.mark.parametrize("ours", [True, False])
def test_we_leave_a_plan_alone_that_java_executes(shared: Shared, *, ours: bool) -> None:
    planned = shared.planned("compaction") if ours else shared.java_planned("compaction")
    shared.java.beat(shared.uri, planned)
    with pytest.raises(Conflict, match="is executed by another writer"):
        Compaction(shared.table.writer()).execute(planned)
    shared.java.beat(shared.uri, planned, beats=False)
    assert Compaction(shared.table.writer()).execute(planned).files_written == 1
    shared.check()


def test_java_completes_its_plan_while_ours_is_at_it_and_ours_yields(shared: Shared) -> None:
    planned = shared.java_planned("compaction")
    writer = shared.table.writer()
    service = Compaction(writer)
    adopted(writer, planned, Action.COMPACTION)
    with claimed(writer.transactions, planned, OperationType.COMPACT) as work:
        plan = service._plan(planned)
        results = service._rewritten(plan, work)
        # As if ours had slept for longer than its heartbeat lives.
        writer.store.delete(heartbeat_key(planned))
        assert shared.java.execute("compaction", shared.uri, planned) == planned
        with pytest.raises(WriteConflict, match="complete already"):
            service._commit(work, plan, results)
    shared.goes_on()


def test_java_takes_a_plan_back_that_we_adopted(shared: Shared) -> None:
    planned = shared.java_planned("clustering")
    writer = shared.table.writer()
    adopted(writer, planned, Action.CLUSTERING)
    with claimed(writer.transactions, planned, OperationType.CLUSTER) as work:
        # It asks for no heartbeat before that.
        assert shared.java.purge_clustering(shared.uri, planned)
        assert planned in shared.fold().void
        assert work.is_given_up()
    with pytest.raises(Conflict):
        Clustering(writer).execute(planned)
    shared.goes_on()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_a_plan_of_java_is_cancelled_and_java_plans_anew(
    shared: Shared, service: str, *, known: bool
) -> None:
    planned = shared.java_planned(service)
    if known:
        adopted(shared.table.writer(), planned, Action(service))
    assert cancel(shared.table.writer(), planned, force=True).instant == planned
    assert shared.pending() == []
    again = shared.java_planned(service)
    assert again != planned
    assert shared.java.execute(service, shared.uri, again) == again
    shared.goes_on()


def test_hudis_java_client_does_not_execute_log_compactions_and_leaves_ours(shared: Shared) -> None:
    planned = shared.planned("log_compaction")
    with pytest.raises(AssertionError, match="Log compaction is not supported for this execution"):
        shared.java.execute("log_compaction", shared.uri, planned)
    assert shared.table.log_compact().executed
    shared.check()
