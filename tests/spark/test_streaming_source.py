"""`readStream.format("tidelock")`: every change is read once, in order, within the limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import tidelock as tl
from tidelock.core.errors import ConfigInvalid, NotFound
from tidelock.operations.read import completed_writes
from tidelock.spark.options import BYTES_MAX, COMMITS_MAX, START
from tidelock.spark.streaming.source import COMPLETION, ChangeStreamReader
from tidelock.storage.contract import ObjectMeta
from tidelock.storage.uri import StoreAddress, open_store

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return tl.enable(spark)


@pytest.fixture
def table(tmp_path: Path) -> Iterable[tl.Table]:
    with tl.Table.create(str(tmp_path / "t"), SCHEMA, key="id", type="MERGE_ON_READ") as made:
        yield made


def changed(table: tl.Table, *ids: int, v: int = 0) -> str:
    return table.upsert([{"id": number, "v": v} for number in ids]).completion


def stream(session: SparkSession, table: tl.Table, **options: object) -> DataFrame:
    named = {START.key: "earliest"} | {key: str(value) for key, value in options.items()}
    return session.readStream.format("tidelock").options(**named).load(table.uri)


def followed(data: DataFrame, out: Path) -> StreamingQuery:
    """Write all available changes of a stream to files."""
    writer = data.select("id", "v", "_hoodie_commit_time").writeStream.format("json")
    query = writer.option("checkpointLocation", f"{out}-c").start(str(out))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query


def seen(session: SparkSession, out: Path) -> list[tuple[int, int]]:
    return sorted((row.id, row.v) for row in session.read.json(str(out)).collect())


def test_stream_resumes_and_limits_commits_per_batch(
    session: SparkSession, table: tl.Table, tmp_path: Path
) -> None:
    for number in range(3):
        changed(table, number, number + 10)
    out, pace = tmp_path / "out", {COMMITS_MAX.key: 2}
    first = followed(stream(session, table, **pace), out)
    assert len([p for p in first.recentProgress if p["numInputRows"]]) == 2
    expected = [(n, 0) for n in (0, 1, 2, 10, 11, 12)]
    assert seen(session, out) == expected
    changed(table, 0, v=1)
    changed(table, 20, v=1)
    table.compact()
    followed(stream(session, table, **pace), out)
    assert seen(session, out) == sorted([*expected, (0, 1), (20, 1)])


def test_batch_that_was_planned_before_a_crash_has_the_same_rows_after_it(
    session: SparkSession, table: tl.Table, tmp_path: Path
) -> None:
    changed(table, 1, 2)
    out = tmp_path / "out"
    followed(stream(session, table), out)
    for folder in (tmp_path / "out-c" / "commits", out / "_spark_metadata"):
        for name in ("0", ".0.crc"):
            (folder / name).unlink(missing_ok=True)
    changed(table, 1, v=5)
    followed(stream(session, table), out)
    assert seen(session, out) == [(1, 0), (1, 5), (2, 0)]


def reader(table: tl.Table, **options: object) -> ChangeStreamReader:
    """Return the stream reader, without Spark."""
    return ChangeStreamReader(StoreAddress(table.uri), options, StructType().add("id", "long"))


def test_start_offset_of_a_stream(table: tl.Table) -> None:
    first = changed(table, 1)
    last = changed(table, 2)
    assert reader(table).latestOffset() == {COMPLETION: last}
    assert reader(table, **{START.key: "latest"}).initialOffset() == {COMPLETION: last}
    after = reader(table, **{START.key: first, COMMITS_MAX.key: 1})
    assert after.initialOffset() == {COMPLETION: first}
    assert after.latestOffset() == {COMPLETION: last}
    assert after.initialOffset() == {COMPLETION: first}, "though it has been read further"
    with pytest.raises(ConfigInvalid, match=r"startOffset: expected .*, got 'newest'"):
        reader(table, **{START.key: "newest"}).initialOffset()


def test_batch_has_at_least_one_commit_and_more_within_the_limit(table: tl.Table) -> None:
    start = table.latest_completion
    ends = [changed(table, number) for number in range(4)]
    tiny = reader(table, **{START.key: start, BYTES_MAX.key: 1})
    assert [tiny.latestOffset()[COMPLETION] for _ in range(5)] == [*ends, ends[-1]]
    unlimited = reader(table, **{START.key: start, BYTES_MAX.key: 10**9})
    assert unlimited.latestOffset()[COMPLETION] == ends[-1]
    with pytest.raises(ConfigInvalid, match="expected 1 or more, got"):
        reader(table, **{COMMITS_MAX.key: 0}).latestOffset()


def test_empty_range_has_no_partitions_and_a_restart_sets_the_offset(table: tl.Table) -> None:
    first = changed(table, 1)
    last = changed(table, 2)
    again = reader(table, **{COMMITS_MAX.key: 1})
    assert again.partitions({COMPLETION: first}, {COMPLETION: first}) == []
    assert again.latestOffset() == {COMPLETION: last}


def test_commit_listed_before_an_earlier_one_is_not_skipped(
    table: tl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing is not atomic: an earlier file may appear while it runs."""
    begin = table.latest_completion
    first, last = changed(table, 1), changed(table, 2)
    store = open_store(table.uri)
    listed = store.list
    listings = 0

    def torn(prefix: str, **more: Any) -> Iterator[ObjectMeta]:
        nonlocal listings
        listings += "timeline" in prefix
        hidden = f"_{first}." if listings == 1 else None
        return (meta for meta in listed(prefix, **more) if not hidden or hidden not in meta.key)

    monkeypatch.setattr(store, "list", torn)
    _, writes = completed_writes(store, str(begin))
    assert [each.completion for each in writes] == [first, last]
    assert listings > 1


def test_stream_fails_if_its_files_were_cleaned(table: tl.Table) -> None:
    begin = {COMPLETION: str(table.latest_completion)}
    options = {"hoodie.clean.commits.retained": "1", "hoodie.clean.automatic": "false"}
    with tl.Table.open(table.uri, options=options) as owner:
        behind = changed(owner, *range(3))
        for v in range(1, 4):
            changed(owner, *range(3), v=v)
            owner.compact()
        owner.clean()
    with pytest.raises(NotFound, match="clean"):
        reader(table).partitions(begin, {COMPLETION: behind})
