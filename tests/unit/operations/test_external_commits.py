"""Commits of writers without a ledger (Java) are seen by a table that stays open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.cli.scene import Interrupted
from tests.unit.operations.external import (
    contents,
    path_of,
    set_properties,
    with_metadata_table,
    without_ledger,
)
from tidelock.core.errors import Conflict, Unsupported
from tidelock.hudi.properties import ORDERING_FIELDS, TIMEZONE
from tidelock.hudi.timeline.instant import format_time
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("by", pa.string())])
KINDS = [
    pytest.param("COPY_ON_WRITE", {}, id="cow"),
    pytest.param("MERGE_ON_READ", {}, id="mor"),
    pytest.param(
        "COPY_ON_WRITE",
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
        id="cow-bucket",
    ),
    pytest.param(
        "MERGE_ON_READ",
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
        id="mor-bucket",
    ),
]
ALONE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def row(key: int, ts: int, by: str) -> dict[str, Any]:
    return {"id": key, "ts": ts, "by": by}


def found(table: tl.Table) -> dict[int, str]:
    rows = table.read(["id", "by"]).to_pylist()
    assert len({each["id"] for each in rows}) == len(rows)
    return {each["id"]: each["by"] for each in rows}


def created(tmp_path: Path, table_type: str, options: dict[str, str]) -> tl.Table:
    table = tl.Table.create(
        str(tmp_path / "orders"),
        SCHEMA,
        key="id",
        ordering="ts",
        type=table_type,
        options={**ALONE, **options},
    )
    table.insert([row(key, 1, "us") for key in range(4)])
    return table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tl.Table]:
    with created(tmp_path, "COPY_ON_WRITE", {}) as found:
        yield found


@pytest.mark.parametrize("refreshed", [False, True], ids=["as-it-was", "refreshed"])
@pytest.mark.parametrize(("table_type", "options"), KINDS)
def test_commit_without_an_entry_survives_the_next_upsert_of_an_open_table(
    tmp_path: Path, table_type: str, options: dict[str, str], *, refreshed: bool
) -> None:
    with created(tmp_path, table_type, options) as table:
        table.upsert([row(0, 2, "us")])
        without_ledger(
            path_of(table),
            lambda java: java.upsert([row(1, 3, "java"), row(9, 3, "java")]),
            options,
        )
        if refreshed:
            table.refresh()
            assert found(table)[9] == "java"
        table.upsert([row(2, 4, "us"), row(0, 4, "us")])
        expected = {0: "us", 1: "java", 2: "us", 3: "us", 9: "java"}
        assert found(table) == expected
        with tl.Table.open(table.uri) as other:
            assert found(other) == expected


@pytest.mark.parametrize("handle", ["open", "new"])
@pytest.mark.parametrize("verb", ["rollback", "restore"])
@pytest.mark.parametrize(("table_type", "options"), KINDS)
def test_rollback_by_java_stays_rolled_back(
    tmp_path: Path, table_type: str, options: dict[str, str], verb: str, handle: str
) -> None:
    """The commits are in the ledger, and must not be published to the timeline again."""
    with created(tmp_path, table_type, options) as table:
        first = table.upsert([row(0, 2, "first")], app_transaction=tl.AppTransaction("app", 1))
        more = {"more": 1} if handle == "new" else {}
        rows = [{**row(0, 3, "second"), **more}, {**row(7, 3, "second"), **more}]
        second = table.upsert(rows, app_transaction=tl.AppTransaction("app", 2))
        target = second.instant if verb == "rollback" else first.instant
        without_ledger(path_of(table), lambda java: getattr(java, verb)(target), options)
        expected = {0: "first", 1: "us", 2: "us", 3: "us"}
        kept = table if handle == "open" else tl.Table.open(table.uri, options=ALONE | options)
        kept.refresh()
        assert found(kept) == expected
        kept.upsert([row(1, 4, "third")])
        assert found(kept) == {**expected, 1: "third"}
        assert second.instant not in {each.requested for each in kept.timeline}
        assert kept.schema == SCHEMA
        again = kept.upsert([row(7, 5, "again")], app_transaction=tl.AppTransaction("app", 2))
        assert not again.repeated
        with tl.Table.open(table.uri) as other:
            assert found(other) == {**expected, 1: "third", 7: "again"}
            assert other.app_transaction("app") == tl.AppTransaction("app", 2)
            validation = validate(other.writer().store, more=[check_ledger])
            assert not validation.problems
        kept.close()


@pytest.mark.parametrize("verb", ["rollback", "restore"])
@pytest.mark.parametrize(("table_type", "options"), KINDS)
def test_write_that_read_a_commit_rolled_back_by_java_is_rebased(
    tmp_path: Path, table_type: str, options: dict[str, str], verb: str
) -> None:
    with created(tmp_path, table_type, options) as table:
        first = table.upsert([row(0, 2, "first")])
        second = table.upsert([row(0, 3, "second"), row(7, 3, "second")])
        target = second.instant if verb == "rollback" else first.instant
        base, writer = path_of(table), table.writer()
        writer.engine = Interrupted(
            writer.engine,
            lambda: without_ledger(base, lambda java: getattr(java, verb)(target), options),
        )
        assert table.upsert([row(1, 4, "third")]).rebases == 1
        assert found(table) == {0: "first", 1: "third", 2: "us", 3: "us"}


@pytest.mark.parametrize(("table_type", "options"), KINDS)
def test_commit_without_an_entry_between_begin_and_commit_is_included(
    tmp_path: Path, table_type: str, options: dict[str, str]
) -> None:
    with created(tmp_path, table_type, options) as table:
        base = path_of(table)
        writer = table.writer()
        writer.engine = Interrupted(
            writer.engine,
            lambda: without_ledger(
                base, lambda java: java.upsert([row(key, 3, "java") for key in range(4)]), options
            ),
        )
        report = table.upsert([row(0, 4, "us"), row(2, 4, "us")])
        assert report.rebases == 1
        assert found(table) == {0: "us", 1: "java", 2: "us", 3: "java"}


def begun_by_java(base: Path, *states: str) -> str:
    """Write the start of a Java commit to the timeline, and return its instant."""
    instant = format_time(time.time_ns() // 1_000_000)
    for state in states:
        (base / f".hoodie/timeline/{instant}.{state}").write_bytes(b"")
    return instant


@pytest.mark.parametrize(
    "states", [("commit.requested",), ("commit.requested", "inflight")], ids=["asked", "at-work"]
)
def test_upsert_is_refused_while_a_java_job_runs_without_a_lock(
    table: tl.Table, states: tuple[str, ...]
) -> None:
    base = path_of(table)
    without_ledger(base, lambda java: java.upsert([row(1, 3, "java")]))
    table.upsert([row(2, 4, "us")])
    instant = begun_by_java(base, *states)
    before = contents(base)
    for each in (table, tl.Table.open(table.uri)):
        with pytest.raises(Conflict, match=instant) as refused:
            each.upsert([row(2, 5, "us")])
        assert f"tidelock rollback URI run {instant}" in (refused.value.hint or "")
        assert contents(base) == before
    table.rollback()
    assert instant in {each.requested for each in table.timeline}, "it may be at work"
    table.rollback(instant)
    table.upsert([row(2, 5, "us")])
    assert found(table) == {0: "us", 1: "java", 2: "us", 3: "us"}


def test_java_job_that_begins_during_the_first_concurrent_write_stops_the_commit(
    table: tl.Table,
) -> None:
    """No Java writers were known on this table, so no earlier check ran."""
    base, writer = path_of(table), table.writer()
    begun: list[str] = []
    writer.engine = Interrupted(
        writer.engine,
        lambda: begun.append(begun_by_java(base, "commit.requested", "inflight")),
    )
    with pytest.raises(Conflict, match="started by an external writer"):
        table.upsert([row(2, 5, "us")])
    table.refresh()
    assert {each["ts"] for each in table.read().to_pylist()} == {1}
    assert [i.requested for i in table.timeline if not i.is_completed] == begun


def test_concurrent_writers_of_ours_do_not_block_each_other(table: tl.Table) -> None:
    with tl.Table.open(table.uri) as other:
        writer = table.writer()
        writer.engine = Interrupted(writer.engine, lambda: other.upsert([row(1, 3, "other")]))
        table.upsert([row(2, 4, "us")])
        assert found(table) == {0: "us", 1: "other", 2: "us", 3: "us"}


def test_commits_archived_by_java_are_included(table: tl.Table) -> None:
    """Java's jobs archive after their commits: commits this table has not seen may be archived."""
    keep = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.commits.retained": "1",
    }

    def job(java: tl.Table) -> None:
        java.upsert([row(1, 3, "java")])
        for number in range(8):
            java.bulk_insert([row(100 + number, 3, "java")])
        assert java.archive().instants

    table.upsert([row(0, 2, "us")])
    without_ledger(path_of(table), job, keep)
    table.upsert([row(2, 4, "us")])
    expected = dict.fromkeys(range(100, 108), "java")
    assert found(table) == {0: "us", 1: "java", 2: "us", 3: "us"} | expected


def test_table_whose_old_files_java_cleaned_can_be_written(table: tl.Table) -> None:
    def job(java: tl.Table) -> None:
        for ts in (3, 4, 5):
            java.upsert([row(1, ts, "java")])
        java.clean()

    without_ledger(path_of(table), job, {"hoodie.clean.commits.retained": "1"})
    table.upsert([row(2, 6, "us")])
    assert found(table) == {0: "us", 1: "java", 2: "us", 3: "us"}


def test_metadata_table_created_by_java_is_refused_before_anything_is_written(
    table: tl.Table,
) -> None:
    base = path_of(table)
    table.upsert([row(0, 2, "us")])
    without_ledger(base, lambda java: java.upsert([row(1, 3, "java")]))
    with_metadata_table(base)
    before = contents(base)
    with pytest.raises(Unsupported, match="metadata table"):
        table.upsert([row(2, 4, "us")])
    with pytest.raises(Unsupported, match="metadata table"):
        table.insert([row(7, 4, "us")])
    assert contents(base) == before


def test_metadata_table_created_by_java_during_a_write_stops_its_commit(
    table: tl.Table,
) -> None:
    writer = table.writer()
    writer.engine = Interrupted(writer.engine, lambda: with_metadata_table(path_of(table)))
    with pytest.raises(Unsupported, match="metadata table"):
        table.upsert([row(2, 4, "us")])
    table.refresh()
    assert found(table)[2] == "us"
    assert {each["ts"] for each in table.read().to_pylist()} == {1}
    assert all(instant.is_completed for instant in table.timeline)


def test_table_whose_type_java_changed_must_be_reopened(table: tl.Table) -> None:
    base = path_of(table)
    set_properties(base, {ORDERING_FIELDS: "id"})
    before = contents(base)
    with pytest.raises(Conflict, match=r"ordering\.fields was ts, is now id"):
        table.upsert([row(2, 4, "us")])
    assert contents(base) == before


def test_table_switched_to_local_time_is_refused(table: tl.Table) -> None:
    base = path_of(table)
    set_properties(base, {TIMEZONE: "LOCAL"})
    before = contents(base)
    with pytest.raises(Unsupported, match="local time"):
        table.upsert([row(2, 4, "us")])
    assert contents(base) == before
