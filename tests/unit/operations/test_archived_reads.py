"""Reads while the archive removes instants from the timeline: no row is lost or added."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.execution.local.write import LocalWriter
from tidelock.operations.file_view import load_view
from tidelock.operations.read import TableReader, snapshot_now
from tidelock.storage.contract import ObjectMeta
from tidelock.storage.uri import open_store

TIMELINE = ".hoodie/timeline/"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}


class Torn:
    """A store whose timeline listing returned an instant just before it was deleted."""

    def __init__(self, inner: Any, found: ObjectMeta) -> None:
        self._inner = inner
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list(self, prefix: str, **more: Any) -> Iterator[ObjectMeta]:
        if prefix == TIMELINE:
            yield self._found
        yield from self._inner.list(prefix, **more)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tl.Table]:
    """Return a table whose rows are all in log files, each from another write."""
    kind = "MERGE_ON_READ"
    made = tl.Table.create(str(tmp_path / "t"), SCHEMA, key="id", type=kind, options=OPTIONS)
    with made:
        made.upsert([{"id": each, "amount": 0} for each in range(10)])
        for each in range(10):
            made.upsert([{"id": each, "amount": each + 1}])
        yield made


def _rows(found: pa.Table) -> dict[int, int]:
    return dict(
        zip(found.column("id").to_pylist(), found.column("amount").to_pylist(), strict=True)
    )


EXPECTED = {each: each + 1 for each in range(10)}


def _second_write(table: tl.Table) -> ObjectMeta:
    done = [m for m in table.writer().store.list(TIMELINE) if m.key.endswith(".deltacommit")]
    return done[1]


def test_listing_torn_by_the_archive_loses_no_row(table: tl.Table) -> None:
    found = _second_write(table)
    assert table.archive().instants > 2
    torn: Any = Torn(table.writer().store, found)
    assert _rows(TableReader(snapshot_now(torn)).read()) == EXPECTED


def test_writer_that_begins_with_a_torn_listing_knows_every_log_file(table: tl.Table) -> None:
    writer = table.writer()
    state, found = writer.transactions.ledger.refresh(), _second_write(table)
    full_view = load_view(writer.store, writer.properties, state, least_bytes=0)
    table.archive()
    torn: Any = Torn(writer.store, found)
    seen = load_view(torn, writer.properties, state, least_bytes=0)
    logs = [
        {log.key for held in view.slices.values() for each in held.values() for log in each.logs}
        for view in (full_view, seen)
    ]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 10


def test_archiving_between_two_reads_adds_no_later_write(table: tl.Table) -> None:
    with closing(open_store(table.uri, {})) as store:
        reader = TableReader(snapshot_now(store))
        since = reader.timeline[0].completion
        before, seen = _rows(reader.read()), reader.latest_completion
        table.upsert([{"id": 3, "amount": 99}])
        table.archive()
        changed = _rows(reader.changes(since))
        assert changed == {key: value for key, value in EXPECTED.items() if key in changed}
        assert len(changed) == 10
        assert (reader.latest_completion, _rows(reader.read())) == (seen, before)


@pytest.fixture
def late_write(table: tl.Table, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let a write begin before ten others and complete after all of them but one.

    Returns: the completion time of the last of the ten.
    """
    seen: list[str] = []
    true = LocalWriter.write

    def slow(engine: LocalWriter, *given: Any, **more: Any) -> Any:
        monkeypatch.setattr(LocalWriter, "write", true)
        with tl.Table.open(table.uri) as others:
            for each in range(10):
                others.upsert([{"id": 100 + each, "amount": each}])
            others.refresh()
            seen.append(others.latest_completion or "")
        return true(engine, *given, **more)

    monkeypatch.setattr(LocalWriter, "write", slow)
    table.upsert([{"id": 77, "amount": 77}])
    return seen[0]


def test_archived_write_that_began_long_ago_is_a_change(table: tl.Table, late_write: str) -> None:
    table.upsert([{"id": 78, "amount": 78}])
    assert table.archive().instants > 2
    with tl.Table.open(table.uri) as reader:
        assert _rows(reader.changes(late_write)) == {77: 77, 78: 78}
        followed = [_rows(rows) for _, rows in reader.follow(late_write, idle_ms=0)]
    assert {key for rows in followed for key in rows} == {77, 78}


def test_write_that_completed_last_stays_on_the_timeline(table: tl.Table, late_write: str) -> None:
    table.archive()
    with tl.Table.open(table.uri) as reader:
        assert _rows(reader.changes(late_write)) == {77: 77}


def test_time_travel_to_an_archived_write_has_its_columns(tmp_path: Path) -> None:
    with tl.Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=OPTIONS) as table:
        wider = pa.table({"id": [1], "amount": [2.5], "note": ["new"]})
        then = table.upsert(wider).instant
        for each in range(10):
            table.upsert([{"id": 2 + each, "amount": 1.0, "note": "later"}])
        assert table.archive().instants > 2
        assert table.read(as_of=then).to_pylist() == wider.to_pylist()
