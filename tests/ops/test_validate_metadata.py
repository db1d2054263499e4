"""A metadata table that disagrees with the files of its table is found, and one that agrees is not.

Readers that use it see no other files, so what it misses is hidden, and what it lists and is gone
makes them fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.real_tables import unpacked
from tests.ops.sound import Sound, found, sound_table
from tests.unit.table.building import base, log, time
from tests.unit.table.metadatatable.building import INIT, BuiltMetadata
from tidelock.ops.validate.findings import Finding, Severity
from tidelock.ops.validate.validating import validate
from tidelock.table.properties import METADATA_FOLDER
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import (
    CleanerPlan,
    CleanFile,
    CleanMetadata,
    CleanPartition,
    RollbackMetadata,
)

PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING
CHECK = "metadata table"
BASE, LOG, OTHER = base("g-0", 1), log("g-0", 5), base("h-0", 3, "q")
HFILE = f"{METADATA_FOLDER}/files/files-0000-0_0-0-0_{INIT}.hfile"


def name(key: str) -> str:
    return key.rpartition("/")[2]


def metadata_findings(table: Sound) -> list[Finding]:
    return [each for each in validate(table.store).findings if each.check == CHECK]


def only(table: Sound) -> Finding:
    (finding,) = metadata_findings(table)
    return finding


def listed(table: Sound, *left_out: str, **sizes: int) -> BuiltMetadata:
    """Give a table a metadata table that leaves out files, and has other sizes of some groups."""
    metadata = BuiltMetadata(table)
    folders = metadata.folders()
    for key in left_out:
        del folders[key.rpartition("/")[0]][name(key)]
    for files in folders.values():
        for each in files:
            files[each] = sizes.get(each.removeprefix(".").partition("-")[0], files[each])
    return BuiltMetadata(table, folders)


def size_of(table: Sound, key: str) -> int:
    return len(table.body(key))


def test_one_that_lists_every_file_has_no_finding() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    assert validate(table.store).findings == ()
    key = table.upsert(7, 10, "c")
    metadata.write(7, 9, {"p": {name(key): size_of(table, key)}})
    assert validate(table.store).findings == ()


def test_a_pending_write_is_in_neither() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    table.pending(7, [base("i-0", 7)])
    metadata.write(7, 8, {"p": {name(base("i-0", 7)): 1}})
    assert validate(table.store).findings == ()


def test_a_write_that_it_does_not_know_is_named_with_its_files() -> None:
    table = sound_table()
    BuiltMetadata(table)
    key = table.upsert(7, 8, "c")
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, METADATA_FOLDER)
    assert f"the write {time(7)}" in finding.what
    assert "found none" in finding.what
    assert key in finding.what
    assert "hoodie.table.metadata.partitions" in finding.next_step


def test_a_write_that_it_did_not_complete_is_named() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    key = table.upsert(7, 10, "c")
    metadata.write(7, None, {"p": {name(key): size_of(table, key)}})
    assert "found one that is inflight" in only(table).what


def test_a_file_that_it_leaves_out_of_a_write_is_named() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    key = table.insert(7, 10, "f", group="k-0")
    metadata.write(7, 9, {"p": {}})
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, key)
    assert f"expected it there with {size_of(table, key):,} bytes" in finding.what


@pytest.mark.parametrize("key", [BASE, LOG])
def test_a_file_that_it_was_built_without_is_named(key: str) -> None:
    table = sound_table()
    listed(table, key)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, key)


def test_an_old_version_that_it_leaves_out_is_a_warning() -> None:
    table = sound_table()
    table.write(7, 8, {base("g-0", 7): table.body(BASE)})
    listed(table, BASE)
    (finding,) = metadata_findings(table)
    assert (finding.severity, finding.object) == (WARNING, BASE)
    assert f"as of {time(1)}" in finding.what


@pytest.mark.parametrize("wrong", [0, 7])
def test_another_size_is_named(wrong: int) -> None:
    table = sound_table()
    listed(table, h=wrong)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, OTHER)
    assert f"with {wrong} bytes; it has {size_of(table, OTHER):,}" in finding.what


@pytest.mark.parametrize("key", [BASE, LOG])
def test_a_file_that_it_lists_and_is_not_there_is_named(key: str) -> None:
    table = sound_table()
    BuiltMetadata(table)
    size = size_of(table, key)
    table.remove(key)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, key)
    assert f"with {size:,} bytes, but it is not there" in finding.what


def test_a_file_of_an_archived_write_that_is_gone_is_found_by_it_alone() -> None:
    table = sound_table()
    BuiltMetadata(table)
    for at, done in ((1, 2), (3, 4)):
        requested = Instant(time(at), Action.DELTA_COMMIT, State.REQUESTED)
        for instant in (requested, requested.started(), requested.done(time(done))):
            table.forget(instant)
    table.remove(OTHER)
    gone = [each for each in validate(table.store).findings if each.object == OTHER]
    assert [(each.check, each.severity) for each in gone] == [(CHECK, PROBLEM)]


def test_an_old_version_that_is_gone_is_a_warning() -> None:
    table = sound_table()
    table.write(7, 8, {base("g-0", 7): table.body(BASE)})
    BuiltMetadata(table)
    table.remove(BASE)
    finding = only(table)
    assert (finding.severity, finding.object) == (WARNING, BASE)


def test_a_partition_that_is_not_among_all_is_named() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table, {})
    metadata.write(7, 8, metadata.folders(), partitions={"p": 0})
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, "q")
    assert "__all_partitions__" in finding.what


def cleaned(table: Sound, *gone: str, done: bool = True) -> None:
    """Delete files by a clean at 11, that completes at 13 if `done`."""
    table.remove(*gone)
    plan = CleanerPlan(
        "KEEP_LATEST_COMMITS",
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


def with_old_version() -> tuple[Sound, BuiltMetadata]:
    table = sound_table()
    table.write(7, 8, {base("g-0", 7): table.body(BASE)})
    return table, BuiltMetadata(table)


def test_a_clean_that_it_does_not_know_is_named_with_its_files() -> None:
    table, metadata = with_old_version()
    cleaned(table, BASE, LOG)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, METADATA_FOLDER)
    assert f"the clean {time(11)}" in finding.what
    assert BASE in finding.what
    assert LOG in finding.what
    metadata.write(11, 12, {"p": {name(BASE): None, name(LOG): None}}, partitions={})
    assert metadata_findings(table) == []


def test_a_cleaned_file_that_could_not_be_deleted_need_not_be_listed() -> None:
    table, metadata = with_old_version()
    body = table.body(LOG)
    cleaned(table, BASE, LOG)
    metadata.write(11, 12, {"p": {name(BASE): None, name(LOG): None}}, partitions={})
    table.put(LOG, body)
    assert metadata_findings(table) == []


def test_a_clean_that_has_not_completed_is_no_disagreement() -> None:
    table, _ = with_old_version()
    cleaned(table, BASE, LOG, done=False)
    assert metadata_findings(table) == []


def test_one_that_was_built_after_a_clean_need_not_know_it() -> None:
    table, _ = with_old_version()
    cleaned(table, BASE, LOG)
    BuiltMetadata(table)
    assert metadata_findings(table) == []


def test_a_rollback_that_took_files_away_behind_its_back_is_named() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    metadata.write(7, 8, {"p": {name(base("i-0", 7)): 9}})
    rollback = RollbackMetadata(time(9), 1, 1, (time(7),))
    table.put(f".hoodie/timeline/{time(9)}.rollback.requested", b"")
    table.put(f".hoodie/timeline/{time(9)}_{time(10)}.rollback", encode(rollback))
    finding = only(table)
    assert finding.object == base("i-0", 7)
    assert finding.severity is WARNING


def test_files_of_a_task_that_was_tried_again_are_not_missed_in_it() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    key = table.upsert(7, 10, "c")
    metadata.write(7, 9, {"p": {name(key): size_of(table, key)}})
    table.put(log("h-0", 7, "q"), table.body(LOG))
    assert metadata_findings(table) == []


def test_replaced_file_groups_stay_listed_until_they_are_cleaned() -> None:
    table = sound_table()
    metadata = BuiltMetadata(table)
    table.commit(9, 12, replaced={"q": ("h-0",)})
    table.put(f".hoodie/timeline/{time(9)}.replacecommit.requested", b"")
    metadata.write(9, 11, {}, partitions={})
    assert metadata_findings(table) == []


def _with_broken_log(table: Sound) -> None:
    metadata = BuiltMetadata(table)
    key = metadata.write(7, 8, {"p": {"x": 1}})
    table.put(key, table.body(key).replace(b"DATABLK*", b"DATABLK?"))


DAMAGES: dict[str, tuple[Callable[[Sound], None], str]] = {
    "broken block": (_with_broken_log, f".files-0000-0_{time(7)}.log.1_0-0-0 at byte 0"),
    "no HFile": (lambda t: t.put(HFILE, b"x" * 5_000), HFILE),
    "cut": (lambda t: t.put(HFILE, t.body(HFILE)[:-100]), HFILE),
    "no file": (lambda t: t.remove(HFILE), "has no file"),
    "empty instant": (
        lambda t: t.put(f"{METADATA_FOLDER}/.hoodie/timeline/{INIT}_{time(6)}.deltacommit", b""),
        "zero bytes",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_that_cannot_be_read_is_a_problem(damage: str) -> None:
    table = sound_table()
    BuiltMetadata(table)
    do, says = DAMAGES[damage]
    do(table)
    finding = only(table)
    assert (finding.severity, finding.object) == (PROBLEM, METADATA_FOLDER)
    assert says in finding.what


def test_one_that_is_gone_is_a_warning() -> None:
    table = sound_table()
    BuiltMetadata(table)
    table.remove(*[meta.key for meta in table.store.list(f"{METADATA_FOLDER}/")])
    finding = only(table)
    assert finding.severity is WARNING
    assert "missing" in finding.what


def test_a_folder_that_no_reader_uses_is_not_looked_at() -> None:
    table = sound_table()
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
def test_a_real_table_whose_metadata_table_lost_its_last_write_is_found(
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
