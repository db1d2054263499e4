"""The bytes of the lock record and of the token counter (P1, P3-P5, P19)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from tidelock.core.errors import DataCorrupt, RecordFromFuture
from tidelock.core.limits import RECORD_BYTES_MAX, TOKEN_MAX
from tidelock.lock.record import (
    LockRecord,
    PreviousRecord,
    TokenCounter,
    decode,
    decode_counter,
    encode,
    encode_counter,
)

OWNER = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
JAVA = LockRecord(expired=False, valid_until_epoch_ms=1_700_000_000_000, owner=OWNER)
JAVA_BYTES = (
    b'{"expired":false,"validUntil":1700000000000,"owner":"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}'
)
OURS = replace(
    JAVA,
    token=8,
    token_ceiling=1_000,
    nonce=f"{OWNER}:3",
    previous=PreviousRecord("other", "other:9", 7, expired=True),
)


def changed(**fields: object) -> bytes:
    """Return our record's bytes with some fields changed, or removed (None)."""
    written = json.loads(encode(OURS))
    written.update(fields)
    return json.dumps(
        {name: value for name, value in written.items() if value is not None}
    ).encode()


# --- Hudi's three fields --------------------------------------------------------------------------


def test_bytes_of_a_java_writer_are_read() -> None:
    assert decode(JAVA_BYTES) == JAVA
    assert not decode(JAVA_BYTES).is_ours


def test_three_fields_are_written_byte_for_byte_as_in_java() -> None:
    assert encode(JAVA) == JAVA_BYTES
    digest = hashlib.md5(encode(JAVA), usedforsecurity=False).hexdigest()
    assert digest == "5a1fcef42a3fc774e12602348e9c1c1f"
    digest = hashlib.md5(encode(replace(JAVA, expired=True)), usedforsecurity=False).hexdigest()
    assert digest == "b737a3a8503809a6473e14cb047364ce"


def test_hudi_fields_come_first_in_our_records_too() -> None:
    assert encode(OURS).startswith(JAVA_BYTES[:-1] + b",")


def test_field_order_and_white_space_do_not_matter() -> None:
    body = b' { "owner" : "o", "validUntil" : 5,\n "expired" : true }\n'
    assert decode(body) == LockRecord(expired=True, valid_until_epoch_ms=5, owner="o")


def test_unknown_fields_are_tolerated() -> None:
    assert decode(JAVA_BYTES[:-1] + b',"state":"active","deep":{"a":[1]}}') == JAVA
    assert decode(changed(colour="blue")) == OURS


def test_fields_like_ours_without_a_format_are_ignored() -> None:
    # A Java writer that copied unknown fields would copy our token to its own grant.
    assert decode(changed(format=None)) == JAVA


# --- our fields -----------------------------------------------------------------------------------


def test_our_record_round_trips() -> None:
    assert decode(encode(OURS)) == OURS
    assert decode(encode(replace(OURS, previous=None))) == replace(OURS, previous=None)


def test_our_record_is_one_line_of_json_with_the_documented_fields() -> None:
    fields = json.loads(encode(OURS))
    assert list(fields) == [
        *("expired", "validUntil", "owner"),
        *("token", "tokenCeiling", "nonce", "previous", "format"),
    ]
    assert b"\n" not in encode(OURS)


def test_write_belongs_to_the_owner_named_before_the_colon() -> None:
    assert OURS.written_by(OWNER)
    assert not OURS.written_by(OWNER[:-1])
    assert not JAVA.written_by(OWNER)


def test_previous_describes_the_replaced_record() -> None:
    assert OURS.as_previous() == PreviousRecord(OWNER, f"{OWNER}:3", 8, expired=False)


def test_counter_round_trips() -> None:
    counter = TokenCounter(3_000, "me:4")
    assert decode_counter(encode_counter(counter)) == counter


# --- invalid records (L8, P19, F18) ---------------------------------------------------------------

DEEP = b"[" * 8_000
NOT_RECORDS = {
    "empty": (b"", ": empty"),
    "cut off": (JAVA_BYTES[:40], "truncated JSON"),
    "not JSON": (b"<html>busy</html>", ": not JSON"),
    "two documents": (JAVA_BYTES * 2, ": not JSON"),
    "NUL bytes": (b"\0" * 91, ": not JSON"),
    "not UTF-8": (b'{"owner":"\xff"}', ": not UTF-8"),
    "UTF-16": (JAVA_BYTES.decode().encode("utf-16"), ": not UTF-8"),
    "a list": (b"[]", "expected a JSON object, got a list"),
    "a string": (b'"locked"', "expected a JSON object, got a string"),
    "null": (b"null", "expected a JSON object, got a null"),
    "too large": (b" " * RECORD_BYTES_MAX + JAVA_BYTES, ": larger than"),
    "nested deeply": (DEEP, "nested too deeply|truncated JSON"),
    "nested deeply inside": (b'{"a":' + DEEP, "nested too deeply|truncated JSON"),
    "NaN": (b'{"expired":false,"validUntil":NaN,"owner":"o"}', "NaN is not valid JSON"),
    "infinite": (b'{"expired":false,"validUntil":-Infinity,"owner":"o"}', "-Infinity is not"),
    "a number of 5,000 digits": (
        b'{"expired":false,"validUntil":%s,"owner":"o"}' % (b"9" * 5_000),
        ": not JSON",
    ),
    "a twin field": (b'{"expired":true,"expired":false,"validUntil":1,"owner":"o"}', "twice"),
    "no owner": (b'{"expired":true,"validUntil":1}', "'owner' is missing"),
    "no expired": (b'{"validUntil":1,"owner":"o"}', "'expired' is missing"),
    "no validUntil": (b'{"expired":true,"owner":"o"}', "'validUntil' is missing"),
    "null owner": (
        b'{"expired":true,"validUntil":1,"owner":null}',
        "'owner': expected a string, got a null",
    ),
    "a word for a flag": (
        b'{"expired":"false","validUntil":1,"owner":"o"}',
        "expected true or false, got a string",
    ),
    "a flag for a number": (b'{"expired":true,"validUntil":true,"owner":"o"}', "got a boolean"),
    "a fraction": (b'{"expired":true,"validUntil":1.5,"owner":"o"}', "expected an integer"),
    "a negative time": (b'{"expired":true,"validUntil":-1,"owner":"o"}', "expected 0 to"),
    "a time beyond 64 bits": (changed(validUntil=2**63), "expected 0 to"),
    "a token beyond 64 bits": (changed(token=TOKEN_MAX + 1), "expected 0 to"),
    "no token": (changed(token=None), "'token': expected an integer, got a null"),
    "no nonce": (changed(nonce=None), "'nonce': expected a string, got a null"),
    "an empty nonce": (changed(nonce=""), "'nonce': empty"),
    "half a character": (changed(owner="\ud83d"), "lone surrogate"),
    "an endless owner": (changed(owner="o" * 513), "'owner': longer than 512 bytes"),
    "a list for previous": (changed(previous=[1]), "'previous': expected an object"),
    "half a previous": (changed(previous={"owner": "o"}), "'nonce': expected a string, got a null"),
    "a format that is a word": (changed(format="1"), "'format': expected an integer, got a string"),
    "a negative format": (changed(format=-1), "expected 0 to"),
}


@pytest.mark.parametrize(("body", "message"), NOT_RECORDS.values(), ids=list(NOT_RECORDS))
def test_invalid_record_is_reported_with_its_problem(body: bytes, message: str) -> None:
    with pytest.raises(DataCorrupt, match=message):
        decode(body)


def test_byte_order_mark_is_reported() -> None:
    with pytest.raises(DataCorrupt):
        decode(b"\xef\xbb\xbf" + JAVA_BYTES)


def test_record_of_a_newer_format_is_refused() -> None:
    with pytest.raises(
        RecordFromFuture, match="format 2 is newer than 1, the latest supported one"
    ) as caught:
        decode(changed(format=2, token="eight"))
    assert "upgrade" in caught.value.hint


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"ceiling":1}', b'{"ceiling":"1","nonce":"a"}', b'{"ceiling":-1,"nonce":"a"}'],
)
def test_invalid_counter_is_reported(body: bytes) -> None:
    with pytest.raises(DataCorrupt):
        decode_counter(body)


def test_counter_of_a_newer_format_is_refused() -> None:
    with pytest.raises(RecordFromFuture):
        decode_counter(b'{"ceiling":1,"nonce":"a:1","format":2}')


def test_record_of_the_maximum_size_is_read() -> None:
    padding = b" " * (RECORD_BYTES_MAX - len(JAVA_BYTES))
    assert decode(JAVA_BYTES + padding) == JAVA
