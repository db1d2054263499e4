"""The bytes of the lock record and of the token counter (P1, P3-P5, P19)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from tidelock.base.errors import DataCorrupt, RecordFromFuture
from tidelock.base.limits import RECORD_BYTES_MAX, TOKEN_MAX
from tidelock.lock.record import (
    Counter,
    Previous,
    Record,
    decode,
    decode_counter,
    encode,
    encode_counter,
)

OWNER = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
JAVA = Record(expired=False, valid_until_epoch_ms=1_700_000_000_000, owner=OWNER)
JAVA_BYTES = (
    b'{"expired":false,"validUntil":1700000000000,"owner":"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}'
)
OURS = replace(
    JAVA,
    token=8,
    token_ceiling=1_000,
    nonce=f"{OWNER}:3",
    previous=Previous("other", "other:9", 7, expired=True),
)


def changed(**fields: object) -> bytes:
    """Return our record's bytes with some fields set to something else, or removed (None)."""
    written = json.loads(encode(OURS))
    written.update(fields)
    return json.dumps(
        {name: value for name, value in written.items() if value is not None}
    ).encode()


# --- Hudi's three fields --------------------------------------------------------------------------


def test_the_bytes_of_a_java_writer_are_read() -> None:
    assert decode(JAVA_BYTES) == JAVA
    assert not decode(JAVA_BYTES).is_ours


def test_three_fields_are_written_byte_for_byte_as_java_writes_them() -> None:
    assert encode(JAVA) == JAVA_BYTES
    digest = hashlib.md5(encode(JAVA), usedforsecurity=False).hexdigest()
    assert digest == "5a1fcef42a3fc774e12602348e9c1c1f"
    digest = hashlib.md5(encode(replace(JAVA, expired=True)), usedforsecurity=False).hexdigest()
    assert digest == "b737a3a8503809a6473e14cb047364ce"


def test_hudis_fields_come_first_in_our_records_too() -> None:
    assert encode(OURS).startswith(JAVA_BYTES[:-1] + b",")


def test_the_order_of_fields_and_white_space_do_not_matter() -> None:
    body = b' { "owner" : "o", "validUntil" : 5,\n "expired" : true }\n'
    assert decode(body) == Record(expired=True, valid_until_epoch_ms=5, owner="o")


def test_fields_that_nobody_knows_are_tolerated() -> None:
    assert decode(JAVA_BYTES[:-1] + b',"state":"active","deep":{"a":[1]}}') == JAVA
    assert decode(changed(colour="blue")) == OURS


def test_fields_like_ours_without_a_format_are_not_ours() -> None:
    # A Java writer that copied unknown fields along would copy our token to its own grant.
    assert decode(changed(format=None)) == JAVA


# --- our fields -----------------------------------------------------------------------------------


def test_our_record_comes_back_as_it_was_written() -> None:
    assert decode(encode(OURS)) == OURS
    assert decode(encode(replace(OURS, previous=None))) == replace(OURS, previous=None)


def test_our_record_is_one_line_of_json_with_the_documented_fields() -> None:
    fields = json.loads(encode(OURS))
    assert list(fields) == [
        *("expired", "validUntil", "owner"),
        *("token", "tokenCeiling", "nonce", "previous", "format"),
    ]
    assert b"\n" not in encode(OURS)


def test_a_write_is_of_its_owner_by_the_name_before_the_colon() -> None:
    assert OURS.written_by(OWNER)
    assert not OURS.written_by(OWNER[:-1])
    assert not JAVA.written_by(OWNER)


def test_previous_says_what_was_replaced() -> None:
    assert OURS.as_previous() == Previous(OWNER, f"{OWNER}:3", 8, expired=False)


def test_the_counter_comes_back_as_it_was_written() -> None:
    counter = Counter(3_000, "me:4")
    assert decode_counter(encode_counter(counter)) == counter


# --- what is not a record (L8, P19, F18) ----------------------------------------------------------

DEEP = b"[" * 8_000
NOT_RECORDS = {
    "empty": (b"", "is empty"),
    "cut off": (JAVA_BYTES[:40], "ends too early"),
    "not JSON": (b"<html>busy</html>", "is not JSON"),
    "two documents": (JAVA_BYTES * 2, "is not JSON"),
    "NUL bytes": (b"\0" * 91, "is not JSON"),
    "not UTF-8": (b'{"owner":"\xff"}', "is not UTF-8"),
    "UTF-16": (JAVA_BYTES.decode().encode("utf-16"), "is not UTF-8"),
    "a list": (b"[]", "is a JSON list, not an object"),
    "a string": (b'"locked"', "is a JSON string, not an object"),
    "null": (b"null", "is a JSON null, not an object"),
    "too large": (b" " * RECORD_BYTES_MAX + JAVA_BYTES, "is larger than"),
    "nested deeply": (DEEP, "nested too deeply|ends too early"),
    "nested deeply inside": (b'{"a":' + DEEP, "nested too deeply|ends too early"),
    "NaN": (b'{"expired":false,"validUntil":NaN,"owner":"o"}', "NaN is not a JSON number"),
    "infinite": (b'{"expired":false,"validUntil":-Infinity,"owner":"o"}', "-Infinity is not"),
    "a number of 5,000 digits": (
        b'{"expired":false,"validUntil":%s,"owner":"o"}' % (b"9" * 5_000),
        "is not JSON that can be read",
    ),
    "a twin field": (b'{"expired":true,"expired":false,"validUntil":1,"owner":"o"}', "twice"),
    "no owner": (b'{"expired":true,"validUntil":1}', "no field 'owner'"),
    "no expired": (b'{"validUntil":1,"owner":"o"}', "no field 'expired'"),
    "no validUntil": (b'{"expired":true,"owner":"o"}', "no field 'validUntil'"),
    "null owner": (b'{"expired":true,"validUntil":1,"owner":null}', "'owner' is a null"),
    "a word for a flag": (b'{"expired":"false","validUntil":1,"owner":"o"}', "is a string, not"),
    "a flag for a number": (b'{"expired":true,"validUntil":true,"owner":"o"}', "is a boolean"),
    "a fraction": (b'{"expired":true,"validUntil":1.5,"owner":"o"}', "not a whole number"),
    "a negative time": (b'{"expired":true,"validUntil":-1,"owner":"o"}', "outside 0 to"),
    "a time beyond 64 bits": (changed(validUntil=2**63), "outside 0 to"),
    "a token beyond 64 bits": (changed(token=TOKEN_MAX + 1), "outside 0 to"),
    "no token": (changed(token=None), "'token' is a null"),
    "no nonce": (changed(nonce=None), "'nonce' is a null"),
    "an empty nonce": (changed(nonce=""), "'nonce' is empty"),
    "half a character": (changed(owner="\ud83d"), "holds half a character"),
    "an endless owner": (changed(owner="o" * 513), "'owner' is longer than 512 bytes"),
    "a list for previous": (changed(previous=[1]), "'previous' .* is not an object"),
    "half a previous": (changed(previous={"owner": "o"}), "'nonce' is a null"),
    "a format that is a word": (changed(format="1"), "'format' is a string"),
    "a negative format": (changed(format=-1), "outside 0 to"),
}


@pytest.mark.parametrize(("body", "says"), NOT_RECORDS.values(), ids=list(NOT_RECORDS))
def test_what_is_not_a_record_is_reported_as_what_it_is(body: bytes, says: str) -> None:
    with pytest.raises(DataCorrupt, match=says):
        decode(body)


def test_a_byte_order_mark_is_reported() -> None:
    with pytest.raises(DataCorrupt):
        decode(b"\xef\xbb\xbf" + JAVA_BYTES)


def test_a_record_from_the_future_is_not_guessed_at() -> None:
    with pytest.raises(
        RecordFromFuture, match="has format 2; this version reads up to 1"
    ) as caught:
        decode(changed(format=2, token="eight"))
    assert "upgrade" in caught.value.hint


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"ceiling":1}', b'{"ceiling":"1","nonce":"a"}', b'{"ceiling":-1,"nonce":"a"}'],
)
def test_what_is_not_a_counter_is_reported(body: bytes) -> None:
    with pytest.raises(DataCorrupt):
        decode_counter(body)


def test_a_counter_from_the_future_is_not_guessed_at() -> None:
    with pytest.raises(RecordFromFuture):
        decode_counter(b'{"ceiling":1,"nonce":"a:1","format":2}')


def test_a_record_of_the_largest_size_is_still_read() -> None:
    padding = b" " * (RECORD_BYTES_MAX - len(JAVA_BYTES))
    assert decode(JAVA_BYTES + padding) == JAVA
