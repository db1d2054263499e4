"""`validate` reports a metadata table that disagrees with the files of its table.

Readers that use the metadata table see only the files it lists: a file it misses is hidden, and a
file it lists that no longer exists makes them fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.valid_table import ValidTable, found, valid_table
from tests.interop.real_tables import unpacked
from tests.unit.hudi.metadata_table.metadata_builder import INIT, BuiltMetadata
from tests.unit.hudi.table_builder import base, log, time
from tidelock.hudi.properties import METADATA_FOLDER
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    CleanerPlan,
    CleanFile,
    CleanMetadata,
    CleanPartition,
    RollbackMetadata,
    encode,
)
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_findings import Severity, ValidationFinding

PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING
CHECK = "metadata table"
BASE, LOG, OTHER = base("g-0", 1), log("g-0", 5), base("h-0", 3, "q")
HFILE = f"{METADATA_FOLDER}/files/files-0000-0_0-0-0_{INIT}.hfile"


def name(key: str) -> str:
    return key.rpartition("/")[2]


def metadata_findings(table: ValidTable) -> list[ValidationFinding]:
    return [each for each in validate(table.store).findings if each.check == CHECK]


def only(table: ValidTable) -> ValidationFinding:
    (finding,) = metadata_findings(table)
    return finding


def listed(table: ValidTable, *left_out: str, **sizes: int) -> BuiltMetadata:
    """Give a table a metadata table that omits files, or has other sizes for some file groups."""
    metadata = BuiltMetadata(table)
    folders = metadata.folders()
    for key in left_out:
        del folders[key.rpartition("/")[0]][name(key)]
    for files in folders.values():
        for each in files:
            files[each] = sizes.get(each.removeprefix(".").partition("-")[0], files[each])
    return BuiltMetadata(table, folders)


def size_of(table: ValidTable, key: str) -> int:
    return len(table.body(key))


def test_metadata_table_that_lists_every_file_has_no_findings() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    assert validate(table.store).findings == ()
    key = table.upsert(7, 10, "c")
    metadata.write(7, 9, {"p": {name(key): size_of(table, key)}})
    assert validate(table.store).findings == ()


def test_pending_write_is_ignored() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    table.pending(7, [base("i-0", 7)])
    metadata.write(7, 8, {"p": {name(base("i-0", 7)): 1}})
    assert validate(table.store).findings == ()


def test_write_unknown_to_the_metadata_table_is_reported_with_its_files() -> None:
    table = valid_table()
    BuiltMetadata(table)
    key = table.upsert(7, 8, "c")
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, METADATA_FOLDER)
    assert f"the write {time(7)}" in finding.what
    assert "found none" in finding.what
    assert key in finding.what
    assert "hoodie.table.metadata.partitions" in finding.next_step


def test_write_not_completed_in_the_metadata_table_is_reported() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    key = table.upsert(7, 10, "c")
    metadata.write(7, None, {"p": {name(key): size_of(table, key)}})
    assert "found one that is inflight" in only(table).what


def test_file_omitted_from_a_write_is_reported() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    key = table.insert(7, 10, "f", group="k-0")
    metadata.write(7, 9, {"p": {}})
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, key)
    assert f"expected {size_of(table, key):,} bytes" in finding.what


@pytest.mark.parametrize("key", [BASE, LOG])
def test_file_missing_from_the_initial_build_is_reported(key: str) -> None:
    table = valid_table()
    listed(table, key)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, key)


def test_omitted_old_version_is_a_warning() -> None:
    table = valid_table()
    table.write(7, 8, {base("g-0", 7): table.body(BASE)})
    listed(table, BASE)
    (finding,) = metadata_findings(table)
    assert (finding.severity, finding.object) == (WARNING, BASE)
    assert f"as of {time(1)}" in finding.what


@pytest.mark.parametrize("wrong", [0, 7])
def test_wrong_size_is_reported(wrong: int) -> None:
    table = valid_table()
    listed(table, h=wrong)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, OTHER)
    assert f"with {wrong} bytes; it has {size_of(table, OTHER):,}" in finding.what


@pytest.mark.parametrize("key", [BASE, LOG])
def test_listed_file_that_does_not_exist_is_reported(key: str) -> None:
    table = valid_table()
    BuiltMetadata(table)
    size = size_of(table, key)
    table.remove(key)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, key)
    assert f"with {size:,} bytes, but it is missing" in finding.what


def test_missing_file_of_an_archived_write_is_reported_by_the_metadata_table_alone() -> None:
    table = valid_table()
    BuiltMetadata(table)
    for at, done in ((1, 2), (3, 4)):
        requested = Instant(time(at), Action.DELTA_COMMIT, InstantState.REQUESTED)
        for instant in (requested, requested.started(), requested.done(time(done))):
            table.forget(instant)
    table.remove(OTHER)
    gone = [each for each in validate(table.store).findings if each.object == OTHER]
    assert [(each.check, each.severity) for each in gone] == [(CHECK, PROBLEM)]


def test_missing_old_version_is_a_warning() -> None:
    table = valid_table()
    table.write(7, 8, {base("g-0", 7): table.body(BASE)})
    BuiltMetadata(table)
    table.remove(BASE)
    finding = only(table)
    assert (finding.severity, finding.object) == (WARNING, BASE)


def test_partition_missing_from_all_partitions_is_reported() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table, {})
    metadata.write(7, 8, metadata.folders(), partitions={"p": 0})
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, "q")
    assert "__all_partitions__" in finding.what


def cleaned(table: ValidTable, *gone: str, done: bool = True) -> None:
    """Delete files by a clean at 11, which completes at 13 if `done`."""
    table.remove(*gone)
    plan = CleanerPlan(
        policy="KEEP_LATEST_COMMITS",
        file_paths_to_be_deleted_per_partition={
            "p": tuple(CleanFile(f"file:/t/{key}") for key in gone)
        },
    )
    table.put(f".hoodie/timeline/{time(11)}.clean.requested", encode(plan))
    if done:
        names = tuple(map(name, gone))
        partition = CleanPartition("p", "KEEP_LATEST_COMMITS", names, names)
        clean = CleanMetadata(time(11), 1, len(gone), time(7), partition_metadata={"p": partition})
        table.put(f".hoodie/timeline/{time(11)}_{time(13)}.clean", encode(clean))


def with_old_version() -> tuple[ValidTable, BuiltMetadata]:
    table = valid_table()
    table.write(7, 8, {base("g-0", 7): table.body(BASE)})
    return table, BuiltMetadata(table)


def test_clean_unknown_to_the_metadata_table_is_reported_with_its_files() -> None:
    table, metadata = with_old_version()
    cleaned(table, BASE, LOG)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, METADATA_FOLDER)
    assert f"the clean {time(11)}" in finding.what
    assert BASE in finding.what
    assert LOG in finding.what
    metadata.write(11, 12, {"p": {name(BASE): None, name(LOG): None}}, partitions={})
    assert metadata_findings(table) == []


def test_cleaned_file_that_could_not_be_deleted_need_not_be_listed() -> None:
    table, metadata = with_old_version()
    body = table.body(LOG)
    cleaned(table, BASE, LOG)
    metadata.write(11, 12, {"p": {name(BASE): None, name(LOG): None}}, partitions={})
    table.put(LOG, body)
    assert metadata_findings(table) == []


def test_pending_clean_is_not_a_disagreement() -> None:
    table, _ = with_old_version()
    cleaned(table, BASE, LOG, done=False)
    assert metadata_findings(table) == []


def test_metadata_table_built_after_a_clean_need_not_know_it() -> None:
    table, _ = with_old_version()
    cleaned(table, BASE, LOG)
    BuiltMetadata(table)
    assert metadata_findings(table) == []


def test_rollback_unknown_to_the_metadata_table_is_reported() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    metadata.write(7, 8, {"p": {name(base("i-0", 7)): 9}})
    rollback = RollbackMetadata(time(9), 1, 1, (time(7),))
    table.put(f".hoodie/timeline/{time(9)}.rollback.requested", b"")
    table.put(f".hoodie/timeline/{time(9)}_{time(10)}.rollback", encode(rollback))
    finding = only(table)
    assert finding.object == base("i-0", 7)
    assert finding.severity is WARNING


def test_files_of_a_retried_task_are_not_required() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    key = table.upsert(7, 10, "c")
    metadata.write(7, 9, {"p": {name(key): size_of(table, key)}})
    table.put(log("h-0", 7, "q"), table.body(LOG))
    assert metadata_findings(table) == []


def test_replaced_file_groups_stay_listed_until_cleaned() -> None:
    table = valid_table()
    metadata = BuiltMetadata(table)
    table.commit(9, 12, replaced={"q": ("h-0",)})
    table.put(f".hoodie/timeline/{time(9)}.replacecommit.requested", b"")
    metadata.write(9, 11, {}, partitions={})
    assert metadata_findings(table) == []


def _with_broken_log(table: ValidTable) -> None:
    metadata = BuiltMetadata(table)
    key = metadata.write(7, 8, {"p": {"x": 1}})
    table.put(key, table.body(key).replace(b"DATABLK*", b"DATABLK?"))


DAMAGES: dict[str, tuple[Callable[[ValidTable], None], str]] = {
    "broken block": (_with_broken_log, f".files-0000-0_{time(7)}.log.1_0-0-0 at byte 0"),
    "no HFile": (lambda t: t.put(HFILE, b"x" * 5_000), HFILE),
    "cut": (lambda t: t.put(HFILE, t.body(HFILE)[:-100]), HFILE),
    "no file": (lambda t: t.remove(HFILE), "has no file"),
    "empty instant": (
        lambda t: t.put(f"{METADATA_FOLDER}/.hoodie/timeline/{INIT}_{time(6)}.deltacommit", b""),
        "completed instant is empty",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_unreadable_metadata_table_is_a_problem(damage: str) -> None:
    table = valid_table()
    BuiltMetadata(table)
    do, says = DAMAGES[damage]
    do(table)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, METADATA_FOLDER)
    assert says in finding.what


def test_missing_metadata_table_is_a_warning() -> None:
    table = valid_table()
    BuiltMetadata(table)
    table.remove(*[meta.key for meta in table.store.list(f"{METADATA_FOLDER}/")])
    finding = only(table)
    assert finding.severity is WARNING
    assert "missing" in finding.what


def test_unused_metadata_folder_is_ignored() -> None:
    table = valid_table()
    properties = table.body(".hoodie/hoodie.properties")
    BuiltMetadata(table, {})
    table.put(".hoodie/hoodie.properties", properties)
    assert validate(table.store).findings == ()


@pytest.mark.parametrize("lost", ["log", "instant"])
@pytest.mark.parametrize(
    "real",
    [
        "cow-v9_txns_simple_meta",
        "cow-v9_timebasedkeygen_nonhivestyle",
        "mor-v8_trips_8i3u1d",
        "mor-v9_nonpartitioned_rollback",
        "mor-v9_txns_complex_meta",
    ],
)
def test_real_table_whose_metadata_table_lost_its_last_write_is_reported(
    real: str, lost: str, tmp_path: Path
) -> None:
    folder = unpacked(real, tmp_path)
    metadata = folder / METADATA_FOLDER
    assert [each for each in found(folder).findings if each.check == CHECK] == []
    last = max((metadata / "files").glob(".files-0000-0_2*.log.*"))
    requested = last.name.removeprefix(".files-0000-0_").partition(".")[0]
    (instant,) = (metadata / ".hoodie/timeline").glob(f"{requested}_*.deltacommit")
    (last if lost == "log" else instant).unlink()
    findings = [each for each in found(folder).findings if each.check == CHECK]
    assert {each.severity for each in findings} == {PROBLEM}
    assert all(("does not list it" if lost == "log" else "inflight") in e.what for e in findings)
