"""Java Hudi and our executors on the same plans: each respects the other's heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from testkit.java import JavaTables
from tidelock.core.errors import Conflict, WriteConflict
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.services.clustering import Clustering
from tidelock.services.compaction import Compaction, load_plan
from tidelock.services.pending import cancel, pending_services
from tidelock.services.plans import claimed, import_external_plan
from tidelock.services.runner import clustering, compaction, log_compaction
from tidelock.storage.uri import open_store
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.state import LedgerState

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "tidelock.write.mixed": "true",
    # Both sides use the same clock here.
    "hoodie.time.generator.max_expected_clock_skew_ms": "5",
}
SERVICES = {"compaction": compaction, "log_compaction": log_compaction, "clustering": clustering}


class Shared:
    """A merge-on-read table with log files, maintained by both sides."""

    def __init__(self, uri: str, java: JavaTables) -> None:
        """Create the table."""
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
        """Schedule a service of ours; return its instant."""
        scheduled = SERVICES[service](self.table.writer(), OPTIONS).schedule()
        assert scheduled is not None
        return scheduled

    def java_planned(self, service: str) -> str:
        """Let Java schedule a service; return its instant."""
        instant = self.java.schedule(service, self.uri)
        assert instant
        return instant

    def state(self) -> LedgerState:
        """Return the ledger state, including Java's instants."""
        return self.table.writer().transactions.ledger.refresh(external=True)

    def pending(self) -> list[str]:
        """Return the instants that Java considers pending."""
        return [
            requested
            for requested, _, state, _ in self.java.timeline(self.uri)
            if state != "COMPLETED"
        ]

    def check(self) -> None:
        """Check that both sides read the same rows and the table is valid."""
        self.table.refresh()
        ours = {row["id"]: row["value"] for row in self.table.read().to_pylist()}
        theirs = {row["id"]: row["value"] for row in self.java.snapshot(self.uri)}
        assert ours == theirs == self.rows
        assert validate(open_store(self.uri), more=[check_ledger]).problems == ()

    def goes_on(self) -> None:
        """Check that both sides read the rows, and that a write and a compaction succeed."""
        self.check()
        assert self.state().plans == {}
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
def test_java_executes_our_plan(shared: Shared, service: str) -> None:
    planned = shared.planned(service)
    assert shared.java.execute(service, shared.uri, planned) == planned
    plans = SERVICES[service](shared.table.writer(), OPTIONS).plans
    with pytest.raises(Conflict):
        plans.execute(planned)
    assert planned in shared.state().committed
    shared.goes_on()


@pytest.mark.parametrize("service", SERVICES)
def test_we_execute_a_plan_of_java(shared: Shared, service: str) -> None:
    planned = shared.java_planned(service)
    (shown,) = pending_services(open_store(shared.uri))
    assert (shown.instant, shown.scheduled_by) == (planned, "an external writer")
    ran = SERVICES[service](shared.table.writer(), OPTIONS).execute_pending()
    assert [each.instant for each in ran.executed] == [planned]
    assert planned in shared.state().committed
    shared.goes_on()


def test_log_files_written_after_a_java_plan_stay_on_top(shared: Shared) -> None:
    planned = shared.java_planned("compaction")
    shared.table.upsert([{"id": "b", "value": 9}])
    shared.rows |= {"b": 9}
    assert Compaction(shared.table.writer()).execute(planned).files_written
    shared.goes_on()


def test_java_reads_the_table_after_each_of_our_services(shared: Shared) -> None:
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


def test_java_skips_a_plan_that_we_are_executing(shared: Shared) -> None:
    planned = shared.planned("compaction")
    transactions = shared.table.writer().transactions
    with claimed(transactions, planned, OperationType.COMPACT):
        with pytest.raises(AssertionError, match="heartbeat"):
            shared.java.execute("compaction", shared.uri, planned)
        assert transactions.ledger.refresh().plans[planned].attempt == 1
    shared.table.compact()
    shared.check()


@pytest.mark.parametrize("ours", [True, False])
def test_we_skip_a_plan_that_java_is_executing(shared: Shared, *, ours: bool) -> None:
    planned = shared.planned("compaction") if ours else shared.java_planned("compaction")
    shared.java.heartbeat(shared.uri, planned)
    with pytest.raises(Conflict, match="another writer is executing it"):
        Compaction(shared.table.writer()).execute(planned)
    shared.java.heartbeat(shared.uri, planned, active=False)
    assert Compaction(shared.table.writer()).execute(planned).files_written == 1
    shared.check()


def test_java_completes_its_plan_during_our_execution_and_ours_yields(shared: Shared) -> None:
    planned = shared.java_planned("compaction")
    writer = shared.table.writer()
    service = Compaction(writer)
    import_external_plan(writer, planned, Action.COMPACTION)
    with claimed(writer.transactions, planned, OperationType.COMPACT) as work:
        plan = load_plan(writer, planned, Action.COMPACTION)
        results = service._rewrite(plan, work)
        # As if our process had been suspended past its heartbeat's lifetime.
        writer.store.delete(heartbeat_key(planned))
        assert shared.java.execute("compaction", shared.uri, planned) == planned
        with pytest.raises(WriteConflict, match="already complete"):
            service._commit(work, plan, results)
    shared.goes_on()


def test_java_rolls_back_a_plan_that_we_claimed(shared: Shared) -> None:
    planned = shared.java_planned("clustering")
    writer = shared.table.writer()
    import_external_plan(writer, planned, Action.CLUSTERING)
    with claimed(writer.transactions, planned, OperationType.CLUSTER) as work:
        # Java does not check for a heartbeat before that.
        assert shared.java.purge_clustering(shared.uri, planned)
        assert planned in shared.state().aborted
        assert work.is_aborted()
    with pytest.raises(Conflict):
        Clustering(writer).execute(planned)
    shared.goes_on()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_cancelled_java_plan_is_rescheduled_by_java(
    shared: Shared, service: str, *, known: bool
) -> None:
    planned = shared.java_planned(service)
    if known:
        import_external_plan(shared.table.writer(), planned, Action(service))
    assert cancel(shared.table.writer(), planned, force=True).instant == planned
    assert shared.pending() == []
    again = shared.java_planned(service)
    assert again != planned
    assert shared.java.execute(service, shared.uri, again) == again
    shared.goes_on()


def test_java_client_does_not_execute_log_compactions_and_leaves_ours(shared: Shared) -> None:
    planned = shared.planned("log_compaction")
    with pytest.raises(AssertionError, match="Log compaction is not supported for this execution"):
        shared.java.execute("log_compaction", shared.uri, planned)
    assert shared.table.log_compact().executed
    shared.check()
