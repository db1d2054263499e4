"""Commits that are hidden, overwrites that leave rows, deletes that miss, instants of two zones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tests.ops.sound import COLUMNS, Sound, completed, rows, sound_table
from tests.unit.kernel.slices import parquet
from tests.unit.table.building import base, log, time
from tidelock.ops.validate.findings import Finding, Severity, Validation
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import ObjectMeta
from tidelock.store.uri import open_store
from tidelock.table.logfile.content import Delete
from tidelock.table.logfile.writer import delete_block, log_bytes
from tidelock.table.properties_file import KEY
from tidelock.table.schema.avro import avro_schema
from tidelock.table.schema.meta import with_meta
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, Instant, State, parse_time
from tidelock.table.timeline.metadata import (
    CompactionOperation,
    CompactionPlan,
    OperationType,
    ReplaceCommitMetadata,
    WriteStat,
)

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("part", pa.string())])
HOUR_MS = 3_600_000


def rewritten(table: Sound, at: int, done: int, keys: str) -> str:
    """Write the group's next base file by an upsert; return its key."""
    key = base("g-0", at)
    body = parquet(rows(at, keys, file=key.rpartition("/")[2]))
    table.write(at, done, {key: body})
    return key


def deleted(table: Sound, at: int, done: int, keys: str, *, group: str = "g-0") -> str:
    """Write a log file of deletes; return its key."""
    key = log(group, at)
    avro = avro_schema(with_meta(COLUMNS), table="built")
    gone = [Delete(each, "p") for each in keys]
    table.write(at, done, {key: log_bytes([delete_block(gone, instant=time(at), schema=avro)])})
    return key


def overwritten(table: Sound, at: int, done: int, **replaced: tuple[str, ...]) -> str:
    """Overwrite the partition p by a new group; return the key of its base file."""
    key = base("n-0", at)
    body = parquet(rows(at, "x", file=key.rpartition("/")[2]))
    table.put(key, body)
    stat = WriteStat(file_id="n-0", path=key, partition_path="p", file_size_in_bytes=len(body))
    metadata = ReplaceCommitMetadata(
        {"p": (stat,)},
        partition_to_replace_file_ids=replaced,
        operation_type=OperationType.INSERT_OVERWRITE,
    )
    requested = Instant(time(at), Action.REPLACE_COMMIT, State.REQUESTED)
    table.instant(requested)
    table.instant(requested.done(time(done)), encode(metadata))
    return key


def only(validation: Validation) -> Finding:
    (finding,) = validation.findings
    assert finding.severity is Severity.PROBLEM
    assert finding.next_step
    return finding


def test_a_base_file_committed_last_under_an_older_request_time_is_found() -> None:
    table = sound_table()
    hidden = rewritten(table, 7, 12, "abcz")
    shown = rewritten(table, 9, 10, "abc")
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", hidden)
    assert shown in finding.what


def test_base_files_committed_in_the_order_of_their_requests_are_sound() -> None:
    table = sound_table()
    rewritten(table, 7, 12, "abcz")
    rewritten(table, 13, 14, "abc")
    assert validate(table.store).findings == ()


def compacted(table: Sound, *merged: str) -> None:
    """Write a compaction at 9 that was to merge these log files."""
    key = base("g-0", 9)
    operation = CompactionOperation(
        time(1), "g-0", merged, base("g-0", 1).rpartition("/")[2], partition_path="p"
    )
    plan = encode(CompactionPlan(operations=(operation,)))
    requested = Instant(time(9), Action.COMPACTION, State.REQUESTED)
    body = parquet(rows(1, "abc", file=key.rpartition("/")[2]))
    table.write(9, 12, {key: body}, OperationType.COMPACT, action=Action.COMMIT)
    for state in (".commit.requested", ".commit.inflight"):
        table.remove(f".hoodie/timeline/{time(9)}{state}")
    table.instant(requested, plan)


def test_a_log_file_that_a_later_compaction_did_not_merge_is_found() -> None:
    table = sound_table()
    compacted(table)
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", log("g-0", 5))
    assert time(9) in finding.what


def test_log_files_that_a_compaction_merged_or_that_came_after_it_are_sound() -> None:
    table = sound_table()
    table.upsert(8, 10, "c")
    compacted(table, log("g-0", 5).rpartition("/")[2])
    assert validate(table.store).findings == ()


@pytest.mark.parametrize("deletes", [False, True])
def test_changes_of_one_key_that_count_against_their_order_are_found(deletes: bool) -> None:
    table = sound_table()
    last = deleted(table, 7, 12, "a") if deletes else table.upsert(7, 12, "a")
    table.upsert(9, 10, "a")
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", last)
    assert "'a'" in finding.what


def test_changes_of_different_keys_may_come_in_any_order() -> None:
    table = sound_table()
    table.upsert(7, 12, "a")
    table.upsert(9, 10, "c")
    assert validate(table.store).findings == ()


def test_a_file_group_that_an_overwrite_did_not_replace_is_found() -> None:
    table = sound_table()
    table.insert(7, 8, "k", group="k-0")
    overwritten(table, 9, 12, p=("g-0",))
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("order", base("k-0", 7))
    assert time(9) in finding.what


def test_what_came_after_an_overwrite_or_was_replaced_by_it_is_sound() -> None:
    table = sound_table()
    table.insert(7, 14, "k", group="k-0")
    overwritten(table, 9, 12, p=("g-0",))
    table.insert(15, 16, "m", group="m-0")
    assert validate(table.store).findings == ()


def test_an_older_row_of_a_deleted_key_in_another_group_is_found() -> None:
    table = sound_table()
    body = parquet(rows(7, "b", file=base("k-0", 7).rpartition("/")[2]))
    table.write(7, 8, {base("k-0", 7): body}, OperationType.UPSERT)
    deleted(table, 9, 10, "b", group="k-0")
    finding = only(validate(table.store))
    assert (finding.check, finding.object) == ("keys", "p")
    assert "'b' was deleted" in finding.what
    assert "g-0" in finding.what


def test_a_deleted_key_that_came_again_in_another_group_is_sound() -> None:
    table = sound_table()
    deleted(table, 7, 8, "b")
    body = parquet(rows(9, "b", file=base("k-0", 9).rpartition("/")[2]))
    table.write(9, 10, {base("k-0", 9): body}, OperationType.UPSERT)
    assert validate(table.store).findings == ()


@pytest.mark.parametrize("hours", [-8.0, 5.5, 1.0])
def test_an_instant_of_another_time_zone_is_found(
    hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sound_table()
    # Two instants have files of their own time; the third one is hours apart from its file.
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
    # Behind, it still is the latest by its name; ahead, it is older than what was written after it.
    assert finding.severity is (Severity.WARNING if hours < 0 else Severity.PROBLEM)
    assert f"{abs(hours):g} hours {'behind' if hours < 0 else 'ahead of'}" in finding.what


@pytest.mark.parametrize("later_ms", [0, 1_000, 24 * HOUR_MS])
def test_a_copy_of_a_table_has_no_instant_of_another_zone(
    later_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sound_table()
    listing = table.store.list

    def copied(prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        for meta in listing(prefix, start_after=start_after):
            at = parse_time(time(6)) + later_ms
            yield ObjectMeta(meta.key, meta.size_bytes, meta.version, at)

    monkeypatch.setattr(table.store, "list", copied)
    assert validate(table.store).findings == ()


def test_a_timeline_in_local_time_with_a_ledger_is_a_warning(tmp_path: Path) -> None:
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
def test_a_healthy_table_of_any_kind_has_no_finding(
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

        def is_sound() -> None:
            assert validate(table._store).findings == ()

        table.upsert(some("abcdefgh", 1))
        for ts in range(2, 5):
            table.upsert(some("acef", ts))
            table.delete(["b", "f"])
        is_sound()
        if kind == "MERGE_ON_READ":
            table.log_compact()
            table.upsert(some("bd", 5))
            is_sound()
            table.compact()
        table.upsert(some("bfi", 6))
        is_sound()
        table.insert_overwrite(some("aceg", 7))
        table.upsert(some("acbd", 8))
        is_sound()
        if index != "BUCKET":
            table.cluster()
        table.delete_partition(["q"])
        table.upsert(some("abcd", 9))
        is_sound()
        table.insert_overwrite_table(some("ab", 10))
        table.upsert(some("abc", 11))
        table.delete(["a"])
        table.clean()
        table.archive()
        is_sound()
