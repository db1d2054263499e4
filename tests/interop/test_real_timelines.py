"""Timelines and file slices of tables written by Java, compared with the package `hudi`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.interop.real_tables import NAMES, unpacked
from tests.unit.doubles import ManualClock
from tidelock.core.system import SeededIds
from tidelock.hudi import partitions as partition
from tidelock.hudi import properties as keys
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.partitions import list_partitions
from tidelock.hudi.properties import checksum, update_properties
from tidelock.hudi.snapshot import TableSnapshot, open_table
from tidelock.hudi.timeline.active import TIMELINE_FOLDER, ActiveTimeline, load_timeline
from tidelock.hudi.timeline.history import ArchivedInstant
from tidelock.hudi.timeline.instant import Action, Instant, format_time, parse_time
from tidelock.hudi.timeline.metadata import CONTENT, decode, encode
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import ObjectStore
from tidelock.storage.local import LocalStore

hudi = pytest.importorskip("hudi", reason="the independent reader is not installed")

MDT_TIMELINE = ".hoodie/metadata/.hoodie/timeline"

Shape = tuple[str, str, str, tuple[str, ...]]


@pytest.fixture(params=NAMES)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the base path of each real table in turn."""
    return unpacked(request.param, tmp_path)


@pytest.fixture
def snapshot(base: Path) -> TableSnapshot:
    """Return our snapshot of the table."""
    return open_table(LocalStore(base))


def judge(base: Path) -> Any:
    """Return the table as opened by `hudi`."""
    return hudi.HudiTableBuilder.from_base_uri(str(base)).build()


def ours(slices: tuple[FileSlice, ...]) -> list[Shape]:
    return sorted(
        (
            each.partition,
            each.file_id,
            each.base.name if each.base else "",
            tuple(log.name for log in each.logs),
        )
        for each in slices
    )


def theirs(slices: list[Any], logs_of: set[str] | None = None) -> list[Shape]:
    """Return the slices of `hudi`; it lists later logs too, and skips them when it reads."""
    return sorted(
        (
            each.partition_path,
            each.file_id,
            each.base_file_name,
            tuple(
                log
                for log in each.log_file_names
                if logs_of is None or log.partition(".log.")[0].rpartition("_")[2] in logs_of
            ),
        )
        for each in slices
    )


def timelines(base: Path) -> Iterator[ActiveTimeline]:
    """Yield the table's timeline, and that of its metadata table if it has one."""
    store = LocalStore(base)
    yield load_timeline(store)
    yield load_timeline(store, MDT_TIMELINE)


def contents(base: Path) -> Iterator[tuple[Instant, str, bytes]]:
    """Yield every non-empty file of the timelines."""
    for timeline in timelines(base):
        for instant in timeline.files:
            stored = timeline.store.get(timeline.key(instant))
            assert stored is not None
            if stored.body:
                yield instant, timeline.key(instant), stored.body


def test_properties_match_hudi(base: Path, snapshot: TableSnapshot) -> None:
    found, table = snapshot.properties, judge(base)
    assert found.name == table.table_name
    assert found.type.value == table.table_type
    assert found.values[keys.CHECKSUM] == str(checksum(found.database, found.name))
    assert found.has_metadata_table == base.joinpath(".hoodie/metadata").exists()


def test_every_timeline_file_is_an_instant(base: Path, snapshot: TableSnapshot) -> None:
    names = {each.name for each in base.joinpath(TIMELINE_FOLDER).iterdir() if each.is_file()}
    assert {instant.file_name for instant in snapshot.timeline.files} == names


def test_completed_writes_match_hudi(base: Path, snapshot: TableSnapshot) -> None:
    timeline = judge(base).get_timeline()
    for action, listed in (
        (Action.COMMIT, timeline.get_completed_commits()),
        (Action.DELTA_COMMIT, timeline.get_completed_deltacommits()),
        (Action.REPLACE_COMMIT, timeline.get_completed_replacecommits()),
    ):
        found = snapshot.timeline.completed(action)
        assert [instant.requested for instant in found] == [each.timestamp for each in listed]
        assert all(format_time(parse_time(each.completion)) == each.completion for each in found)


def test_nothing_is_pending_and_every_completed_instant_was_requested(base: Path) -> None:
    for timeline in timelines(base):
        assert timeline.pending() == ()
        for instant in timeline.completed():
            assert instant.requested < instant.completion
            states = [each.state for each in timeline.states(instant)]
            assert len(states) == 3, instant


def test_every_metadata_file_decodes_and_encodes_to_the_same_values(base: Path) -> None:
    seen = 0
    for instant, key, body in contents(base):
        kind = CONTENT[instant.action, instant.state]
        metadata = decode(kind, body, where=key)
        again = encode(metadata)
        assert list(fastavro.reader(io.BytesIO(again))) == list(fastavro.reader(io.BytesIO(body)))
        assert decode(kind, again, where=key) == metadata
        seen += 1
    assert seen >= 4


def test_schemas_match_those_that_java_writes(base: Path) -> None:
    for instant, _, body in contents(base):
        kind = CONTENT[instant.action, instant.state]
        mine = fastavro.reader(io.BytesIO(encode(decode(kind, body, where="")))).writer_schema
        java = fastavro.reader(io.BytesIO(body)).writer_schema
        assert _plain(mine) == _plain(java)


def _plain(schema: Any) -> Any:
    """Return a schema without the attributes that only Java's classes need."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _plain(value)
        for key, value in schema.items()
        if key not in ("doc", "avro.java.string")
    }
    if kept.get("type") in ("array", "map"):
        kept.pop("default", None)
    kept.pop("__fastavro_parsed__", None)
    kept.pop("__named_schemas", None)
    return kept["type"] if kept.keys() == {"type"} else kept


def test_schema_matches_hudi(base: Path, snapshot: TableSnapshot) -> None:
    found = snapshot.schema_json()
    assert found is not None
    assert json.loads(found) == json.loads(judge(base).get_schema_in_avro_str())


def test_file_slices_match_hudi(base: Path, snapshot: TableSnapshot) -> None:
    found = snapshot.slices()
    assert ours(found) == theirs(judge(base).get_file_slices())
    for each in found:
        for file in ([each.base] if each.base else []) + list(each.logs):
            assert file.size_bytes == base.joinpath(file.key).stat().st_size


def test_slices_of_every_past_instant_match_hudi(base: Path, snapshot: TableSnapshot) -> None:
    table = judge(base)
    writes = [instant.requested for instant in snapshot.timeline.writes()]
    for number, as_of in enumerate(writes):
        options = hudi.HudiReadOptions().with_as_of_timestamp(as_of)
        expected = theirs(table.get_file_slices(options), set(writes[: number + 1]))
        assert ours(snapshot.slices(as_of=as_of)) == expected


def test_slices_of_every_change_match_hudi(base: Path, snapshot: TableSnapshot) -> None:
    table = judge(base)
    writes = sorted(snapshot.timeline.writes(), key=lambda instant: instant.completion)
    times = ["00000000000000000", *(instant.completion for instant in writes)]
    for number, (begin, end) in enumerate(pairwise(times)):
        options = (
            hudi.HudiReadOptions()
            .with_query_type(hudi.HudiQueryType.Incremental)
            .with_start_timestamp(begin)
            .with_end_timestamp(end)
        )
        by_then = {instant.requested for instant in writes[: number + 1]}
        changes = snapshot.slices_between(begin, end)
        assert ours(changes.slices) == theirs(table.get_file_slices(options), by_then)
        assert changes.instants == {writes[number].requested}


def test_partitions_have_the_metadata_that_we_would_write(
    base: Path, snapshot: TableSnapshot
) -> None:
    store = snapshot.store
    partitions = list_partitions(store) if snapshot.properties.is_partitioned else ("",)
    assert {each.partition for each in snapshot.slices()} <= set(partitions)
    for each in partitions:
        stored = store.get(partition.metadata_key(each))
        assert stored is not None
        found = partition.decode(stored.body, where=each)
        assert found == partition.metadata_for(each, found.commit_time)
        assert snapshot.timeline.find(found.commit_time) is not None


def test_changed_property_is_read_by_hudi(base: Path, snapshot: TableSnapshot) -> None:
    before = ours(snapshot.slices())
    policy = ReadbackPolicy(clock=ManualClock(), ids=SeededIds(1))
    update_properties(snapshot.store, {keys.TIMEZONE: "UTC", "a b": "ü=:\\"}, policy=policy)
    changed = open_table(snapshot.store)
    assert changed.properties.is_utc
    assert changed.properties.values["a b"] == "ü=:\\"
    table = judge(base)
    assert table.table_name == changed.properties.name
    assert ours(changed.slices()) == theirs(table.get_file_slices()) == before


def test_archiving_the_older_half_changes_no_slice(base: Path, snapshot: TableSnapshot) -> None:
    before, changes = ours(snapshot.slices()), snapshot.slices_between()
    # A replacecommit stays until its replaced files are cleaned: without it they would reappear.
    writes = [w for w in snapshot.timeline.writes() if w.action is not Action.REPLACE_COMMIT]
    first_replace = min(
        (w.requested for w in snapshot.timeline.completed(Action.REPLACE_COMMIT)), default="~"
    )
    older = [write for write in writes[: len(writes) // 2] if write.requested < first_replace]
    assert older
    _archive(snapshot.store, snapshot, older)
    archived = open_table(snapshot.store)
    assert archived.timeline.start == writes[len(older)].requested
    assert [each.requested for each in archived.archive.instants()] == [w.requested for w in older]
    assert ours(archived.slices()) == theirs(judge(base).get_file_slices()) == before
    assert archived.slices_between() == changes


def _archive(store: ObjectStore, snapshot: TableSnapshot, instants: list[Instant]) -> None:
    timeline = snapshot.timeline
    rows = []
    for instant in instants:
        stored = store.get(timeline.key(instant))
        assert stored is not None
        rows.append(
            ArchivedInstant(instant.requested, instant.completion, instant.action, stored.body)
        )
    snapshot.archive.append(rows)
    for instant in instants:
        for state in timeline.states(instant):
            store.delete(timeline.key(state))
