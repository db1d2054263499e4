"""Ten tables written by Apache Hudi's Java writers: we read what other readers read.

The package `hudi` (hudi-rs) and Hudi's Java code are independent readers. Rows are compared with
all their columns, sorted by key, values as Python objects: no difference is tolerated. One
difference in representation is: `hudi` marks the five meta columns as never null, while they are
nullable in Java's schema, as in ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

from testkit.judges import HudiJava, HudiRs, rows_of
from testkit.slices import read_slice
from tests.interop.real_tables import NAMES, unpacked
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.hudi import bloom_filter
from tidelock.hudi.avro_records import decode_rows
from tidelock.hudi.file_groups import BaseFile, LogFile
from tidelock.hudi.keys import KeyRule, partition_paths, record_keys
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    Header,
    avro_block,
    decode_deletes,
    decode_records,
    encode_block,
    encode_deletes,
    read_log,
)
from tidelock.hudi.schema import (
    META_COLUMNS,
    arrow_schema,
    avro_schema,
    parse_schema,
    render_schema,
    with_meta,
)
from tidelock.hudi.snapshot import TableSnapshot, open_table
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

BEGINNING = "00000000000000000"
RUST = HudiRs()


@pytest.fixture(scope="module", params=NAMES)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of one real table."""
    name: str = request.param
    return unpacked(name, tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[ObjectStore]:
    """Return the table's store."""
    opened = open_store(str(root))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def snapshot(store: ObjectStore) -> TableSnapshot:
    """Return our snapshot of the table."""
    return open_table(store)


def schema_of(snapshot: TableSnapshot, as_of: str | None = None) -> pa.Schema:
    """Return the table's schema with its meta columns."""
    text = snapshot.schema_json(as_of)
    assert text is not None
    where = snapshot.store.uri
    return with_meta(arrow_schema(parse_schema(text, where=where), where=where))


def ours(snapshot: TableSnapshot, as_of: str | None = None) -> pa.Table:
    """Return all rows of the table, now or as of an instant."""
    schema, rule = schema_of(snapshot, as_of), MergeRule.of(snapshot.properties)
    pieces = [
        read_slice(snapshot.store, piece, schema, rule=rule, as_of=as_of)
        for piece in snapshot.slices(as_of)
    ]
    return pa.concat_tables([schema.empty_table(), *pieces], promote_options="permissive")


def our_changes(snapshot: TableSnapshot, begin: str, end: str | None) -> pa.Table:
    """Return the rows that changed in a range of completion times."""
    schema, rule = schema_of(snapshot), MergeRule.of(snapshot.properties)
    changes = snapshot.slices_between(begin, end)
    pieces = [
        read_slice(snapshot.store, piece, schema, rule=rule, commit_times=changes.instants)
        for piece in changes.slices
    ]
    return pa.concat_tables([schema.empty_table(), *pieces], promote_options="permissive")


def test_snapshot_has_the_rows_that_hudi_reads(snapshot: TableSnapshot, root: Path) -> None:
    expected = RUST.snapshot(str(root))
    assert expected
    assert rows_of(ours(snapshot)) == expected


def test_schema_has_the_names_and_types_that_hudi_reads(
    snapshot: TableSnapshot, root: Path
) -> None:
    batches = HudiTableBuilder.from_base_uri(str(root)).build().read(HudiReadOptions())
    found = ours(snapshot).schema
    assert found.names == batches[0].schema.names
    assert found.types == batches[0].schema.types
    differing = [f.name for f in found if f.nullable != batches[0].schema.field(f.name).nullable]
    assert differing == list(META_COLUMNS)


def test_every_past_instant_has_the_rows_that_hudi_reads(
    snapshot: TableSnapshot, root: Path
) -> None:
    instants = [instant.requested for instant in snapshot.timeline.writes()]
    assert len(instants) > 1
    for past in instants:
        assert rows_of(ours(snapshot, as_of=past)) == RUST.snapshot(str(root), past)


def test_every_range_of_changes_has_the_rows_that_hudi_reads(
    snapshot: TableSnapshot, root: Path
) -> None:
    times = [BEGINNING, *sorted(i.completion for i in snapshot.timeline.writes())]
    ranges: list[tuple[str, str | None]] = [(begin, None) for begin in times]
    ranges += [
        (times[i], times[j]) for i in range(len(times)) for j in (i + 1, i + 3) if j < len(times)
    ]
    for begin, end in ranges:
        assert rows_of(our_changes(snapshot, begin, end)) == RUST.changes(str(root), begin, end)


def test_java_code_reads_the_same_rows(
    snapshot: TableSnapshot, root: Path, hudi_java_judge: HudiJava
) -> None:
    """The latest rows, those in mid-history, and the changes since the beginning and the middle."""
    writes = snapshot.timeline.writes()
    middle = writes[len(writes) // 2]
    table = str(root)
    assert hudi_java_judge.snapshot(table) == rows_of(ours(snapshot))
    then = rows_of(ours(snapshot, as_of=middle.requested))
    assert hudi_java_judge.snapshot(table, middle.requested) == then
    for since in (BEGINNING, middle.completion):
        changed = rows_of(our_changes(snapshot, since, None))
        assert hudi_java_judge.changes(table, since) == changed


def test_projection_has_the_values_that_hudi_reads(snapshot: TableSnapshot, root: Path) -> None:
    schema, rule = schema_of(snapshot), MergeRule.of(snapshot.properties)
    last = schema.names[-1]
    found = [
        value
        for piece in snapshot.slices()
        for value in read_slice(snapshot.store, piece, schema, rule=rule, columns=[last])
        .column(last)
        .to_pylist()
    ]
    table = HudiTableBuilder.from_base_uri(str(root)).build()
    read = table.read(HudiReadOptions().with_projection([last]))
    expected = [value for batch in read for value in batch.column(last).to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


# --- components, against the bytes that Java wrote ------------------------------------------------


def logs_of(snapshot: TableSnapshot) -> list[LogFile]:
    """Return every log file of the table, including those of compacted slices."""
    slices = [piece for group in snapshot.groups() for piece in group.slices]
    return [log for piece in slices for log in piece.logs]


def bases_of(snapshot: TableSnapshot) -> list[BaseFile]:
    """Return every base file of the table that has not been replaced."""
    slices = [piece for group in snapshot.groups() for piece in group.slices]
    return [piece.base for piece in slices if piece.base is not None]


def test_log_files_decode_and_encode_to_the_same_bytes(
    snapshot: TableSnapshot, store: ObjectStore
) -> None:
    for log in logs_of(snapshot):
        body = store.get(log.key)
        assert body is not None
        found = list(read_log(store, log))
        assert all(isinstance(block, Block) for block in found)
        assert b"".join(encode_block(b) for b in found if isinstance(b, Block)) == body.body
        for block in found:
            assert isinstance(block, Block)
            _assert_content_comes_back(block, log.key)


def _assert_content_comes_back(block: Block, where: str) -> None:
    """Decode the block to rows, and encode the rows to the same bytes."""
    text = block.headers[Header.SCHEMA]
    schema = parse_schema(text, where=where)
    if block.type == BlockType.DELETE:
        assert encode_deletes(decode_deletes(block.content, where=where)) == block.content
    else:
        assert block.type == BlockType.AVRO
        rows = decode_rows(decode_records(block.content, where=where), schema, where=where)
        assert avro_block(rows, instant=block.instant, schema=schema).content == block.content
    table = str(schema["name"]).removesuffix("_record")
    assert render_schema(avro_schema(arrow_schema(schema, where=where), table=table)) == text


def test_schemas_in_commits_are_named_as_spark_names_them(snapshot: TableSnapshot) -> None:
    text = snapshot.schema_json()
    assert text is not None
    schema = arrow_schema(parse_schema(text, where="commit"), where="commit")
    assert render_schema(avro_schema(schema, table=snapshot.properties.name)) == text


def test_bloom_filters_match_the_footers(snapshot: TableSnapshot, root: Path) -> None:
    bases = bases_of(snapshot)
    assert bases
    for base in bases:
        with pq.ParquetFile(root / base.key) as file:
            footer = {key.decode(): text.decode() for key, text in file.metadata.metadata.items()}
            keys = file.read(columns=["_hoodie_record_key"]).column(0).combine_chunks()
        made = bloom_filter.BloomFilter()
        made.add(keys)
        assert footer[bloom_filter.FOOTER_TYPE] == bloom_filter.DYNAMIC
        assert bloom_filter.encode_filter(made) == footer[bloom_filter.FOOTER_FILTER]
        found = bloom_filter.decode_filter(footer[bloom_filter.FOOTER_FILTER], where=base.key)
        assert pc.all(found.might_contain(keys), min_count=0).as_py()
        if len(keys):
            smallest, largest = min(keys.to_pylist()), max(keys.to_pylist())
            assert footer[bloom_filter.FOOTER_MIN_KEY] == smallest
            assert footer[bloom_filter.FOOTER_MAX_KEY] == largest


def test_keys_and_partitions_match_the_rows(snapshot: TableSnapshot) -> None:
    rule, rows = KeyRule.of(snapshot.properties), ours(snapshot)
    assert record_keys(rows, rule).equals(rows.column("_hoodie_record_key").combine_chunks())
    paths = rows.column("_hoodie_partition_path").combine_chunks()
    assert partition_paths(rows, rule).equals(paths)


def test_reads_go_only_through_the_store(snapshot: TableSnapshot) -> None:
    """The working directory makes no difference: no name is interpreted as a local path."""
    here = Path.cwd()
    os.chdir("/")
    try:
        assert ours(snapshot).num_rows
    finally:
        os.chdir(here)
