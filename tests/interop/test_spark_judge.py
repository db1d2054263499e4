"""Apache Hudi's data source on Apache Spark reads our tables, and writes into them.

These tests take minutes and need their own Spark, so they run with `make interop-spark`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from testkit.judges import Judge, rows_of
from testkit.judges.hudi_spark import HudiSpark
from tests.interop.stories import KINDS, SCHEMA, TYPES, Kind, Row, StoryTable, make, row, run_story
from tidelock.inspect.validate import validate
from tidelock.storage.uri import open_store

pytestmark = [pytest.mark.apache_spark, pytest.mark.timeout(600)]

BEGINNING = "00000000000000000"
CASES = [
    pytest.param(kind, table_type, version, id=f"{kind.name}-{table_type}-v{version}")
    for kind in KINDS
    for table_type in TYPES
    for version in ((8, 9) if kind.name == "flat" else (9,))
]


def writer_options(made: StoryTable) -> dict[str, str]:
    """Return the options of a Spark job that shares this table with us."""
    with made.open() as table:
        properties = table.properties
    return {
        "hoodie.table.name": properties.name,
        "hoodie.datasource.write.recordkey.field": ",".join(properties.record_keys),
        "hoodie.datasource.write.partitionpath.field": ",".join(properties.partition_fields),
        "hoodie.datasource.write.hive_style_partitioning": str(properties.hive_style).lower(),
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.metadata.enable": "false",
        "hoodie.write.auto.upgrade": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
        ),
    }


class FoldersAsText:
    """Spark's reader of a table that is partitioned by time.

    Hudi's data source returns the partition column as a string, because the folder name is one. The
    value itself is correct.
    """

    def __init__(self, judge: HudiSpark) -> None:
        """Wrap the reader."""
        self._judge = judge

    @property
    def name(self) -> str:
        """Return the name of the reader."""
        return self._judge.name

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the rows, with the partition column as a number."""
        return [_numbered(row) for row in self._judge.snapshot(table, as_of)]

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files only."""
        return [_numbered(row) for row in self._judge.read_optimized(table)]

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the changes."""
        return [_numbered(row) for row in self._judge.changes(table, since, until)]


def _numbered(row: Row) -> Row:
    return {**row, "seen_ms": int(row["seen_ms"])}


def judge_of(kind: Kind, judge: HudiSpark) -> Judge:
    """Return the reader for tables of this kind."""
    return FoldersAsText(judge) if kind.name == "by-time" else judge


@pytest.mark.parametrize(("kind", "table_type", "version"), CASES)
def test_spark_reads_our_tables(
    kind: Kind, table_type: str, version: int, tmp_path: Path, hudi_spark_judge: HudiSpark
) -> None:
    made = make(tmp_path, kind, table_type, version)
    run_story(made)
    judge = judge_of(kind, hudi_spark_judge)
    with made.open() as table:
        assert judge.snapshot(made.uri) == rows_of(table.read(meta_columns=True))
        optimized = rows_of(table.read(meta_columns=True, read_optimized=True))
        assert judge.read_optimized(made.uri) == optimized
        writes = [i for i in table.timeline if i.is_completed and i.action.writes_data]
        for instant in writes[3::3]:
            then = rows_of(table.read(meta_columns=True, as_of=instant.requested))
            assert judge.snapshot(made.uri, instant.requested) == then
            changed = rows_of(table.changes(instant.completion, meta_columns=True))
            assert judge.changes(made.uri, instant.completion) == changed
        every = rows_of(table.changes(BEGINNING, meta_columns=True))
        assert judge.changes(made.uri, BEGINNING) == every


@pytest.mark.parametrize(("kind", "table_type", "version"), CASES)
def test_spark_upserts_into_our_table_and_we_continue(
    kind: Kind, table_type: str, version: int, tmp_path: Path, hudi_spark_judge: HudiSpark
) -> None:
    made = make(tmp_path, kind, table_type, version)
    with made.open() as table:
        table.insert([row(n) for n in range(1, 8)])
        table.upsert([row(n, 2) for n in (1, 2)])
    options = {**writer_options(made), **kind.options}
    hudi_spark_judge.write(made.uri, _table([row(n, 3) for n in (1, 3, 40)]), options)
    expected = dict.fromkeys(range(1, 8), 1) | {1: 3, 2: 2, 3: 3, 40: 3}
    assert _versions(made, judge_of(kind, hudi_spark_judge)) == expected

    with made.open() as table:
        table.upsert([row(n, 5) for n in (1, 4, 41)])
        table.delete([row(5)])
    expected |= {1: 5, 4: 5, 41: 5}
    del expected[5]
    assert _versions(made, judge_of(kind, hudi_spark_judge)) == expected

    gone = {**options, "hoodie.datasource.write.operation": "delete"}
    hudi_spark_judge.write(made.uri, _table([row(6)]), gone)
    del expected[6]
    assert _versions(made, judge_of(kind, hudi_spark_judge)) == expected


def _table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def _versions(made: StoryTable, judge: Judge) -> dict[int, int]:
    """Return the version of each row, after checking that Spark reads the same rows."""
    with made.open() as table:
        ours = rows_of(table.read(meta_columns=True))
    assert judge.snapshot(made.uri) == ours
    store = open_store(made.uri)
    assert validate(store).problems == ()
    store.close()
    return {each["id"]: each["ts"] for each in ours}
