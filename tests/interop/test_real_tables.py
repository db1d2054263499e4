"""Ten tables written by Apache Hudi's Java writers: ours reads what others read.

The package `hudi` (hudi-rs) and Hudi's Java code are independent readers. Rows are compared with
all their columns, sorted by key, values as Python objects: no difference in them is tolerated. One
difference of representation is: `hudi` marks the five meta columns as never null, while Java's
schema has them nullable, as ours.
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

from tests.interop.real_tables import NAMES, unpacked
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import read_slice
from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store
from tidelock.table.filegroup.slice import BaseFile, LogFile
from tidelock.table.index import bloom
from tidelock.table.keys import KeyRule, partition_paths, record_keys
from tidelock.table.logfile.block import Block, BlockType, Header, encode_block
from tidelock.table.logfile.content import (
    decode_deletes,
    decode_records,
    encode_deletes,
)
from tidelock.table.logfile.reader import read_log
from tidelock.table.logfile.writer import avro_block
from tidelock.table.schema.avro import arrow_schema, avro_schema, parse_schema, render_schema
from tidelock.table.schema.meta import META_COLUMNS, with_meta
from tidelock.table.schema.rows import decode_rows
from tidelock.table.snapshot import TableSnapshot, open_table
from tidelock.testing.judges import HudiJava, HudiRs, rows_of

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
    """Return the table as ours sees it."""
    return open_table(store)


def schema_of(snapshot: TableSnapshot, as_of: str | None = None) -> pa.Schema:
    """Return the table's schema with its meta columns."""
    text = snapshot.schema_json(as_of)
    assert text is not None
    where = snapshot.store.uri
    return with_meta(arrow_schema(parse_schema(text, where=where), where=where))


def ours(snapshot: TableSnapshot, as_of: str | None = None) -> pa.Table:
    """Return all rows of the table, now or as of a moment."""
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


def test_a_snapshot_has_the_rows_that_hudi_reads(snapshot: TableSnapshot, root: Path) -> None:
    expected = RUST.snapshot(str(root))
    assert expected
    assert rows_of(ours(snapshot)) == expected


def test_the_schema_has_the_names_and_types_that_hudi_sees(
    snapshot: TableSnapshot, root: Path
) -> None:
    batches = HudiTableBuilder.from_base_uri(str(root)).build().read(HudiReadOptions())
    found = ours(snapshot).schema
    assert found.names == batches[0].schema.names
    assert found.types == batches[0].schema.types
    differing = [f.name for f in found if f.nullable != batches[0].schema.field(f.name).nullable]
    assert differing == list(META_COLUMNS)


def test_every_moment_of_the_past_has_the_rows_that_hudi_reads(
    snapshot: TableSnapshot, root: Path
) -> None:
    moments = [instant.requested for instant in snapshot.timeline.writes()]
    assert len(moments) > 1
    for moment in moments:
        assert rows_of(ours(snapshot, as_of=moment)) == RUST.snapshot(str(root), moment)


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


def test_javas_code_reads_the_same_rows(
    snapshot: TableSnapshot, root: Path, hudi_java_judge: HudiJava
) -> None:
    """Now, in the middle of the past, and the changes since the beginning and since the middle."""
    writes = snapshot.timeline.writes()
    middle = writes[len(writes) // 2]
    table = str(root)
    assert hudi_java_judge.snapshot(table) == rows_of(ours(snapshot))
    then = rows_of(ours(snapshot, as_of=middle.requested))
    assert hudi_java_judge.snapshot(table, middle.requested) == then
    for since in (BEGINNING, middle.completion):
        changed = rows_of(our_changes(snapshot, since, None))
        assert hudi_java_judge.changes(table, since) == changed


def test_a_projection_has_the_values_that_hudi_reads(snapshot: TableSnapshot, root: Path) -> None:
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


# --- the pieces, against the bytes that Java wrote ------------------------------------------------


def logs_of(snapshot: TableSnapshot) -> list[LogFile]:
    """Return every log file of the table, also of slices long since compacted."""
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
        whole = store.get(log.key)
        assert whole is not None
        found = list(read_log(store, log))
        assert all(isinstance(block, Block) for block in found)
        assert b"".join(encode_block(b) for b in found if isinstance(b, Block)) == whole.body
        for block in found:
            assert isinstance(block, Block)
            _assert_content_comes_back(block, log.key)


def _assert_content_comes_back(block: Block, where: str) -> None:
    """Decode what the block holds to rows, and encode the rows to the same bytes."""
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


def test_schemas_of_commits_are_named_as_spark_names_them(snapshot: TableSnapshot) -> None:
    text = snapshot.schema_json()
    assert text is not None
    schema = arrow_schema(parse_schema(text, where="commit"), where="commit")
    assert render_schema(avro_schema(schema, table=snapshot.properties.name)) == text


def test_bloom_filters_are_those_in_the_footers(snapshot: TableSnapshot, root: Path) -> None:
    bases = bases_of(snapshot)
    assert bases
    for base in bases:
        with pq.ParquetFile(root / base.key) as file:
            footer = {key.decode(): text.decode() for key, text in file.metadata.metadata.items()}
            keys = file.read(columns=["_hoodie_record_key"]).column(0).combine_chunks()
        made = bloom.BloomFilter()
        made.add(keys)
        assert footer[bloom.FOOTER_TYPE] == bloom.DYNAMIC
        assert bloom.encode_filter(made) == footer[bloom.FOOTER_FILTER]
        found = bloom.decode_filter(footer[bloom.FOOTER_FILTER], where=base.key)
        assert pc.all(found.might_contain(keys), min_count=0).as_py()
        if len(keys):
            smallest, largest = min(keys.to_pylist()), max(keys.to_pylist())
            assert footer[bloom.FOOTER_MIN_KEY] == smallest
            assert footer[bloom.FOOTER_MAX_KEY] == largest


def test_keys_and_partitions_are_those_in_the_rows(snapshot: TableSnapshot) -> None:
    rule, rows = KeyRule.of(snapshot.properties), ours(snapshot)
    assert record_keys(rows, rule).equals(rows.column("_hoodie_record_key").combine_chunks())
    paths = rows.column("_hoodie_partition_path").combine_chunks()
    assert partition_paths(rows, rule).equals(paths)


def test_nothing_is_read_past_the_store(snapshot: TableSnapshot) -> None:
    """Where the working folder is makes no difference: no name is taken for a path."""
    here = Path.cwd()
    os.chdir("/")
    try:
        assert ours(snapshot).num_rows
    finally:
        os.chdir(here)
