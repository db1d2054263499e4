"""Hidden commits, incomplete overwrites, missed deletes, and instants in two time zones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tests.cli.valid_table import COLUMNS, ValidTable, completed, rows, valid_table
from tests.unit.execution.filegroup.slices import parquet
from tests.unit.hudi.table_builder import base, log, time
from tidelock.hudi.log_blocks import DeleteRecord, delete_block, log_bytes
from tidelock.hudi.properties import KEY
from tidelock.hudi.schema import avro_schema, with_meta
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, parse_time
from tidelock.hudi.timeline.metadata import (
    CompactionOperation,
    CompactionPlan,
    OperationType,
    ReplaceCommitMetadata,
    WriteStat,
    encode,
)
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_findings import Severity, Validation, ValidationFinding
from tidelock.storage.contract import ObjectMeta
from tidelock.storage.uri import open_store

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("part", pa.string())])
HOUR_MS = 3_600_000


def rewritten(table: ValidTable, at: int, done: int, keys: str) -> str:
    """Write the next base file of the group by an upsert; return its key."""
    key = base("g-0", at)
    body = parquet(rows(at, keys, file=key.rpartition("/")[2]))
    table.write(at, done, {key: body})
    return key


def deleted(table: ValidTable, at: int, done: int, keys: str, *, group: str = "g-0") -> str:
    """Write a log file of deletes; return its key."""
    key = log(group, at)
    avro = avro_schema(with_meta(COLUMNS), table="built")
    gone = [DeleteRecord(each, "p") for each in keys]
    table.write(at, done, {key: log_bytes([delete_block(gone, instant=time(at), schema=avro)])})
    return key


def overwritten(table: ValidTable, at: int, done: int, **replaced: tuple[str, ...]) -> str:
    """Overwrite partition p with a new group; return the key of its base file."""
    key = base("n-0", at)
    body = parquet(rows(at, "x", file=key.rpartition("/")[2]))
    table.put(key, body)
    stat = WriteStat(file_id="n-0", path=key, partition_path="p", file_size_in_bytes=len(body))
    metadata = ReplaceCommitMetadata(
        {"p": (stat,)},
        partition_to_replace_file_ids=replaced,
        operation_type=OperationType.INSERT_OVERWRITE,
    )
    requested = Instant(time(at), Action.REPLACE_COMMIT, InstantState.REQUESTED)
    table.instant(requested)
    table.instant(requested.done(time(done)), encode(metadata))
    return key


def only(validation: Validation) -> ValidationFinding:
    (finding,) = validation.findings
    assert finding.severity is Severity.PROBLEM
    assert finding.next_step
    return finding


def test_base_file_committed_last_with_an_older_request_time_is_reported() -> None:
    table = valid_table()
    hidden = rewritten(table, 7, 12, "abcz")
    shown = rewritten(table, 9, 10, "abc")
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", hidden)
    assert shown in finding.what


def test_base_files_committed_in_request_order_are_valid() -> None:
    table = valid_table()
    rewritten(table, 7, 12, "abcz")
    rewritten(table, 13, 14, "abc")
    assert validate(table.store).findings == ()


def compacted(table: ValidTable, *merged: str) -> None:
    """Write a compaction at 9 whose plan has these log files."""
    key = base("g-0", 9)
    operation = CompactionOperation(
        time(1), merged, base("g-0", 1).rpartition("/")[2], file_id="g-0", partition_path="p"
    )
    plan = encode(CompactionPlan(operations=(operation,)))
    requested = Instant(time(9), Action.COMPACTION, InstantState.REQUESTED)
    body = parquet(rows(1, "abc", file=key.rpartition("/")[2]))
    table.write(9, 12, {key: body}, OperationType.COMPACT, action=Action.COMMIT)
    for state in (".commit.requested", ".commit.inflight"):
        table.remove(f".hoodie/timeline/{time(9)}{state}")
    table.instant(requested, plan)


def test_log_file_that_a_later_compaction_did_not_merge_is_reported() -> None:
    table = valid_table()
    compacted(table)
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", log("g-0", 5))
    assert time(9) in finding.what


def test_log_files_merged_by_or_written_after_a_compaction_are_valid() -> None:
    table = valid_table()
    table.upsert(8, 10, "c")
    compacted(table, log("g-0", 5).rpartition("/")[2])
    assert validate(table.store).findings == ()


@pytest.mark.parametrize("deletes", [False, True])
def test_changes_of_one_key_merged_out_of_order_are_reported(deletes: bool) -> None:
    table = valid_table()
    last = deleted(table, 7, 12, "a") if deletes else table.upsert(7, 12, "a")
    table.upsert(9, 10, "a")
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", last)
    assert "'a'" in finding.what


def test_changes_of_different_keys_may_be_in_any_order() -> None:
    table = valid_table()
    table.upsert(7, 12, "a")
    table.upsert(9, 10, "c")
    assert validate(table.store).findings == ()


def test_file_group_not_replaced_by_an_overwrite_is_reported() -> None:
    table = valid_table()
    table.insert(7, 8, "k", group="k-0")
    overwritten(table, 9, 12, p=("g-0",))
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", base("k-0", 7))
    assert time(9) in finding.what


def test_groups_replaced_by_or_written_after_an_overwrite_are_valid() -> None:
    table = valid_table()
    table.insert(7, 14, "k", group="k-0")
    overwritten(table, 9, 12, p=("g-0",))
    table.insert(15, 16, "m", group="m-0")
    assert validate(table.store).findings == ()


def test_older_row_of_a_deleted_key_in_another_group_is_reported() -> None:
    table = valid_table()
    body = parquet(rows(7, "b", file=base("k-0", 7).rpartition("/")[2]))
    table.write(7, 8, {base("k-0", 7): body}, OperationType.UPSERT)
    deleted(table, 9, 10, "b", group="k-0")
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("keys", "p")
    assert "'b' was deleted" in finding.what
    assert "g-0" in finding.what


def test_deleted_key_inserted_again_in_another_group_is_valid() -> None:
    table = valid_table()
    deleted(table, 7, 8, "b")
    body = parquet(rows(9, "b", file=base("k-0", 9).rpartition("/")[2]))
    table.write(9, 10, {base("k-0", 9): body}, OperationType.UPSERT)
    assert validate(table.store).findings == ()


@pytest.mark.parametrize("hours", [-8.0, 5.5, 1.0])
def test_instant_in_another_time_zone_is_reported(
    hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = valid_table()
    # Two instants match the times of their files; the third is hours off.
    written = {completed(1, 2): 2, completed(3, 4): 4}
    other = completed(5, 6)
    listing = table.store.list

    def with_times(prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        for meta in listing(prefix, start_after=start_after):
            at = parse_time(time(written.get(meta.key, 6)))
            if meta.key == other:
                at -= round(hours * HOUR_MS)
            yield ObjectMeta(meta.key, meta.size_bytes, meta.version, at)

    monkeypatch.setattr(table.store, "list", with_times)
    (finding,) = validate(table.store).findings
    assert (finding.check, finding.object) == ("time zone", other)
    # A slow clock: still the latest by name. A fast one: older than what was written after it.
    assert finding.severity is (Severity.WARNING if hours < 0 else Severity.PROBLEM)
    assert f"{abs(hours):g} hours {'behind' if hours < 0 else 'ahead of'}" in finding.what


@pytest.mark.parametrize("later_ms", [0, 1_000, 24 * HOUR_MS])
def test_copied_table_has_no_time_zone_finding(
    later_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = valid_table()
    listing = table.store.list

    def copied(prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        for meta in listing(prefix, start_after=start_after):
            at = parse_time(time(6)) + later_ms
            yield ObjectMeta(meta.key, meta.size_bytes, meta.version, at)

    monkeypatch.setattr(table.store, "list", copied)
    assert validate(table.store).findings == ()


def test_local_time_timeline_with_a_ledger_is_a_warning(tmp_path: Path) -> None:
    with tl.Table.create(str(tmp_path / "t"), SCHEMA, key="id") as table:
        table.insert([{"id": "a", "ts": 1, "part": "p"}])
    path = tmp_path / "t" / KEY
    lines = path.read_text().splitlines()
    zone = "hoodie.table.timeline.timezone"
    assert f"{zone}=UTC" in lines
    path.write_text("\n".join(line.replace("=UTC", "=LOCAL") for line in lines) + "\n")
    store = open_store(str(tmp_path / "t"))
    findings = [each for each in validate(store).findings if each.check == "time zone"]
    store.close()
    assert [(each.severity, each.object) for each in findings] == [(Severity.WARNING, KEY)]


HEALTHY = [*product(["COPY_ON_WRITE", "MERGE_ON_READ"], ["SIMPLE", "BLOOM", "BUCKET"])]


def some(keys: str, ts: int) -> list[dict[str, object]]:
    return [{"id": key, "ts": ts, "part": "pq"[ord(key) % 2]} for key in keys]


@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize(("kind", "index"), HEALTHY)
def test_healthy_table_of_any_kind_has_no_findings(
    tmp_path: Path, kind: str, index: str, ordering: str | None
) -> None:
    options = {
        "hoodie.index.type": index,
        "hoodie.clean.commits.retained": "2",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "6",
        **({"hoodie.bucket.index.num.buckets": "2"} if index == "BUCKET" else {}),
    }
    with tl.Table.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        ordering=ordering,
        partition_by="part",
        type=kind,
        options=options,
    ) as table:

        def is_valid() -> None:
            assert validate(table._store).findings == ()

        table.upsert(some("abcdefgh", 1))
        for ts in range(2, 5):
            table.upsert(some("acef", ts))
            table.delete(["b", "f"])
        is_valid()
        if kind == "MERGE_ON_READ":
            table.log_compact()
            table.upsert(some("bd", 5))
            is_valid()
            table.compact()
        table.upsert(some("bfi", 6))
        is_valid()
        table.insert_overwrite(some("aceg", 7))
        table.upsert(some("acbd", 8))
        is_valid()
        if index != "BUCKET":
            table.cluster()
        table.delete_partition(["q"])
        table.upsert(some("abcd", 9))
        is_valid()
        table.insert_overwrite_table(some("ab", 10))
        table.upsert(some("abc", 11))
        table.delete(["a"])
        table.clean()
        table.archive()
        is_valid()
