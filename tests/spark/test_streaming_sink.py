"""`writeStream.format("tidelock")`: each micro-batch is committed exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidelock as tl
from tests.unit.doubles import ManualClock
from tidelock.core.errors import (
    ConfigInvalid,
    InvalidInput,
    OutcomeUnknown,
    StoreUnreachable,
    TidelockError,
)
from tidelock.operations.report import WriteReport
from tidelock.spark.datasource.write import Operation
from tidelock.spark.streaming import sink as sinks
from tidelock.spark.streaming.sink import QUERY, SINK_CHECKPOINT, Sink
from tidelock.txn.app_transactions import AppTransaction

SCHEMA = "id string, day string, ts bigint, name string"
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
}
Row = tuple[str, str, int, str]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return tl.enable(spark)


class Inbox:
    """The source folder of a stream: each file is one micro-batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        folder.mkdir()

    def put(self, *rows: Row) -> None:
        self.files += 1
        names = ("id", "day", "ts", "name")
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        (self.folder / f"{self.files:03}.json").write_text("\n".join(lines))

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


def ran(
    data: DataFrame, uri: Path, options: Mapping[str, str] | None = None, **extra: str
) -> StreamingQuery:
    """Process all available input of a stream; return its query."""
    writer = data.writeStream.format("tidelock").options(**{**OPTIONS, **(options or {})})
    for name, value in extra.items():
        writer = getattr(writer, name)(value)
    if "checkpointLocation" not in (options or {}):
        writer = writer.option("checkpointLocation", f"{uri}-checkpoint")
    query = writer.trigger(availableNow=True).start(str(uri))
    assert query.awaitTermination(240)
    return query


def rows_of(uri: Path) -> list[Row]:
    with tl.Table.open(str(uri)) as table:
        found = table.read(["id", "day", "ts", "name"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def batches(uri: Path) -> list[str]:
    """Return the batch numbers of the commits of a table, in order."""
    with tl.Table.open(str(uri)) as table:
        timeline = table._snapshot.timeline
        metadata = [
            timeline.commit(i).extra_metadata.get(SINK_CHECKPOINT) for i in timeline.writes()
        ]
    return [text for text in metadata if text]


A, B, C = ("a", "d1", 1, "Ann"), ("b", "d1", 1, "Bob"), ("c", "d2", 1, "Cid")


def test_batch_that_spark_repeats_after_a_crash_is_not_inserted_twice(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    uri, insert = tmp_path / "orders", {"hoodie.datasource.write.operation": "insert"}
    inbox.put(A)
    inbox.put(B)
    first = ran(inbox.stream(session), uri, insert)
    assert rows_of(uri) == [A, B]
    # The table has the batch, but Spark has not recorded it.
    for name in ("1", ".1.crc"):
        (tmp_path / "orders-checkpoint" / "commits" / name).unlink()
    inbox.put(C)
    again = ran(inbox.stream(session), uri, insert)
    assert again.id == first.id
    assert [progress["batchId"] for progress in again.recentProgress] == [1, 2]
    assert rows_of(uri) == [A, B, C]
    assert [json.loads(text) for text in batches(uri)] == [{first.id: str(n)} for n in range(3)]
    with tl.Table.open(str(uri)) as table:
        metadata = {SINK_CHECKPOINT: json.dumps({first.id: "2"}), QUERY: str(first.id)}
        assert table.app_transaction(str(first.id)) == AppTransaction(str(first.id), 2, metadata)


def test_streams_with_different_names_share_a_table(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    uri, other = tmp_path / "orders", Inbox(tmp_path / "other")
    inbox.put(A, B)
    other.put(("b", "d1", 2, "Ben"), C)
    for name, source in (("eu", inbox), ("us", other)):
        extra = {
            "hoodie.datasource.write.streaming.checkpoint.identifier": name,
            "checkpointLocation": str(tmp_path / name),
        }
        ran(source.stream(session), uri, extra)
    assert rows_of(uri) == [A, ("b", "d1", 2, "Ben"), C]
    with tl.Table.open(str(uri)) as table:
        for name in ("eu", "us"):
            app_transaction = table.app_transaction(name)
            assert app_transaction is not None
            assert app_transaction.version == 0


def test_second_query_with_the_same_name_is_rejected(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    uri, name = tmp_path / "orders", "hoodie.datasource.write.streaming.checkpoint.identifier"
    inbox.put(A)
    ran(inbox.stream(session), uri, {name: "eu", "checkpointLocation": str(tmp_path / "1")})
    with pytest.raises(StreamingQueryException, match="set a unique hoodie"):
        ran(inbox.stream(session), uri, {name: "eu", "checkpointLocation": str(tmp_path / "2")})
    assert rows_of(uri) == [A]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_upserts_and_deletes_of_a_partitioned_stream(
    session: SparkSession, inbox: Inbox, tmp_path: Path, kind: str
) -> None:
    uri, of_kind = tmp_path / "orders", {"hoodie.datasource.write.table.type": kind}
    inbox.put(A, B)
    inbox.put(("a", "d1", 2, "Amy"), C)
    ran(inbox.stream(session), uri, of_kind, partitionBy="day")
    assert rows_of(uri) == [("a", "d1", 2, "Amy"), B, C]
    with tl.Table.open(str(uri)) as table:
        assert table.properties.partition_fields == ("day",)
    gone = Inbox(tmp_path / "gone")
    gone.put(B)
    delete = {"hoodie.datasource.write.operation": "delete", "checkpointLocation": str(uri / "d")}
    ran(gone.stream(session), uri, delete)
    assert rows_of(uri) == [("a", "d1", 2, "Amy"), C]


def test_complete_result_replaces_the_table_each_time(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    uri = tmp_path / "days"
    inbox.put(A, B)
    inbox.put(C)
    counts = inbox.stream(session).groupBy("day").count()
    keyed = {
        "hoodie.datasource.write.recordkey.field": "day",
        "hoodie.table.ordering.fields": "day",
    }
    ran(counts, uri, keyed, outputMode="complete")
    with tl.Table.open(str(uri)) as table:
        assert {row["day"]: row["count"] for row in table.read().to_pylist()} == {"d1": 2, "d2": 1}
        assert [entry.operation for entry in table.history(2)] == ["INSERT_OVERWRITE_TABLE"] * 2


def test_stream_without_a_checkpoint_location_does_not_start(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    writer = inbox.stream(session).writeStream.format("tidelock").options(**OPTIONS)
    with pytest.raises(ConfigInvalid, match="checkpointLocation"):
        writer.start(str(tmp_path / "orders"))


def test_unknown_option_of_a_stream_is_named_before_it_starts(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    wrong = "hoodie.datasource.write.streaming.retry.counts"
    writer = inbox.stream(session).writeStream.format("tidelock").option(wrong, 1)
    writer.option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(ConfigInvalid, match=wrong) as caught:
        writer.start(str(tmp_path / "orders"))
    assert "did you mean hoodie.datasource.write.streaming.retry.count?" in caught.value.hint


def test_streams_of_other_formats_are_unchanged(
    session: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    inbox.put(A, C)
    writer = inbox.stream(session).writeStream.format("parquet").partitionBy("day")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert writer.start(str(tmp_path / "out")).awaitTermination(240)
    assert sorted(p.name for p in (tmp_path / "out").glob("day=*")) == ["day=d1", "day=d2"]


class FakeFrame:
    """A frame that only provides the query id of its session."""

    def __getattr__(self, name: str) -> Any:
        return self

    def close(self) -> None:
        pass

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        return "query-1"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[AppTransaction]]:
    """Return a function that makes the writes of a sink fail with the given errors in turn."""

    def with_errors(*errors: TidelockError) -> list[AppTransaction]:
        left, seen = list(errors), list[AppTransaction]()

        def write_frame(*_: Any, app_transaction: AppTransaction, **__: Any) -> WriteReport:
            seen.append(app_transaction)
            if left:
                raise left.pop(0)
            return WriteReport("upsert", "1", "2")

        monkeypatch.setattr(sinks, "write_frame", write_frame)
        monkeypatch.setattr(sinks, "open_or_create", lambda *_: FakeFrame())
        return seen

    return with_errors


def sink_of(**options: object) -> tuple[Sink, ManualClock]:
    clock = ManualClock()
    prefix = "hoodie.datasource.write.streaming."
    named = {prefix + name.replace("_", "."): value for name, value in options.items()}
    return Sink("memory://t", Operation.UPSERT, named, clock=clock), clock


def test_batch_is_retried_with_the_same_app_transaction(
    failing: Callable[..., list[AppTransaction]],
) -> None:
    seen = failing(StoreUnreachable("gone"), OutcomeUnknown("who knows"))
    sink, clock = sink_of()
    before = clock.now().monotonic_ms
    sink(FakeFrame(), 4)  # type: ignore[arg-type]
    assert [(app_transaction.app_id, app_transaction.version) for app_transaction in seen] == [
        ("query-1", 4)
    ] * 3
    assert clock.now().monotonic_ms - before == 2_000 + 4_000


def test_batch_that_can_never_succeed_fails_at_once(
    failing: Callable[..., list[AppTransaction]],
) -> None:
    seen = failing(InvalidInput("the column is missing"))
    sink, _ = sink_of()
    with pytest.raises(InvalidInput) as caught:
        sink(FakeFrame(), 4)  # type: ignore[arg-type]
    assert len(seen) == 1
    assert caught.value.__cause__ is None, "a long text would end the query without a word"


def test_retries_are_limited_and_a_failed_batch_can_be_ignored(
    failing: Callable[..., list[AppTransaction]],
) -> None:
    seen = failing(*[StoreUnreachable("gone")] * 5)
    sink, _ = sink_of(retry_count=1)
    with pytest.raises(StoreUnreachable):
        sink(FakeFrame(), 0)  # type: ignore[arg-type]
    assert len(seen) == 2
    sink, _ = sink_of(retry_count=1, ignore_failed_batch="true")
    sink(FakeFrame(), 0)  # type: ignore[arg-type]
    assert len(seen) == 4
