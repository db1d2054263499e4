"""Hypothesis on the table format: values round-trip, and damage raises `DataCorrupt`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.hudi.metadata_table.metadata_builder import SCHEMA_JSON, hfile
from tests.unit.hudi.table_builder import encode_records
from tidelock.core.errors import DataCorrupt, InvalidInput, Unsupported
from tidelock.hudi.avro_records import decode_rows, encode_rows
from tidelock.hudi.bloom_filter import BloomFilter, BloomShape, decode_filter, encode_filter
from tidelock.hudi.bucket_index import bucket_ids, key_parts, string_hashes
from tidelock.hudi.hfile import TRAILER_BYTES, Codec, open_hfile
from tidelock.hudi.keys import KeyRule, record_keys
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    CorruptBlock,
    DeleteRecord,
    Ordering,
    blocks_to_merge,
    decode_deletes,
    decode_parquet,
    decode_records,
    encode_block,
    encode_deletes,
    encode_parquet,
    parse_log,
)
from tidelock.hudi.metadata_table import decode_record
from tidelock.hudi.properties import KeyGenerator
from tidelock.hudi.schema import (
    arrow_schema,
    avro_schema,
    conform,
    evolve,
    parse_schema,
    render_schema,
    stored_schema,
)

MANY = settings(max_examples=200)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.sampled_from(["a", "b", "c", "Price_2", "_x"])

# --- schemas and rows -----------------------------------------------------------------------------

PLAIN = [
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.binary(4),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("us", tz="UTC"),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
]
types = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: (
        st.builds(lambda kind: pa.list_(pa.field("element", kind)), inner)
        | st.builds(lambda kind: pa.map_(pa.string(), kind), inner)
        | st.dictionaries(names, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        )
    ),
    max_leaves=6,
)
schemas = st.dictionaries(names, types, min_size=1, max_size=5).map(
    lambda fields: pa.schema(list(fields.items()))
)
INTEGERS = {pa.int32(): 31, pa.int64(): 63, pa.date32(): 20, pa.timestamp("us", tz="UTC"): 55}


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type, including null."""
    return st.none() | _values(kind)


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_map(kind):
        pairs = st.dictionaries(texts, values(kind.item_type), max_size=3)
        return pairs.map(lambda found: list(found.items()))
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_decimal(kind):
        whole = kind.precision - kind.scale
        return st.decimals(-(10**whole) + 1, 10**whole - 1, places=kind.scale, allow_nan=False)
    if kind in INTEGERS:
        limit = 2 ** INTEGERS[kind]
        return st.integers(-limit, limit - 1)
    plain: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.bool_(): st.booleans(),
        pa.float32(): st.floats(width=32, allow_nan=False),
        pa.float64(): st.floats(allow_nan=False),
        pa.string(): texts,
        pa.binary(): st.binary(max_size=8),
        pa.binary(4): st.binary(min_size=4, max_size=4),
        pa.time64("us"): st.integers(0, 86_399_999_999),
    }
    return plain[kind]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a schema and rows."""
    schema = draw(schemas)
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    return pa.Table.from_pylist(draw(st.lists(row, max_size=4)), schema=schema)


@MANY
@given(schemas)
def test_schema_round_trips_through_avro(schema: pa.Schema) -> None:
    text = render_schema(avro_schema(schema, table="t"))
    found = arrow_schema(parse_schema(text, where="t"), where="t")
    assert found.equals(schema)
    assert render_schema(avro_schema(found, table="t")) == text
    assert stored_schema(schema, table="t").equals(schema)


@MANY
@given(tables(), st.integers(0, 4))
def test_rows_round_trip_through_avro(table: pa.Table, start: int) -> None:
    schema = avro_schema(table.schema, table="t")
    part = table.slice(start)
    records = decode_records(encode_records(encode_rows(part, schema, where="t")), where="t")
    found = decode_rows(records, schema, where="t")
    found.validate(full=True)
    assert found.equals(part.combine_chunks())


@given(tables())
def test_rows_round_trip_through_a_parquet_block(table: pa.Table) -> None:
    found = conform(decode_parquet(encode_parquet(table), where="t"), table.schema, where="t")
    assert found.equals(table.combine_chunks())


@MANY
@given(tables(), schemas)
def test_evolved_schema_reads_earlier_rows(table: pa.Table, other: pa.Schema) -> None:
    try:
        grown = evolve(table.schema, other)
    except InvalidInput:
        return
    assert evolve(grown, other).equals(grown)
    assert evolve(grown, table.schema).equals(grown)
    found = conform(table, grown, where="t")
    found.validate(full=True)
    assert found.num_rows == table.num_rows
    assert found.schema.types == grown.types
    same = [field.name for field in table.schema if grown.field(field.name).equals(field)]
    assert found.select(same).equals(table.select(same).combine_chunks())


# --- blocks ---------------------------------------------------------------------------------------

blocks = st.builds(
    Block,
    st.sampled_from(BlockType),
    st.dictionaries(st.integers(0, 2**31 - 1), texts, max_size=4),
    st.binary(max_size=50).filter(lambda body: b"#HUDI#" not in body),
    st.dictionaries(st.integers(0, 9), texts, max_size=2),
)


def same(found: Block | CorruptBlock, block: Block) -> bool:
    """Return whether a block is unchanged, order of headers included."""
    return (
        isinstance(found, Block)
        and (found.type, bytes(found.content)) == (block.type, block.content)
        and list(found.headers.items()) == list(block.headers.items())
        and list(found.footers.items()) == list(block.footers.items())
    )


@MANY
@given(st.lists(blocks, max_size=4))
def test_blocks_round_trip_to_the_same_bytes(given_blocks: list[Block]) -> None:
    data = b"".join(encode_block(block) for block in given_blocks)
    found = list(parse_log(data, where="t"))
    assert len(found) == len(given_blocks)
    assert all(same(a, b) for a, b in zip(found, given_blocks, strict=True))
    assert b"".join(encode_block(b) for b in found if isinstance(b, Block)) == data


@MANY
@given(st.lists(blocks, min_size=1, max_size=4), st.data())
def test_blocks_around_a_truncated_one_are_found(
    given_blocks: list[Block], data: st.DataObject
) -> None:
    torn = data.draw(st.integers(0, len(given_blocks) - 1))
    parts = [encode_block(block) for block in given_blocks]
    parts[torn] = parts[torn][: data.draw(st.integers(6, len(parts[torn]) - 1))]
    found = list(parse_log(b"".join(parts), where="t"))
    assert len(found) == len(given_blocks)
    for number, (block, expected) in enumerate(zip(found, given_blocks, strict=True)):
        assert isinstance(block, CorruptBlock) if number == torn else same(block, expected)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a log file with some of them changed, or arbitrary bytes."""
    body = bytearray(b"".join(map(encode_block, draw(st.lists(blocks, max_size=3)))))
    for _ in range(draw(st.integers(0, 4))):
        if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return draw(st.just(bytes(body)) | st.binary(max_size=60).map(lambda tail: b"#HUDI#" + tail))


@MANY
@given(damaged())
def test_any_bytes_are_blocks_or_corrupt(data: bytes) -> None:
    with suppress(DataCorrupt):
        found = list(parse_log(data, where="t"))
        assert len(found) <= len(data)
        with suppress(Unsupported):
            blocks_to_merge([b for b in found if isinstance(b, Block)], as_of=None, where="t")


# --- contents -------------------------------------------------------------------------------------

orderings = st.none() | st.one_of(
    st.builds(Ordering, st.just("Boolean"), st.booleans()),
    st.builds(Ordering, st.just("Int"), st.integers(-(2**31), 2**31 - 1)),
    st.builds(Ordering, st.just("Long"), st.integers(-(2**63), 2**63 - 1)),
    st.builds(Ordering, st.just("Double"), st.floats(allow_nan=False)),
    st.builds(Ordering, st.just("String"), texts),
    st.builds(Ordering, st.just("Bytes"), st.binary(max_size=9)),
    st.builds(Ordering, st.just("Date"), st.integers(-(10**6), 10**6)),
    st.builds(Ordering, st.just("TimestampMicros"), st.integers(-(2**60), 2**60)),
)
deletes = st.lists(st.builds(DeleteRecord, texts, st.none() | texts, orderings), max_size=5)


@MANY
@given(deletes)
def test_deletes_round_trip(given_deletes: list[DeleteRecord]) -> None:
    assert decode_deletes(encode_deletes(given_deletes), where="t") == given_deletes


FLAT = avro_schema(pa.schema([("a", pa.string()), ("b", pa.int64())]), table="t")
DECODERS: list[Callable[[bytes], object]] = [
    lambda body: decode_records(body, where="t"),
    lambda body: decode_deletes(body, where="t"),
    lambda body: decode_parquet(body, where="t"),
    lambda body: decode_rows([body], FLAT, where="t"),
    lambda body: decode_filter(body.decode("latin-1"), where="t"),
    lambda body: parse_schema(body.decode("latin-1"), where="t"),
    lambda body: open_hfile(body, where="t"),
    lambda body: decode_record(body, schema=SCHEMA_JSON, where="t"),
]


@MANY
@given(
    st.sampled_from(DECODERS),
    st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: b"\0\0\0\3\0\0\0\1" + tail),
)
def test_any_bytes_are_content_or_corrupt(decoder: Callable[[bytes], object], body: bytes) -> None:
    with suppress(DataCorrupt):
        assert decoder(body) is not None


@MANY
@given(deletes, st.data())
def test_damaged_delete_block_is_decoded_or_corrupt(
    given_deletes: list[DeleteRecord], data: st.DataObject
) -> None:
    body = bytearray(encode_deletes(given_deletes))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DataCorrupt):
        found = decode_deletes(bytes(body), where="t")
        assert all(isinstance(each, DeleteRecord) for each in found)


# --- HFiles ---------------------------------------------------------------------------------------

hfile_entries = st.dictionaries(texts, st.binary(max_size=40), max_size=12).map(
    lambda found: dict(sorted(found.items(), key=lambda pair: pair[0].encode()))
)


@MANY
@given(hfile_entries, st.sampled_from(Codec), st.integers(1, 5))
def test_hfile_entries_round_trip(entries: dict[str, bytes], codec: Codec, per_block: int) -> None:
    file = open_hfile(hfile(entries, codec=codec, per_block=per_block), where="t")
    assert {key.decode(): bytes(value) for key, value in file.entries()} == entries


@MANY
@given(hfile_entries, st.sampled_from(Codec), st.data())
def test_damaged_hfile_is_read_or_corrupt(
    entries: dict[str, bytes], codec: Codec, data: st.DataObject
) -> None:
    body = bytearray(hfile(entries, codec=codec))
    # The rest of the trailer is padding, except for the version at its end.
    offsets = st.integers(0, len(body) - TRAILER_BYTES + 40) | st.integers(
        len(body) - 4, len(body) - 1
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(offsets)] = data.draw(st.integers(0, 255))
    with suppress(DataCorrupt, Unsupported):
        found = list(open_hfile(bytes(body), where="t").entries())
        assert len(found) <= len(body)


# --- hashes ---------------------------------------------------------------------------------------


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, one code unit at a time."""
    value, units = 0, text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return value


@MANY
@given(st.lists(st.none() | texts, max_size=8), st.integers(0, 8))
def test_strings_hash_as_in_java(strings: list[str | None], start: int) -> None:
    array = pa.array(strings, pa.string()).slice(start)
    expected = [java_hash(text or "") for text in strings[start:]]
    assert string_hashes(array).to_pylist() == expected


@given(st.lists(texts, min_size=1, max_size=8), st.integers(1, 1_000))
def test_every_key_has_a_bucket(strings: list[str], buckets: int) -> None:
    found = bucket_ids([pa.array(strings, pa.string())], buckets).to_pylist()
    assert all(0 <= bucket < buckets for bucket in found)


@MANY
@given(st.lists(st.tuples(st.none() | texts, st.integers()), min_size=1, max_size=5))
def test_composite_key_is_split_into_its_values(
    pairs: list[tuple[str | None, int]],
) -> None:
    plain = [
        (None if text is None else text.translate({ord(","): None, ord(":"): None}), number)
        for text, number in pairs
        if -(2**63) <= number < 2**63
    ]
    if not plain or any(text in ("__null__", "__empty__") for text, _ in plain):
        return
    rule = KeyRule(KeyGenerator.COMPLEX, ("name", "id"))
    rows = pa.table(
        {
            "name": pa.array([text for text, _ in plain], pa.string()),
            "id": pa.array([number for _, number in plain], pa.int64()),
        }
    )
    for key, (text, number) in zip(record_keys(rows, rule).to_pylist(), plain, strict=True):
        assert key_parts(key, rule.keys) == [text, str(number)]


@pytest.mark.parametrize("shape", [BloomShape.of(10, 0.01), BloomShape.of(3, 0.3)])
@given(keys=st.lists(texts, max_size=40), portion=st.integers(1, 9))
def test_bloom_filter_finds_every_key_and_round_trips(
    shape: BloomShape, keys: list[str], portion: int
) -> None:
    bloom = BloomFilter(shape, entries_max=12)
    for start in range(0, len(keys), portion):
        bloom.add(pa.array(keys[start : start + portion], pa.string()))
    text = encode_filter(bloom)
    found = decode_filter(text, where="t")
    assert encode_filter(found) == text
    assert pc.all(found.might_contain(pa.array(keys, pa.string())), min_count=0).as_py()
