"""Any corruption of a table's metadata files raises a Tidelock error that names the file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import tidelock as tl
from tests.unit.operations.model import create_table, row
from tidelock.core.errors import DataCorrupt, TidelockError
from tidelock.hudi.schema import arrow_schema, parse_schema
from tidelock.storage.contract import Overwrite

Garble = Callable[[bytes, random.Random], bytes]


def cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randrange(len(body))] if body else body


def flipped(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.randrange(1, 5)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def not_text(body: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(body) + 1)
    return body[:at] + b"\xff\xfe\xed\xa0\x80\x00" + body[at:]


def doubled(body: bytes, chance: random.Random) -> bytes:
    return body + body[chance.randrange(len(body) + 1) :]


def emptied(body: bytes, chance: random.Random) -> bytes:
    return b""


def replaced_words(body: bytes, chance: random.Random) -> bytes:
    return chance.choice(
        [b"{}", b"[]", b"null", b"7", b'"text"', b'{"version": {}}', b"\n", b"=\n"]
    )


GARBLES: list[Garble] = [cut, flipped, not_text, doubled, emptied, replaced_words]


def filled(kind: str) -> tl.Table:
    table = create_table(kind, "region", options={"hoodie.clean.automatic": "false"})
    table.upsert([row(n) for n in range(6)])
    for ts in range(2, 36):
        table.upsert([row(ts % 6, ts)])
    table.delete(["k001"])
    table.delete_partition(["c"])
    return table


def uses(uri: str) -> Iterator[Callable[[], object]]:
    yield lambda: tl.Table.open(uri).read()
    yield lambda: tl.Table.open(uri).history()
    yield lambda: tl.Table.open(uri).changes(since="20200101000000000")
    yield lambda: tl.Table.open(uri).upsert([row(0, 99)])


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("garble", GARBLES, ids=lambda garble: garble.__name__)
def test_garbled_files_raise_tidelock_errors(kind: str, garble: Garble) -> None:
    table, chance = filled(kind), random.Random(7)
    store = table._store
    keys = [meta.key for meta in store.list("")]
    for key in chance.sample(keys, 8):
        originals = {each.key: store.get(each.key) for each in store.list("")}
        body = originals[key]
        assert body is not None
        store.put(key, garble(body.body, chance), Overwrite())
        for use in uses(table.uri):
            with suppress(TidelockError):
                use()
        for each in list(store.list("")):
            if each.key not in originals:
                store.delete(each.key)
        for name, found in originals.items():
            assert found is not None
            store.put(name, found.body, Overwrite())
    assert tl.Table.open(table.uri).read().num_rows == 3


def test_base_file_with_undecodable_column_names_is_named() -> None:
    table = create_table()
    table.upsert([row(1)])
    (piece,) = table.files()
    assert piece.base is not None
    body = table._store.get(piece.base.key)
    assert body is not None
    garbled = body.body.replace(b"_hoodie_file_name", b"_hoodie_\xff\xfe\xfd\xfc_name")
    table._store.put(piece.base.key, garbled, Overwrite())
    for use in list(uses(table.uri))[::3]:
        with pytest.raises(DataCorrupt, match=piece.base.name):
            use()


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "record", "fields": [{}]}',
        '{"type": "record", "fields": 7}',
        '{"type": "record", "fields": [{"name": "id", "type": {"type": "array"}}]}',
        '{"type": "record", "fields": [{"name": "id", "type": {"type": "fixed", "size": "x"}}]}',
        '{"type": "record", "fields": [{"name": "\\ud800", "type": "int"}]}',
        '{"type": "record", "fields": [{"name": "id", "type": [["null"]]}]}',
    ],
)
def test_invalid_schema_raises_a_tidelock_error(schema: str) -> None:
    with pytest.raises(DataCorrupt, match="here"):
        arrow_schema(parse_schema(schema, where="here"), where="here")
