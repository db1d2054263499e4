"""Apache Hudi's Java writer and ours alternate on one table, and both read the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from testkit.java import JavaTables
from testkit.judges import HudiJava, HudiRs, rows_of
from tests.interop.conftest import java_in
from tests.interop.stories import KINDS, TYPES, Kind, Row, StoryTable, make, row
from tests.unit.operations.external import contents
from tidelock.core.errors import TidelockError, Unsupported
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.properties import load_properties
from tidelock.hudi.schema import avro_schema, render_schema
from tidelock.inspect.table_doctor import DoctorTarget, examine_table
from tidelock.inspect.validate import validate
from tidelock.storage.uri import open_store

BEGINNING = "00000000000000000"
BY_NAME = {kind.name: kind for kind in KINDS}
WITH_METADATA_TABLE = {"hoodie.metadata.enable": "true"}

COPIED, MERGED = TYPES
# Each kind and each type is covered; the full product would add nothing about Java.
CASES = [
    pytest.param(BY_NAME[name], table_type, version, id=f"{name}-{table_type}-v{version}")
    for name, table_type, version in (
        ("flat", COPIED, 9),
        ("flat", MERGED, 9),
        ("flat-two-keys-no-ordering", MERGED, 9),
        ("simple", COPIED, 9),
        ("simple", MERGED, 8),
        ("complex-hive-style", MERGED, 9),
        ("complex-hive-style", COPIED, 8),
        ("by-time", MERGED, 9),
    )
]


class Shared:
    """A table that Java and we write alternately."""

    def __init__(self, made: StoryTable, java: JavaTables) -> None:
        """Use an existing table."""
        self.made = made
        self.java = java
        self.judges = (HudiJava(java), HudiRs())

    def java_writes(
        self, operation: str, rows: Sequence[Row], options: dict[str, str] | None = None
    ) -> str:
        """Let Hudi's client write rows."""
        with self.made.open() as table:
            schema = render_schema(avro_schema(table.schema, table=table.properties.name))
        return self.java.write(self.made.uri, operation, rows, schema, options)

    def ours(self, options: dict[str, str] | None = None) -> tl.Table:
        """Open the table for writing."""
        return tl.Table.open(self.made.uri, options=options)

    def versions(self) -> dict[int, int]:
        """Return the version of each row, after checking that all readers agree on the rows."""
        with self.made.open() as table:
            ours = rows_of(table.read(meta_columns=True))
        for judge in self.judges:
            assert judge.snapshot(self.made.uri) == ours, judge.name
        store = open_store(self.made.uri)
        # Until our next write the ledger does not contain Java's writes.
        assert validate(store).problems == ()
        store.close()
        return {each["id"]: each["ts"] for each in ours}


@pytest.fixture
def java(hudi_java_tables: JavaTables) -> JavaTables:
    """Return Hudi's Java code."""
    return hudi_java_tables


@pytest.mark.parametrize(("kind", "table_type", "version"), CASES)
def test_java_upserts_into_our_table_and_we_continue(
    kind: Kind, table_type: str, version: int, tmp_path: Path, java: JavaTables
) -> None:
    shared = Shared(make(tmp_path, kind, table_type, version), java)
    with shared.ours() as table:
        table.insert([row(n) for n in range(1, 8)])
        table.upsert([row(n, 2) for n in (1, 2)])
    expected = dict.fromkeys(range(1, 8), 1) | {1: 2, 2: 2}

    shared.java_writes("upsert", [row(n, 3) for n in (1, 3, 40)])
    expected |= {1: 3, 3: 3, 40: 3}
    assert shared.versions() == expected

    shared.java_writes("delete", [row(2)])
    del expected[2]
    assert shared.versions() == expected

    with shared.ours() as table:
        table.upsert([row(n, 5) for n in (1, 4, 40, 41)])
        table.delete([row(5)])
    expected |= {1: 5, 4: 5, 40: 5, 41: 5}
    del expected[5]
    assert shared.versions() == expected

    if table_type == "MERGE_ON_READ":
        assert java.compact(shared.made.uri)
        assert shared.versions() == expected
        with shared.ours() as table:
            assert not any(piece.logs for piece in table.files())
            table.upsert([row(n, 7) for n in (1, 6)])
        expected |= {1: 7, 6: 7}
        assert shared.versions() == expected

    shared.java_writes("upsert", [row(n, 8) for n in (41, 42)])
    assert shared.versions() == expected | {41: 8, 42: 8}
    if kind.name in ("flat", "simple"):
        _assert_history_agrees(shared)


def _assert_history_agrees(shared: Shared) -> None:
    """Compare time travel and changes of a table with two kinds of writers."""
    judge = shared.judges[0]
    with shared.made.open() as table:
        writes = [i for i in table.timeline if i.is_completed and i.action.writes_data]
        for instant in writes:
            ours = rows_of(table.read(meta_columns=True, as_of=instant.requested))
            assert judge.snapshot(shared.made.uri, instant.requested) == ours
        for since in (BEGINNING, *(instant.completion for instant in writes)):
            ours = rows_of(table.changes(since, meta_columns=True))
            assert judge.changes(shared.made.uri, since) == ours


@pytest.mark.parametrize("verb", ["rollback", "restore"])
@pytest.mark.parametrize("table_type", TYPES)
def test_java_rolls_back_our_commit_and_we_continue(
    verb: str, table_type: str, tmp_path: Path, java: JavaTables
) -> None:
    shared = Shared(make(tmp_path, BY_NAME["simple"], table_type, 9), java)
    with shared.ours() as table:
        table.insert([row(n) for n in range(1, 8)])
        stays = table.upsert([row(n, 2) for n in (1, 2)])
        goes = table.upsert([row(n, 3) for n in (2, 3, 40)])
        expected = dict.fromkeys(range(1, 8), 1) | {1: 2, 2: 2}
        target = goes if verb == "rollback" else stays
        assert java.roll_back(verb, shared.made.uri, target.instant)
        assert shared.versions() == expected
        table.upsert([row(4, 5)])
        expected |= {4: 5}
        assert shared.versions() == expected
    with shared.ours() as table:
        table.upsert([row(n, 6) for n in (2, 41)])
    expected |= {2: 6, 41: 6}
    assert shared.versions() == expected


def test_java_and_we_see_the_same_timeline(tmp_path: Path, java: JavaTables) -> None:
    shared = Shared(make(tmp_path, BY_NAME["simple"], "COPY_ON_WRITE", 9), java)
    with shared.ours() as table:
        table.insert([row(1)])
    shared.java_writes("upsert", [row(1, 2)])
    with shared.ours() as table:
        table.upsert([row(1, 3)])
        ours = [
            (i.requested, i.action.value, i.state.name, i.completion)
            for i in table.timeline
            if i.is_completed
        ]
    assert java.timeline(shared.made.uri) == ours
    assert [completion for *_, completion in ours] == sorted(completion for *_, completion in ours)


@pytest.mark.parametrize("table_type", TYPES)
def test_java_metadata_table_never_hides_our_writes(
    table_type: str, tmp_path: Path, java: JavaTables
) -> None:
    shared = Shared(make(tmp_path, BY_NAME["simple"], table_type, 9), java)
    with shared.ours() as table:
        table.insert([row(n) for n in range(1, 6)])
    shared.java_writes("upsert", [row(n, 2) for n in (1, 6)], WITH_METADATA_TABLE)
    expected = {1: 2, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2}
    assert shared.versions() == expected

    with shared.ours() as table:
        assert table.properties.has_metadata_table
        with pytest.raises(TidelockError, match="metadata table"):
            table.upsert([row(2, 3)])
    assert shared.versions() == expected

    with shared.ours({"tidelock.metadata.table.policy": "disable"}) as table:
        table.upsert([row(2, 3), row(7, 3)])
    expected |= {2: 3, 7: 3}
    assert shared.versions() == expected
    with shared.made.open() as table:
        assert not table.properties.has_metadata_table

    shared.java_writes("upsert", [row(7, 4)], WITH_METADATA_TABLE)
    assert shared.versions() == expected | {7: 4}


@pytest.mark.parametrize("table_type", TYPES)
def test_java_commits_are_kept_while_our_table_stays_open(
    table_type: str, tmp_path: Path, java: JavaTables
) -> None:
    shared = Shared(make(tmp_path, BY_NAME["simple"], table_type, 9), java)
    with shared.ours() as table:
        table.insert([row(n) for n in range(1, 6)])
        shared.java_writes("upsert", [row(n, 2) for n in (1, 6)])
        table.upsert([row(2, 3)])
        shared.java_writes("upsert", [row(n, 4) for n in (3, 6)])
        table.refresh()
        table.upsert([row(4, 5)])
        assert shared.versions() == {1: 2, 2: 3, 3: 4, 4: 5, 5: 1, 6: 4}
        shared.java_writes("upsert", [row(5, 6)], WITH_METADATA_TABLE)
        before = contents(Path(shared.made.uri))
        for change in (lambda: table.upsert([row(1, 7)]), table.compact, table.clean):
            with pytest.raises(Unsupported, match="metadata table"):
                change()
        assert contents(Path(shared.made.uri)) == before
        assert shared.versions() == {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 4}


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata"])
def test_java_client_in_another_time_zone_is_detected(zone: str, tmp_path: Path) -> None:
    """Hudi's client ignores the table's time zone; Spark's data source uses it."""
    with java_in(zone) as elsewhere:
        shared = Shared(make(tmp_path, BY_NAME["flat"], "COPY_ON_WRITE", 9), elsewhere)
        with shared.ours() as table:
            table.insert([row(n) for n in range(1, 6)])
            shared.java_writes("upsert", [row(n, 2) for n in (1, 6)])
            before = contents(Path(shared.made.uri))
            with pytest.raises(Unsupported, match="another time zone"):
                table.upsert([row(2, 3)])
            with pytest.raises(Unsupported, match="another time zone"):
                table.clean()
            left = {k: v for k, v in contents(Path(shared.made.uri)).items() if "tidelock" not in k}
            assert left == {k: v for k, v in before.items() if "tidelock" not in k}
    store = open_store(shared.made.uri)
    target = DoctorTarget(store, load_properties(store), {}, SystemClock(), SystemIds())
    messages = [
        each.message for each in examine_table(target).findings if each.about == "time zone"
    ]
    store.close()
    assert any("another time zone" in each for each in messages)


@pytest.mark.parametrize("table_type", TYPES)
def test_columns_we_add_are_visible_to_others(
    table_type: str, tmp_path: Path, java: JavaTables
) -> None:
    uri = str(tmp_path / "evolving")
    before = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    with tl.Table.create(uri, before, key="id", ordering="ts", type=table_type) as table:
        table.insert([{"id": n, "ts": 1} for n in range(4)])
        table.upsert([{"id": 1, "ts": 2}])
        table.upsert([{"id": n, "ts": 3, "note": f"note {n}"} for n in (0, 9)])
    shared = Shared(StoryTable(BY_NAME["flat"], table_type, 9, uri), java)
    assert shared.versions() == {0: 3, 1: 2, 2: 1, 3: 1, 9: 3}
    shared.java_writes("upsert", [{"id": 2, "ts": 4, "note": "by Java"}])
    assert shared.versions() == {0: 3, 1: 2, 2: 4, 3: 1, 9: 3}
    with shared.made.open() as table:
        rows = table.read().to_pylist()
    notes = {each["id"]: each["note"] for each in rows}
    assert notes == {0: "note 0", 1: None, 2: "by Java", 3: None, 9: "note 9"}


@pytest.mark.parametrize("table_type", TYPES)
def test_columns_we_widen_are_wide_for_java(
    table_type: str, tmp_path: Path, java: JavaTables
) -> None:
    """The package `hudi` is excluded: it refuses log files from before a type was widened."""
    uri = str(tmp_path / "evolving")
    before = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("n", pa.int32())])
    wider = before.set(2, pa.field("n", pa.int64()))
    with tl.Table.create(uri, before, key="id", ordering="ts", type=table_type) as table:
        table.insert([{"id": n, "ts": 1, "n": n} for n in range(4)])
        table.upsert([{"id": 1, "ts": 2, "n": 7}])
        table.upsert(pa.Table.from_pylist([{"id": 2, "ts": 3, "n": 2**40}], wider))
        ours = rows_of(table.read(meta_columns=True))
    assert HudiJava(java).snapshot(uri) == ours
    assert {each["id"]: each["n"] for each in ours} == {0: 0, 1: 7, 2: 2**40, 3: 3}
