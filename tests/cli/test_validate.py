"""Each kind of damage is planted in a valid table, and `validate` reports where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.valid_table import (
    ValidTable,
    changed,
    completed,
    found,
    rows,
    timeline_key,
    valid_table,
)
from tests.interop.real_tables import NAMES, unpacked
from tests.unit.execution.filegroup.slices import parquet
from tests.unit.hudi.table_builder import base, log, time
from tidelock.core.errors import NotFound
from tidelock.hudi.file_groups import WriteToken
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import (
    CleanMetadata,
    CleanPartition,
    CommitMetadata,
    OperationType,
    RollbackMetadata,
    encode,
)
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_findings import Severity, ValidationFinding
from tidelock.inspect.validate_ledger import LEDGER
from tidelock.inspect.validate_rows import PartitionKeys
from tidelock.storage.contract import ObjectMeta
from tidelock.storage.uri import open_store

PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING
BASE = base("g-0", 1)
LOG = log("g-0", 5)


def test_valid_table_has_no_findings() -> None:
    table = valid_table()
    table.pending(7, [base("i-0", 7)])
    validation = validate(table.store)
    assert validation.findings == ()
    assert validation.is_consistent
    assert validation.examined == {"instants": 11, "files": 4, "rows": 5}


@pytest.mark.parametrize("name", NAMES)
def test_real_tables_are_consistent(name: str, tmp_path: Path) -> None:
    validation = found(unpacked(name, tmp_path))
    assert validation.problems == ()
    # Two were made by plain inserts of an existing key.
    expected = {"cow-v9_timebasedkeygen_nonhivestyle", "mor-v9_nonpartitioned_rollback"}
    assert {each.check for each in validation.findings} == ({"keys"} if name in expected else set())


@dataclass(frozen=True)
class Damage:
    """A change to the valid table, and the finding it must cause."""

    name: str
    do: Callable[[ValidTable], object]
    check: str
    object: str
    says: str
    severity: Severity = PROBLEM


def _rewrite(table: ValidTable, key: str, made: pa.Table) -> None:
    """Replace the rows of a base file, and record its new size in the write."""
    body = parquet(made)
    for at, done in ((1, 2), (3, 4)):
        if key == base("g-0" if at == 1 else "h-0", at, "p" if at == 1 else "q"):
            table.write(at, done, {key: body}, OperationType.INSERT)


def _wrong_rows(**wrong: str) -> Callable[[ValidTable], object]:
    name = BASE.rpartition("/")[2]
    return lambda table: _rewrite(table, BASE, rows(1, "abc", file=name, **wrong))


def _relog(table: ValidTable, body: bytes) -> None:
    table.write(5, 6, {LOG: body})


DAMAGES = [
    # Properties.
    Damage(
        "checksum",
        lambda t: t.put(
            ".hoodie/hoodie.properties",
            t.body(".hoodie/hoodie.properties").replace(b"=built", b"=other"),
        ),
        "properties",
        ".hoodie/hoodie.properties",
        "for the table and database name",
    ),
    Damage(
        "stale side file",
        lambda t: t.put(".hoodie/.hoodie.properties.crc", b"crc\x00\x00\x00\x02\x00abcd"),
        "properties",
        ".hoodie/.hoodie.properties.crc",
        "Java refuses",
    ),
    Damage(
        "update under way",
        lambda t: t.put(".hoodie/hoodie.properties.backup", t.body(".hoodie/hoodie.properties")),
        "properties",
        ".hoodie/hoodie.properties.backup",
        "in progress",
        WARNING,
    ),
    # Timeline.
    Damage(
        "zero bytes",
        lambda t: t.put(completed(5, 6), b""),
        "timeline",
        completed(5, 6),
        "zero bytes",
    ),
    Damage(
        "not Avro",
        lambda t: t.put(completed(5, 6), b"broken"),
        "timeline",
        completed(5, 6),
        "expected the Avro magic",
    ),
    Damage(
        "completed twice",
        lambda t: t.put(completed(5, 9), t.body(completed(5, 6))),
        "timeline",
        completed(5, 6),
        "completed 2 times",
    ),
    Damage(
        "one completion for two",
        lambda t: t.commit(8, 6),
        "timeline",
        completed(5, 6),
        f"all completed at {time(6)}",
    ),
    Damage(
        "completion before request",
        lambda t: t.commit(9, 8),
        "timeline",
        completed(9, 8),
        "before its request time",
    ),
    Damage(
        "two actions at one time",
        lambda t: t.pending(5, action=Action.REPLACE_COMMIT),
        "timeline",
        timeline_key(5, ".deltacommit.inflight"),
        "deltacommit and replacecommit",
    ),
    Damage(
        "request lost while pending",
        lambda t: t.put(timeline_key(9, ".deltacommit.inflight"), b""),
        "timeline",
        timeline_key(9, ".deltacommit.inflight"),
        "without a request",
    ),
    Damage(
        "request lost",
        lambda t: t.remove(timeline_key(5, ".deltacommit.requested")),
        "timeline",
        completed(5, 6),
        "request file is missing",
        WARNING,
    ),
    Damage(
        "no date",
        lambda t: t.put(".hoodie/timeline/20259901000000000.deltacommit.requested", b""),
        "timeline",
        ".hoodie/timeline/20259901000000000.deltacommit.requested",
        "is not a valid time",
    ),
    Damage(
        "junk on the timeline",
        lambda t: t.put(".hoodie/timeline/notes.txt"),
        "timeline",
        ".hoodie/timeline/notes.txt",
        "not an instant",
        WARNING,
    ),
    Damage(
        "rolled back and complete",
        lambda t: t.put(
            timeline_key(9, f"_{time(10)}.rollback"),
            encode(RollbackMetadata(time(9), 1, 0, commits_rollback=(time(5),))),
        ),
        "timeline",
        completed(5, 6),
        "a rollback of it completed",
    ),
    # Files.
    Damage("base file gone", lambda t: t.remove(BASE), "files", BASE, "are lost"),
    Damage("log file gone", lambda t: t.remove(LOG), "files", LOG, "are lost"),
    Damage(
        "older version gone",
        lambda t: t.remove(t.insert(9, 10, "abc") and BASE),
        "files",
        BASE,
        "no clean removed",
        WARNING,
    ),
    Damage(
        "other size",
        lambda t: t.put(LOG, t.body(LOG) + b"#HUD"),
        "files",
        LOG,
        "recorded",
    ),
    Damage(
        "twin of a retried task",
        lambda t: t.put(base("g-0", 1, token=WriteToken(0, 1, 2)), t.body(BASE)),
        "files",
        base("g-0", 1, token=WriteToken(0, 1, 2)),
        "completed without it",
    ),
    Damage(
        "file of a failed first write",
        lambda t: t.put(base("z-0", 0), t.body(BASE)),
        "files",
        base("z-0", 0),
        "so readers read it",
    ),
    Damage(
        "file of nobody",
        lambda t: t.put(base("z-0", 9), t.body(BASE)),
        "files",
        base("z-0", 9),
        "no reader reads it yet",
        WARNING,
    ),
    # Folders.
    Damage(
        "partition not marked",
        lambda t: t.remove("q/.hoodie_partition_metadata"),
        "partitions",
        "q/.hoodie_partition_metadata",
        "skip this partition",
    ),
    Damage(
        "partition marked wrongly",
        lambda t: t.put(
            "q/.hoodie_partition_metadata", b"commitTime=20250101000000001\npartitionDepth=2\n"
        ),
        "partitions",
        "q/.hoodie_partition_metadata",
        "expected 1 for this folder, found 2",
    ),
    Damage(
        "mark unreadable",
        lambda t: t.put("q/.hoodie_partition_metadata", b"nothing"),
        "partitions",
        "q/.hoodie_partition_metadata",
        "invalid partition metadata",
    ),
    Damage(
        "foreign file",
        lambda t: t.put("q/export.parquet"),
        "partitions",
        "q/export.parquet",
        "not a file of Hudi",
        WARNING,
    ),
    Damage(
        "log file with a strange token",
        lambda t: t.put(f"p/.g-0_{time(5)}.log.1_abc"),
        "partitions",
        f"p/.g-0_{time(5)}.log.1_abc",
        "because of its name",
    ),
    Damage(
        "folder inside a partition",
        lambda t: t.put("q/tmp/x"),
        "partitions",
        "q",
        "contains folders",
        WARNING,
    ),
    # Log files.
    Damage(
        "torn block",
        lambda t: _relog(t, t.body(LOG)[:-9]),
        "logs",
        LOG,
        "is corrupt",
    ),
    Damage("no block", lambda t: _relog(t, b"#"), "logs", LOG, "it has no block"),
    Damage("no log", lambda t: _relog(t, b"something else"), "logs", LOG, "cannot be read"),
    Damage(
        "block of another write",
        lambda t: _relog(t, changed(rows(5, "b", file="g-0"), 4)),
        "logs",
        LOG,
        f"a block of {time(4)}",
    ),
    # Rows.
    Damage("wrong key", _wrong_rows(id="x"), "rows", BASE, "computed from its columns"),
    Damage("key column empty", _wrong_rows(id=""), "rows", BASE, "no key can be computed"),
    Damage(
        "row in the wrong partition",
        _wrong_rows(part="q"),
        "rows",
        BASE,
        "belong to another partition",
    ),
    Damage(
        "wrong partition path",
        _wrong_rows(_hoodie_partition_path="q"),
        "rows",
        BASE,
        "not the folder 'p'",
    ),
    Damage(
        "wrong file name",
        _wrong_rows(_hoodie_file_name="other"),
        "rows",
        BASE,
        "neither the base file nor the file group",
    ),
    Damage(
        "commit of nobody",
        _wrong_rows(_hoodie_commit_time=time(4)),
        "rows",
        BASE,
        "not of a completed write",
    ),
    Damage(
        "truncated base file",
        lambda t: t.write(1, 2, {BASE: t.body(BASE)[:-20]}, OperationType.INSERT),
        "rows",
        BASE,
        "cannot be read",
    ),
    Damage(
        "key twice by upserts",
        lambda t: t.write(
            9,
            10,
            {
                base("i-0", 9, "q"): parquet(rows(9, "x", file=base("i-0", 9, "q")[2:], part="q")),
                base("j-0", 9, "q"): parquet(rows(9, "x", file=base("j-0", 9, "q")[2:], part="q")),
            },
        ),
        "keys",
        "q",
        "an upsert never creates duplicates",
    ),
    Damage(
        "key twice by inserts and then updated",
        lambda t: (
            t.insert(9, 10, "c", group="i-0"),
            t.write(
                11,
                12,
                {
                    log("g-0", 11): changed(rows(11, "c", file="g-0"), 11),
                    log("i-0", 11): changed(rows(11, "c", file="i-0"), 11),
                },
            ),
        ),
        "keys",
        "p",
        "inserts do not check",
        WARNING,
    ),
    Damage(
        "key inserted by two upserts",
        lambda t: (
            t.write(9, 10, {log("g-0", 9): changed(rows(9, "x", file="g-0"), 9)}),
            t.insert(11, 12, "d", group="i-0"),
            t.write(13, 14, {log("i-0", 13): changed(rows(13, "x", file="i-0"), 13)}),
        ),
        "keys",
        "p",
        "an upsert never creates duplicates",
    ),
    Damage(
        "key twice by inserts",
        lambda t: t.insert(9, 10, "c", group="i-0"),
        "keys",
        "p",
        "inserts do not check",
        WARNING,
    ),
    # Leftovers.
    Damage(
        "markers left",
        lambda t: t.put(f".hoodie/.temp/{time(5)}/p/x.parquet.marker.CREATE", b""),
        "leftovers",
        f".hoodie/.temp/{time(5)}",
        "markers of a completed write",
        WARNING,
    ),
    Damage(
        "heartbeat left",
        lambda t: t.put(f".hoodie/.heartbeat/{time(5)}", b""),
        "leftovers",
        f".hoodie/.heartbeat/{time(5)}",
        "heartbeat of a completed write",
        WARNING,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_reported_where_it_is(damage: Damage) -> None:
    table = valid_table()
    damage.do(table)
    validation = validate(table.store)
    fitting = [
        each
        for each in validation.findings
        if (each.check, each.object, each.severity)
        == (damage.check, damage.object, damage.severity)
        and damage.says in each.what
    ]
    assert len(fitting) == 1, validation.findings
    assert fitting[0].next_step
    assert validation.is_consistent == all(each.severity is WARNING for each in validation.findings)


def test_file_deleted_by_a_clean_is_not_reported_missing() -> None:
    table = valid_table()
    table.insert(9, 10, "abc")
    for key in (BASE, LOG):
        table.remove(key)
    gone = tuple(f"file:/lake/{key}" for key in (BASE, LOG))
    cleaned = CleanPartition("p", "KEEP_LATEST_COMMITS", gone, gone)
    clean = CleanMetadata(time(11), 1, 2, time(9), partition_metadata={"p": cleaned})
    table.put(timeline_key(11, ".clean.requested"), b"")
    table.put(timeline_key(11, f"_{time(12)}.clean"), encode(clean))
    assert validate(table.store).findings == ()


def test_table_cleaned_during_validation_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = valid_table()
    table.insert(9, 10, "abc")
    listing, listings = table.store.list, 0

    def list_and_clean(prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        nonlocal listings
        if prefix == "":
            listings += 1
            if listings == 1:
                table.remove(base("g-0", 9))
                table.insert(11, 12, "abc")
        return listing(prefix, start_after=start_after)

    monkeypatch.setattr(table.store, "list", list_and_clean)
    findings = validate(table.store).findings
    assert listings > 2
    assert {each.severity for each in findings} == {WARNING}


def test_table_that_keeps_changing_is_validated_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = valid_table()
    table.remove(BASE)
    listing, at = table.store.list, 20

    def list_and_write(prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        nonlocal at
        if prefix == "":
            at += 2
            table.insert(at, at + 1, "k", group=f"n{at}-0", part="q")
        return listing(prefix, start_after=start_after)

    monkeypatch.setattr(table.store, "list", list_and_write)
    validation = validate(table.store)
    assert not validation.is_consistent
    assert "the table changed" in validation.findings[-1].what


def test_replaced_file_group_may_be_missing() -> None:
    table = valid_table()
    table.commit(9, 10, replaced={"q": ("h-0",)})
    table.put(timeline_key(9, ".replacecommit.requested"), b"")
    assert validate(table.store).findings == ()
    table.remove(base("h-0", 3, "q"))
    (finding,) = validate(table.store).findings
    assert (finding.severity, finding.object) == (WARNING, base("h-0", 3, "q"))


def test_without_rows_no_data_file_is_read() -> None:
    table = valid_table()
    table.put(BASE, b"x" * len(table.body(BASE)))
    assert validate(table.store, with_rows=False).findings == ()
    assert not validate(table.store).is_consistent


def test_custom_checks_run_too() -> None:
    table = valid_table()

    def suspicious(snapshot: TableSnapshot) -> Iterator[ValidationFinding]:
        yield LEDGER.problem(snapshot.store.uri, "it looks odd", "look closer")

    (finding,) = validate(table.store, more=[suspicious]).findings
    assert (finding.check, finding.object) == ("ledger", table.store.uri)


def test_validate_changes_nothing(tmp_path: Path) -> None:
    folder = valid_table().copy_to(tmp_path / "built")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert found(folder).is_consistent
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_empty_table_is_consistent() -> None:
    assert validate(ValidTable().store).findings == ()


@pytest.mark.parametrize("held_max", [1, 2, 5, 40, 1_000])
def test_duplicate_keys_are_found_with_a_small_key_buffer(held_max: int) -> None:
    batches = [
        pa.chunked_array([[f"{number * 7 % 300:03}" for number in range(first, first + 50)]])
        for first in range(0, 300, 50)
    ] + [pa.chunked_array([["007", "299", None]])]
    keys = PartitionKeys(held_max=held_max)
    for batch in batches:
        keys.add(batch)
    assert list(keys.duplicates(lambda: batches)) == ["007", "299"]


def test_key_buffer_stays_within_its_limit() -> None:
    batches = [
        pa.chunked_array([[f"{first + number:05}" for number in range(1_000)]])
        for first in range(0, 20_000, 1_000)
    ]
    keys = PartitionKeys(held_max=2_000)
    for batch in batches:
        keys.add(batch)
    held = sum(len(chunk) for chunk in keys._held)
    assert held == 0
    for low, high in keys._ranges():
        assert (
            sum(
                (low is None or key >= low) and (high is None or key < high)
                for batch in batches
                for key in batch.to_pylist()
            )
            <= 2_000
        )


def test_commit_without_files_is_valid() -> None:
    table = valid_table()
    table.instant(table.pending(9).done(time(10)), encode(CommitMetadata({})))
    assert validate(table.store).findings == ()


def test_missing_table_is_an_error(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with pytest.raises(NotFound):
        validate(store)
    store.close()
