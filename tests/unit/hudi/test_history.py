"""The archived timeline: written, merged, read back, and read when files are corrupt or missing."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.doubles import ManualClock, ScriptedStore, answer
from tests.unit.hudi.table_builder import time
from tidelock.core.errors import Conflict, DataCorrupt
from tidelock.hudi.timeline.history import (
    HISTORY_FOLDER,
    MERGE_FILES,
    Archive,
    ArchivedInstant,
    HistoryFile,
    Manifest,
)
from tidelock.hudi.timeline.instant import Action
from tidelock.storage.contract import Busy, Overwrite, PutMode, PutReply, Unclear
from tidelock.storage.memory import MemoryStore


def instant(number: int, action: Action = Action.COMMIT, took: int = 1) -> ArchivedInstant:
    return ArchivedInstant(time(number), time(number + took), action, b"done", b"plan")


def put(store: MemoryStore, name: str, body: bytes) -> None:
    store.put(f"{HISTORY_FOLDER}/{name}", body, Overwrite())


def names(store: MemoryStore) -> set[str]:
    return {
        meta.key.removeprefix(f"{HISTORY_FOLDER}/") for meta in store.list(f"{HISTORY_FOLDER}/")
    }


def test_table_that_was_never_archived_has_no_history() -> None:
    archive = Archive(MemoryStore())
    assert archive.manifest().files == ()
    assert archive.instants() == ()
    assert archive.completions({time(1)}) == {}


def test_archiving_nothing_writes_nothing() -> None:
    store = MemoryStore()
    Archive(store).append([])
    assert names(store) == set()


def test_file_names_match_java() -> None:
    store = MemoryStore()
    Archive(store).append([instant(7), instant(3)])
    data = f"{time(3)}_{time(7)}_0.parquet"
    assert names(store) == {"_version_", "manifest_1", data}
    version = store.get(f"{HISTORY_FOLDER}/_version_")
    manifest = store.get(f"{HISTORY_FOLDER}/manifest_1")
    file = store.get(f"{HISTORY_FOLDER}/{data}")
    assert version is not None
    assert manifest is not None
    assert file is not None
    assert version.body == b"1"
    assert json.loads(manifest.body) == {"files": [{"fileName": data, "fileLen": len(file.body)}]}
    table = pq.read_table(pa.BufferReader(file.body))
    assert table["instantTime"].to_pylist() == [time(3), time(7)]
    assert table.schema.field("version").type == pa.int32()
    assert not table.schema.field("version").nullable


@given(st.lists(st.lists(st.integers(0, 999), max_size=5, unique=True), max_size=14))
def test_appended_instants_are_read_back_once(runs: list[list[int]]) -> None:
    archive = Archive(MemoryStore())
    for run in runs:
        archive.append([instant(number) for number in run])
    everything = sorted({number for run in runs for number in run})
    assert archive.instants() == tuple(instant(number) for number in everything)
    assert archive.completions([time(number) for number in everything]) == {
        time(number): time(number + 1) for number in everything
    }


def test_full_levels_are_merged() -> None:
    store = MemoryStore()
    archive = Archive(store)
    for number in range(MERGE_FILES * MERGE_FILES):
        archive.append([instant(number)])
    (only,) = archive.manifest().files
    assert (only.level, only.first, only.last) == (2, time(0), time(99))
    assert len(archive.instants()) == MERGE_FILES * MERGE_FILES


def test_files_in_recent_manifests_are_kept_for_slow_readers() -> None:
    store = MemoryStore()
    archive = Archive(store)
    for number in range(MERGE_FILES):
        archive.append([instant(number)])
    level_0 = {name for name in names(store) if name.endswith("_0.parquet")}
    assert len(level_0) == MERGE_FILES - 1  # the tenth was never listed in a manifest
    for number in range(10, 13):
        archive.append([instant(number)])
    assert {name for name in names(store) if name.startswith("manifest")} == {
        "manifest_11",
        "manifest_12",
        "manifest_13",
    }
    assert not level_0 & names(store)


def test_completions_read_only_files_that_may_contain_them() -> None:
    store = ScriptedStore(MemoryStore())
    archive = Archive(store)
    for number in (10, 20, 30):
        archive.append([instant(number), instant(number + 5)])
    store.requests.clear()
    assert archive.completions({time(22), time(25)}) == {time(25): time(26)}
    read = [key for verb, key in store.requests if verb == "get" and key.endswith(".parquet")]
    assert read == [f"{HISTORY_FOLDER}/{time(20)}_{time(25)}_0.parquet"]


def test_completion_is_that_of_a_write() -> None:
    archive = Archive(MemoryStore())
    archive.append(
        [instant(1, Action.SAVEPOINT, took=50), instant(1, took=1), instant(2, Action.CLEAN)]
    )
    assert archive.completions({time(1), time(2)}) == {time(1): time(2)}


def test_instants_are_found_by_completion() -> None:
    archive = Archive(MemoryStore())
    archive.append([instant(1, took=40), instant(10), instant(20)])
    found = archive.instants(after=time(11), until=time(41))
    assert [each.requested for each in found] == [time(1), time(20)]


def test_files_with_only_earlier_completions_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = Archive(MemoryStore())
    archive.append([instant(1, took=40), instant(2)])
    archive.append([instant(10), instant(20)])
    archive.append([instant(30)])
    read: list[str] = []
    true = Archive._table

    def noting(self: Archive, file: HistoryFile, columns: Sequence[str]) -> pa.Table:
        read.append(file.first)
        return true(self, file, columns)

    monkeypatch.setattr(Archive, "_table", noting)
    assert [each.requested for each in archive.instants(after=time(21))] == [time(1), time(30)]
    assert read == [time(1), time(30)]


def test_file_without_completion_bounds_is_read() -> None:
    store = MemoryStore()
    archive = Archive(store)
    archive.append([instant(1, took=40)])
    (file,) = archive.manifest().files
    found = store.get(f"{HISTORY_FOLDER}/{file.name}")
    assert found is not None
    silent = io.BytesIO()
    pq.write_table(pq.read_table(pa.BufferReader(found.body)), silent, write_statistics=False)
    put(store, file.name, silent.getvalue())
    assert [each.requested for each in archive.instants(after=time(21))] == [time(1)]


@pytest.mark.parametrize("version", [None, b"", b"x"])
def test_newest_manifest_is_used_without_a_valid_version_file(version: bytes | None) -> None:
    store = MemoryStore()
    archive = Archive(store)
    for number in range(11):
        archive.append([instant(number)])
    store.delete(f"{HISTORY_FOLDER}/_version_")
    if version is not None:
        put(store, "_version_", version)
    assert archive.manifest().number == 11


def test_unknown_action_survives_a_merge_and_is_not_shown() -> None:
    store = MemoryStore()
    archive = Archive(store)
    body = io.BytesIO()
    row: dict[str, list[Any]] = {
        "instantTime": [time(0)],
        "completionTime": [time(1)],
        "action": ["poem"],
        "metadata": [b""],
        "plan": [None],
        "version": [1],
    }
    pq.write_table(pa.table(row), body)
    name = f"{time(0)}_{time(0)}_0.parquet"
    put(store, name, body.getvalue())
    listed = {"files": [{"fileName": name, "fileLen": body.getbuffer().nbytes}]}
    put(store, "manifest_1", json.dumps(listed).encode())
    for number in range(1, MERGE_FILES):
        archive.append([instant(number)])
    (merged,) = archive.manifest().files
    assert merged.first == time(0)
    assert len(archive.instants()) == MERGE_FILES - 1


def test_missing_manifest_is_refused() -> None:
    store = MemoryStore()
    put(store, "_version_", b"7")
    with pytest.raises(DataCorrupt, match="manifest_7 is missing"):
        Archive(store).manifest()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"files":[{}]}', b'{"files":[{"fileName":"x","fileLen":1}]}']
)
def test_corrupt_manifest_is_refused_by_name(body: bytes) -> None:
    store = MemoryStore()
    put(store, "manifest_1", body)
    with pytest.raises(DataCorrupt, match="manifest_1: invalid manifest"):
        Archive(store).manifest()


@pytest.mark.parametrize("body", [b"", b"PAR1", b"junk" * 100])
def test_corrupt_file_is_refused_by_name(body: bytes) -> None:
    store = MemoryStore()
    archive = Archive(store)
    archive.append([instant(1)])
    put(store, f"{time(1)}_{time(1)}_0.parquet", body)
    with pytest.raises(DataCorrupt, match=f"{time(1)}_{time(1)}_0.parquet: invalid history file"):
        archive.instants()


def test_missing_file_is_refused_by_name() -> None:
    store = MemoryStore()
    archive = Archive(store)
    archive.append([instant(1)])
    store.delete(f"{HISTORY_FOLDER}/{time(1)}_{time(1)}_0.parquet")
    with pytest.raises(DataCorrupt, match="is missing from the history"):
        archive.instants()


def test_merge_during_a_read_is_transparent() -> None:
    inner = MemoryStore()
    writer = Archive(inner)
    for number in range(MERGE_FILES - 1):
        writer.append([instant(number)])

    class MergedDuringRead(ScriptedStore):
        """A store whose history is merged and cleaned up right after its manifest is read."""

        was_merged = False

        def get(self, key: str, *, start: int = 0, end: int | None = None) -> Any:
            found = self.inner.get(key, start=start, end=end)
            if "manifest_" in key and not self.was_merged:
                self.was_merged = True
                for number in range(MERGE_FILES - 1, MERGE_FILES + 5):
                    writer.append([instant(number)])
            return found

    assert len(Archive(MergedDuringRead(inner)).instants()) == MERGE_FILES + 5


@pytest.mark.parametrize("reply", [Unclear("reset"), Busy(cause="429")])
def test_history_file_whose_write_failed_is_written_again(reply: Unclear | Busy) -> None:
    store = ScriptedStore(MemoryStore())
    store.puts.append(answer(reply))
    Archive(store).append([instant(1)])
    assert [each.requested for each in Archive(store).instants()] == [time(1)]


def test_one_of_two_concurrent_archivers_conflicts_and_nothing_is_lost() -> None:
    inner = MemoryStore()
    Archive(inner).append([instant(1)])

    class ArchivedMeanwhile(ScriptedStore):
        """A store on which another client archives while the first history file is written."""

        raced = False

        def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
            if key.endswith("_0.parquet") and not self.raced:
                self.raced = True
                Archive(inner).append([instant(3)])
            return self.inner.put(key, body, mode)

    with pytest.raises(Conflict, match="manifest_2"):
        Archive(ArchivedMeanwhile(inner)).append([instant(2)])
    Archive(inner).append([instant(2)])
    assert {each.requested for each in Archive(inner).instants()} == {time(1), time(2), time(3)}


def test_late_archiver_cannot_revert_the_history() -> None:
    store = MemoryStore()
    Archive(store).append([instant(1)])

    class SuspendedBeforeLastWrite(ScriptedStore):
        """A store whose client is suspended before its last write while others archive."""

        slept = False

        def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
            if key.endswith("_version_") and not self.slept:
                self.slept = True
                Archive(store).append([instant(3)])
                Archive(store).append([instant(4)])
            return self.inner.put(key, body, mode)

    with pytest.raises(Conflict):
        Archive(SuspendedBeforeLastWrite(store)).append([instant(2)])
    # The next archiver found and included its manifest.
    assert {each.requested for each in Archive(store).instants()} == {
        time(number) for number in (1, 2, 3, 4)
    }


def test_next_archiver_finishes_the_last_step_of_a_crashed_one() -> None:
    store = MemoryStore()
    Archive(store).append([instant(1)])
    Archive(store).append([instant(2)])
    put(store, "_version_", b"1")
    assert [each.requested for each in Archive(store).instants()] == [time(1)]
    Archive(store).append([instant(3)])
    assert len(Archive(store).instants()) == 3


def test_slow_cleanup_leaves_concurrent_files(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for number in range(4):
        Archive(store).append([instant(number)])
    sweep, meanwhile = Archive._delete_unreferenced, [instant(21)]

    def slow(self: Archive, current: Manifest, made: Collection[str]) -> None:
        if meanwhile:
            Archive(store).append([meanwhile.pop()])
        sweep(self, current, made)

    monkeypatch.setattr(Archive, "_delete_unreferenced", slow)
    Archive(store).append([instant(20)])
    assert [each.requested for each in Archive(store).instants()] == [
        time(number) for number in (0, 1, 2, 3, 20, 21)
    ]


def test_merge_of_files_already_merged_by_others_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    for number in range(MERGE_FILES - 1):
        Archive(store).append([instant(number)])
    write, meanwhile = Archive._write, [instant(number) for number in range(20, 26)]

    def slow(self: Archive, rows: pa.Table, *, level: int) -> Any:
        found = write(self, rows, level=level)
        others, meanwhile[:] = meanwhile[:], []
        for other in others:
            Archive(store).append([other])
        return found

    monkeypatch.setattr(Archive, "_write", slow)
    with pytest.raises(Conflict, match="changed concurrently"):
        Archive(store).append([instant(30)])
    assert len(Archive(store).instants()) == MERGE_FILES - 1 + 6


def test_instant_is_added_once() -> None:
    store = MemoryStore()
    Archive(store).append([instant(1), instant(2)])
    assert Archive(store).append([instant(2), instant(1)]).number == 1
    assert Archive(store).append([instant(2), instant(3)]).number == 2
    assert [each.requested for each in Archive(store).instants()] == [time(1), time(2), time(3)]
    assert f"{time(3)}_{time(3)}_0.parquet" in names(store)


def test_orphans_of_a_crashed_archiver_are_deleted_eventually() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    Archive(store).append([instant(1)])
    left = f"{time(5)}_{time(6)}_0.parquet"
    put(store, left, b"of somebody who died")
    Archive(store).append([instant(2)])
    assert left in names(store)
    clock.advance(2 * 3_600_000)
    Archive(store).append([instant(3)])
    assert left not in names(store)
    assert len(Archive(store).instants()) == 3
