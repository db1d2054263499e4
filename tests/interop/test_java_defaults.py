"""Spark jobs with Hudi's default settings beside a table of ours that stays open.

No lock, the metadata table switched on, and the time zone of the machine: either the rows are
right for both sides, or ours is refused before anything is written, and `doctor` says why. It takes
minutes and a Spark of its own, so it runs by `make interop-spark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.interop.conftest import spark_in
from tests.unit.operation.foreign import contents
from tidelock.base.clock import SystemClock
from tidelock.base.errors import Unsupported
from tidelock.base.ids import SystemIds
from tidelock.ops.doctor.findings import Level
from tidelock.ops.doctor.table_examining import Patient, examine_table
from tidelock.store.uri import open_store
from tidelock.table.properties_file import load_properties
from tidelock.testing.judges import rows_of
from tidelock.testing.judges.hudi_spark import BUNDLES, HudiSpark

pytestmark = [pytest.mark.apache_spark, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("by", pa.string())])
WEST, EAST = "America/Los_Angeles", "Asia/Kolkata"
PLACES = [
    pytest.param((version, zone), id=f"{version}-{zone.partition('/')[2]}")
    for version in BUNDLES
    for zone in (WEST, EAST)
]
DEFAULTS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    # Neither changes what is written: the machine is small.
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
}
NO_METADATA_TABLE = {**DEFAULTS, "hoodie.metadata.enable": "false"}
MENDING = {
    "tidelock.metadata.table.policy": "disable",
    "tidelock.timeline.timezone.policy": "utc",
}


class Place:
    """A Spark somewhere on earth."""

    def __init__(self, spark: HudiSpark, zone: str) -> None:
        """Take the Spark."""
        self.spark = spark
        self.zone = zone

    def job(self, uri: str, ids: list[int], ts: int, options: dict[str, str]) -> None:
        """Upsert some rows."""
        rows = [{"id": key, "ts": ts, "by": "java"} for key in ids]
        self.spark.write(uri, pa.Table.from_pylist(rows, SCHEMA), options)

    def rows(self, uri: str) -> dict[int, str]:
        """Return who wrote each row last, after both sides have agreed on the rows."""
        with tl.Table.open(uri) as table:
            ours = rows_of(table.read(meta_columns=True))
        assert self.spark.snapshot(uri) == ours
        assert len({each["id"] for each in ours}) == len(ours)
        return {each["id"]: each["by"] for each in ours}


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return a Spark with a release of Hudi in a time zone, or skip."""
    version, zone = request.param
    with spark_in(version, zone) as spark:
        yield Place(spark, zone)


@pytest.fixture(params=PLACES)
def own_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return a Spark that has written no other table.

    One Java process stamps no time before its last one: after a table in UTC it would wait for
    hours before it begins to write one in the local time of the west.
    """
    version, zone = request.param
    with spark_in(version, zone) as spark:
        yield Place(spark, zone)


def ours(key: int, ts: int) -> list[dict[str, Any]]:
    return [{"id": key, "ts": ts, "by": "us"}]


def created(tmp_path: Path, table_type: str = "COPY_ON_WRITE") -> tl.Table:
    uri = str(tmp_path / "orders")
    table = tl.Table.create(uri, SCHEMA, key="id", ordering="ts", type=table_type, name="orders")
    table.insert([{"id": key, "ts": 1, "by": "us"} for key in range(4)])
    return table


def complaints(uri: str) -> str:
    """Return what `doctor` says of a table that is not in order."""
    store = open_store(uri)
    patient = Patient(store, load_properties(store), {}, SystemClock(), SystemIds())
    found = examine_table(patient).findings
    store.close()
    return "\n".join(f"{each.says} {each.advice}" for each in found if each.level is not Level.FINE)


def assert_refused(table: tl.Table, why: str) -> None:
    """Expect every kind of change to be refused, and nothing to be written."""
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
def test_a_job_without_a_metadata_table_and_an_open_table_keep_each_other_s_rows(
    place: Place, tmp_path: Path, table_type: str
) -> None:
    with created(tmp_path, table_type) as table:
        uri = table.uri.removeprefix("file://")
        place.job(uri, [1, 9], 3, NO_METADATA_TABLE)
        table.upsert(ours(2, 4))
        place.job(uri, [3, 10], 5, NO_METADATA_TABLE)
        table.refresh()
        table.upsert(ours(0, 6))
        expected = {0: "us", 1: "java", 2: "us", 3: "java", 9: "java", 10: "java"}
        assert place.rows(uri) == expected
        now = datetime.now(UTC)
        for instant in table.timeline:
            made = datetime.strptime(instant.requested[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            assert abs(made - now) < timedelta(minutes=15), "Spark keeps to the table's time zone"
    assert "no lock" in complaints(uri)


def test_the_metadata_table_of_a_default_job_is_refused_by_an_open_table(
    place: Place, tmp_path: Path
) -> None:
    with created(tmp_path) as table:
        uri = table.uri.removeprefix("file://")
        table.upsert(ours(0, 2))
        place.job(uri, [1, 9], 3, DEFAULTS)
        assert_refused(table, "metadata table")
        table.refresh()
        assert_refused(table, "metadata table")
    expected = {0: "us", 1: "java", 2: "us", 3: "us", 9: "java"}
    assert place.rows(uri) == expected
    assert "has a metadata table" in complaints(uri)

    with tl.Table.open(uri, options=MENDING) as table:
        table.upsert(ours(2, 4))
        assert place.rows(uri) == expected
        place.job(uri, [3], 5, DEFAULTS)
        table.upsert(ours(1, 6))
    assert place.rows(uri) == expected | {3: "java", 1: "us"}


def test_a_table_that_a_default_job_made_is_refused_until_it_is_in_utc(
    own_place: Place, tmp_path: Path
) -> None:
    place = own_place
    uri = str(tmp_path / "orders")
    place.job(uri, list(range(5)), 1, DEFAULTS)
    with tl.Table.open(uri) as table:
        assert not table.properties.is_utc
        assert_refused(table, "metadata table|local time")
    said = complaints(uri)
    assert "local time" in said
    assert "has a metadata table" in said
    with tl.Table.open(uri, options={"tidelock.metadata.table.policy": "disable"}) as table:
        assert_refused(table, "local time")

    with tl.Table.open(uri, options=MENDING) as table:
        if place.zone == EAST:
            # Its times are ahead of UTC: only waiting helps.
            assert_refused(table, "up to")
            return
        table.upsert(ours(2, 2))
        assert place.rows(uri) == dict.fromkeys(range(5), "java") | {2: "us"}
        place.job(uri, [3, 2], 3, DEFAULTS)
        assert place.rows(uri) == dict.fromkeys(range(5), "java")
        table.upsert(ours(4, 4))
        assert place.rows(uri) == dict.fromkeys(range(5), "java") | {4: "us"}
