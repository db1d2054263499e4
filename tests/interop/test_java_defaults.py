"""Spark jobs with Hudi's default settings next to an open table of ours.

Without a lock, with the metadata table enabled, and in the machine's time zone: either both sides
read the right rows, or our write is refused before anything is written and `doctor` reports why.
These tests take minutes and need their own Spark, so they run with `make interop-spark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from testkit.judges import rows_of
from testkit.judges.hudi_spark import BUNDLES, HudiSpark
from tests.interop.conftest import spark_in
from tests.unit.operations.external import contents
from tidelock.core.errors import Unsupported
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.properties import load_properties
from tidelock.inspect.findings import Level
from tidelock.inspect.table_doctor import DoctorTarget, examine_table
from tidelock.storage.uri import open_store

pytestmark = [pytest.mark.apache_spark, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("by", pa.string())])
WEST, EAST = "America/Los_Angeles", "Asia/Kolkata"
ZONES = [
    pytest.param((version, zone), id=f"{version}-{zone.partition('/')[2]}")
    for version in BUNDLES
    for zone in (WEST, EAST)
]
DEFAULTS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    # Neither setting changes what is written; they limit resource usage.
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
}
NO_METADATA_TABLE = {**DEFAULTS, "hoodie.metadata.enable": "false"}
MENDING = {
    "tidelock.metadata.table.policy": "disable",
    "tidelock.timeline.timezone.policy": "utc",
}


class SparkInZone:
    """A Spark in one time zone."""

    def __init__(self, spark: HudiSpark, zone: str) -> None:
        """Use this Spark."""
        self.spark = spark
        self.zone = zone

    def job(self, uri: str, ids: list[int], ts: int, options: dict[str, str]) -> None:
        """Upsert some rows."""
        rows = [{"id": key, "ts": ts, "by": "java"} for key in ids]
        self.spark.write(uri, pa.Table.from_pylist(rows, SCHEMA), options)

    def rows(self, uri: str) -> dict[int, str]:
        """Return the last writer of each row, after checking that both sides read the same rows."""
        with tl.Table.open(uri) as table:
            ours = rows_of(table.read(meta_columns=True))
        assert self.spark.snapshot(uri) == ours
        assert len({each["id"] for each in ours}) == len(ours)
        return {each["id"]: each["by"] for each in ours}


@pytest.fixture(scope="module", params=ZONES)
def spark_job(request: pytest.FixtureRequest) -> Iterator[SparkInZone]:
    """Return a Spark with a Hudi release in a time zone, or skip."""
    version, zone = request.param
    with spark_in(version, zone) as spark:
        yield SparkInZone(spark, zone)


@pytest.fixture(params=ZONES)
def own_spark(request: pytest.FixtureRequest) -> Iterator[SparkInZone]:
    """Return a Spark that has written no other table.

    One Java process never generates an instant before its last one: after a table in UTC it would
    wait for hours before it writes one in a western local time.
    """
    version, zone = request.param
    with spark_in(version, zone) as spark:
        yield SparkInZone(spark, zone)


def ours(key: int, ts: int) -> list[dict[str, Any]]:
    return [{"id": key, "ts": ts, "by": "us"}]


def created(tmp_path: Path, table_type: str = "COPY_ON_WRITE") -> tl.Table:
    uri = str(tmp_path / "orders")
    table = tl.Table.create(uri, SCHEMA, key="id", ordering="ts", type=table_type, name="orders")
    table.insert([{"id": key, "ts": 1, "by": "us"} for key in range(4)])
    return table


def problems(uri: str) -> str:
    """Return the findings of `doctor`."""
    store = open_store(uri)
    target = DoctorTarget(store, load_properties(store), {}, SystemClock(), SystemIds())
    found = examine_table(target).findings
    store.close()
    return "\n".join(
        f"{each.message} {each.advice}" for each in found if each.level is not Level.OK
    )


def assert_refused(table: tl.Table, why: str) -> None:
    """Expect every kind of change to be refused, with nothing written."""
    base = Path(table.uri.removeprefix("file://"))
    before = contents(base)
    for change in (
        lambda: table.upsert(ours(2, 9)),
        lambda: table.bulk_insert(ours(77, 9)),
        table.compact,
        table.cluster,
        table.clean,
        table.archive,
        table.savepoint,
        table.rollback,
    ):
        with pytest.raises(Unsupported, match=why):
            change()
    assert contents(base) == before


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_job_without_a_metadata_table_and_an_open_table_keep_each_others_rows(
    spark_job: SparkInZone, tmp_path: Path, table_type: str
) -> None:
    with created(tmp_path, table_type) as table:
        uri = table.uri.removeprefix("file://")
        spark_job.job(uri, [1, 9], 3, NO_METADATA_TABLE)
        table.upsert(ours(2, 4))
        spark_job.job(uri, [3, 10], 5, NO_METADATA_TABLE)
        table.refresh()
        table.upsert(ours(0, 6))
        expected = {0: "us", 1: "java", 2: "us", 3: "java", 9: "java", 10: "java"}
        assert spark_job.rows(uri) == expected
        now = datetime.now(UTC)
        for instant in table.timeline:
            made = datetime.strptime(instant.requested[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            assert abs(made - now) < timedelta(minutes=15), "Spark keeps to the table's time zone"
    assert "no lock" in problems(uri)


def test_open_table_refuses_the_metadata_table_of_a_default_job(
    spark_job: SparkInZone, tmp_path: Path
) -> None:
    with created(tmp_path) as table:
        uri = table.uri.removeprefix("file://")
        table.upsert(ours(0, 2))
        spark_job.job(uri, [1, 9], 3, DEFAULTS)
        assert_refused(table, "metadata table")
        table.refresh()
        assert_refused(table, "metadata table")
    expected = {0: "us", 1: "java", 2: "us", 3: "us", 9: "java"}
    assert spark_job.rows(uri) == expected
    assert "has a metadata table" in problems(uri)

    with tl.Table.open(uri, options=MENDING) as table:
        table.upsert(ours(2, 4))
        assert spark_job.rows(uri) == expected
        spark_job.job(uri, [3], 5, DEFAULTS)
        table.upsert(ours(1, 6))
    assert spark_job.rows(uri) == expected | {3: "java", 1: "us"}


def test_table_created_by_a_default_job_is_refused_until_it_is_in_utc(
    own_spark: SparkInZone, tmp_path: Path
) -> None:
    spark_job = own_spark
    uri = str(tmp_path / "orders")
    spark_job.job(uri, list(range(5)), 1, DEFAULTS)
    with tl.Table.open(uri) as table:
        assert not table.properties.is_utc
        assert_refused(table, "metadata table|local time")
    findings = problems(uri)
    assert "local time" in findings
    assert "has a metadata table" in findings
    with tl.Table.open(uri, options={"tidelock.metadata.table.policy": "disable"}) as table:
        assert_refused(table, "local time")

    with tl.Table.open(uri, options=MENDING) as table:
        if spark_job.zone == EAST:
            # Its instants are ahead of UTC: only waiting helps.
            assert_refused(table, "up to")
            return
        table.upsert(ours(2, 2))
        assert spark_job.rows(uri) == dict.fromkeys(range(5), "java") | {2: "us"}
        spark_job.job(uri, [3, 2], 3, DEFAULTS)
        assert spark_job.rows(uri) == dict.fromkeys(range(5), "java")
        table.upsert(ours(4, 4))
        assert spark_job.rows(uri) == dict.fromkeys(range(5), "java") | {4: "us"}
