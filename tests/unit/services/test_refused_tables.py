"""Tables that must not be modified are refused by every service, before anything is written.

A metadata table would miss the changes of a service, so Java's readers would see rows twice or not
at all; and on a timeline in local time the later of two instants may have the smaller timestamp.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.external import contents, path_of, set_properties, with_metadata_table
from tidelock.core.errors import TidelockError, Unsupported
from tidelock.hudi.properties import METADATA_INFLIGHT, TIMEZONE
from tidelock.services.clustering import Clustering
from tidelock.services.pending import cancel
from tidelock.services.runner import clustering, compaction, log_compaction

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("day", pa.string())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.partition.ttl.strategy.days.retain": "1",
    "hoodie.log.compaction.blocks.threshold": "1",
    "hoodie.parquet.small.file.limit": "0",
}


def rows(ts: int) -> list[dict[str, Any]]:
    return [{"id": key, "ts": ts, "day": "d"} for key in range(3)]


@pytest.fixture(scope="module")
def table_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a table with work for every service."""
    base = tmp_path_factory.mktemp("made") / "orders"
    table = tl.Table.create(
        str(base),
        SCHEMA,
        key="id",
        ordering="ts",
        partition_by="day",
        type="MERGE_ON_READ",
        options=OPTIONS,
    )
    table.insert(rows(1))
    table.savepoint()
    table.insert([{"id": 9, "ts": 1, "day": "d"}])
    for ts in range(2, 8):
        table.upsert(rows(ts))
        if ts % 2:
            table.compact()
    for ts in (8, 9, 10):
        table.upsert(rows(ts))
    table.close()
    return base


def copied(table_folder: Path, to: Path, options: dict[str, str] | None = None) -> tl.Table:
    """Return a copy of the table."""
    shutil.copytree(table_folder, to)
    table = tl.Table.open(str(to), options=options or OPTIONS)
    table.writer().view()
    return table


def last(table: tl.Table) -> str:
    return max(i.requested for i in table.timeline if i.is_completed and i.action.writes_data)


def first(table: tl.Table) -> str:
    (saved,) = table.savepoints()
    return saved.instant


CHANGES: dict[str, Callable[[tl.Table], object]] = {
    "insert": lambda t: t.insert(rows(30)),
    "upsert": lambda t: t.upsert(rows(30)),
    "delete": lambda t: t.delete([{"id": 1, "day": "d"}]),
    "bulk_insert": lambda t: t.bulk_insert(rows(30)),
    "insert_overwrite": lambda t: t.insert_overwrite(rows(30)),
    "delete_partition": lambda t: t.delete_partition(["d"]),
    "compact": lambda t: t.compact(),
    "log_compact": lambda t: t.log_compact(),
    "cluster": lambda t: t.cluster(),
    "clean": lambda t: t.clean(),
    "archive": lambda t: t.archive(),
    "rollback": lambda t: t.rollback(),
    "rollback-last": lambda t: t.rollback(last(t)),
    "savepoint": lambda t: t.savepoint(),
    "delete_savepoint": lambda t: t.delete_savepoint(first(t)),
    "restore": lambda t: t.restore(first(t)),
    "expire_partitions": lambda t: t.expire_partitions(),
    "schedule-compaction": lambda t: compaction(t.writer(), OPTIONS).schedule(),
    "schedule-log-compaction": lambda t: log_compaction(t.writer(), OPTIONS).schedule(),
    "schedule-clustering": lambda t: clustering(t.writer(), OPTIONS).schedule(),
    "execute-clustering": lambda t: Clustering(t.writer()).execute("20260101000000000"),
    "cancel": lambda t: cancel(t.writer(), "20260101000000000"),
    "recover": lambda t: t.writer().transactions.recover(delay_ms=0),
    "remove-plan": lambda t: t.writer().transactions.remove_plan("20260101000000000", delay_ms=0),
}
MADE: dict[str, tuple[Callable[[Path], None], str]] = {
    "metadata-table": (with_metadata_table, "metadata table"),
    "metadata-table-being-built": (
        lambda base: set_properties(base, {METADATA_INFLIGHT: "files"}),
        "metadata table",
    ),
    "local-time": (lambda base: set_properties(base, {TIMEZONE: "LOCAL"}), "local time"),
    "no-time-zone": (lambda base: set_properties(base, {TIMEZONE: None}), "local time"),
}


@pytest.mark.parametrize("opened", ["before", "after"])
@pytest.mark.parametrize("kind", MADE)
def test_every_change_is_refused_before_anything_is_written(
    table_folder: Path, tmp_path: Path, kind: str, opened: str
) -> None:
    make, why = MADE[kind]
    with copied(table_folder, tmp_path / "orders") as first_opened:
        base = path_of(first_opened)
        make(base)
        before = contents(base)
        for name, change in CHANGES.items():
            later = tl.Table.open(str(base), options=OPTIONS)
            with later:
                table = first_opened if opened == "before" else later
                with pytest.raises(Unsupported, match=why) as refused:
                    change(table)
                assert refused.value.hint, name
                assert "tidelock." in refused.value.hint, name
            assert contents(base) == before, name
        assert first_opened.savepoints()
        assert first_opened.read().num_rows == 4


def test_every_change_in_the_list_has_an_effect_on_a_normal_table(
    table_folder: Path, tmp_path: Path
) -> None:
    """Proves that the test above can fail."""
    unchanged = set()
    for number, (name, change) in enumerate(CHANGES.items()):
        with copied(table_folder, tmp_path / str(number)) as table:
            before = contents(path_of(table))
            try:
                change(table)
            except TidelockError:
                assert name in ("execute-clustering", "cancel"), name
            if contents(path_of(table)) == before:
                unchanged.add(name)
    # There is nothing dead, expired or scheduled.
    without_work = {"rollback", "expire_partitions", "recover", "remove-plan"}
    assert unchanged <= {*without_work, "cancel", "execute-clustering"}


@pytest.mark.parametrize("name", ["compact", "clean", "savepoint", "archive", "upsert"])
def test_policy_disable_removes_the_metadata_table_before_a_service(
    table_folder: Path, tmp_path: Path, name: str
) -> None:
    base = tmp_path / "orders"
    shutil.copytree(table_folder, base)
    with_metadata_table(base)
    options = {**OPTIONS, "tidelock.metadata.table.policy": "disable"}
    with tl.Table.open(str(base), options=options) as table:
        CHANGES[name](table)
        assert not (base / ".hoodie/metadata/files").exists() or not list(
            (base / ".hoodie/metadata/files").iterdir()
        )
    with tl.Table.open(str(base)) as table:
        assert not table.properties.has_metadata_table
        assert table.read().num_rows == 4


def test_table_in_local_time_is_converted_to_utc_if_configured(
    table_folder: Path, tmp_path: Path
) -> None:
    base = tmp_path / "orders"
    shutil.copytree(table_folder, base)
    set_properties(base, {TIMEZONE: "LOCAL"})
    options = {**OPTIONS, "tidelock.timeline.timezone.policy": "utc"}
    with tl.Table.open(str(base), options=options) as table:
        table.upsert(rows(20))
    with tl.Table.open(str(base), options=OPTIONS) as table:
        assert table.properties.is_utc
        table.upsert(rows(21))
        assert {each["ts"] for each in table.read().to_pylist() if each["id"] < 3} == {21}


def test_table_with_local_times_ahead_of_utc_is_not_converted(
    table_folder: Path, tmp_path: Path
) -> None:
    """East of UTC: an instant written in UTC now would be older than the existing ones."""
    base, ahead = tmp_path / "orders", "29991231235959000"
    shutil.copytree(table_folder, base)
    set_properties(base, {TIMEZONE: "LOCAL"})
    (base / f".hoodie/timeline/{ahead}.commit.requested").write_bytes(b"")
    before = contents(base)
    options = {**OPTIONS, "tidelock.timeline.timezone.policy": "utc"}
    with (
        tl.Table.open(str(base), options=options) as table,
        pytest.raises(Unsupported, match=ahead) as refused,
    ):
        table.upsert(rows(20))
    assert "stop all writers until" in (refused.value.hint or "")
    assert contents(base) == before
