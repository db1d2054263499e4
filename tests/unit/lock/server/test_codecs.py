"""Codecs of client requests and of the journal: durations, ids, bodies, entries."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import ConfigInvalid, DataCorrupt, InvalidInput, ResourceInvalid
from tidelock.lock.server import http_app
from tidelock.lock.server.duration import duration_ms, go_duration
from tidelock.lock.server.entries import (
    NO_HASH,
    Decision,
    EndReason,
    GrantEnded,
    JournalEntry,
    JournalOpened,
    KeepAliveMode,
    LockGranted,
    TtlChanged,
    chained,
    entry_fields,
    entry_of,
    follows,
)
from tidelock.lock.server.resource import KeyPrefix, key_digest, validate_id


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("30s", 30_000),
        ("1m30s", 90_000),
        ("1.5h", 5_400_000),
        ("500ms", 500),
        ("0", 0),
        ("-5s", -5_000),
        ("+2s", 2_000),
        ("1h2m3.004s", 3_723_004),
        ("1500us", 2),
        ("1µs", 1),
        ("100us", 1),
        ("-1ns", -1),
        ("1500µs", 2),
        (".5s", 500),
        ("1.s", 1_000),
    ],
)
def test_go_durations_are_parsed_as_in_go(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "1 s", "1d", "--1s", "1s ", "1e3s", "9" * 30 + "h", "1s" * 40, "٣s", "."],
)
def test_durations_that_go_refuses_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        duration_ms(text)


@given(st.integers(0, 10**9))
def test_formatted_duration_round_trips(duration: int) -> None:
    assert duration_ms(go_duration(duration)) == duration


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_invalid_input(text: str) -> None:
    try:
        found = duration_ms(text)
    except InvalidInput:
        return
    assert isinstance(found, int)


@pytest.mark.parametrize(
    "text",
    ["", "a||b", "a\0b", "a\nb", "\u200bx", "e\u0301", "x" * 513, "\ud800", "a\u202eb", "\ufeff"],
)
def test_id_with_hidden_characters_is_refused(text: str) -> None:
    with pytest.raises(ResourceInvalid):
        validate_id(text)


@pytest.mark.parametrize(
    "text", ["a", "../../etc/passwd", "//", "%2e%2e", ".hoodie", "日本", "a b"]
)
def test_id_that_looks_like_a_path_is_an_ordinary_id(text: str) -> None:
    assert validate_id(text) == text
    digest = key_digest(text)
    assert len(digest) == 64
    assert digest.isalnum()


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("appid", "lock||app||r"),
        ("APPID", "lock||app||r"),
        ("name", "lock||store||r"),
        ("none", "lock||r"),
        ("team", "lock||team||r"),
    ],
)
def test_keys_have_dapr_prefixes(strategy: str, expected: str) -> None:
    assert KeyPrefix(strategy).key("r", namespace="", app_id="app", store="store") == expected


def test_without_an_app_id_there_is_no_prefix() -> None:
    assert KeyPrefix().key("r", namespace="", app_id="", store="store") == "lock||r"


def test_prefix_with_the_separator_is_refused() -> None:
    with pytest.raises(ConfigInvalid):
        KeyPrefix("a||b")


names = st.text(st.characters(codec="utf-8", exclude_characters="|"), min_size=1, max_size=8)


@given(names, names, names, names)
def test_namespaces_and_ids_never_share_a_key(n1: str, r1: str, n2: str, r2: str) -> None:
    first = KeyPrefix("none").key(r1, namespace=n1, app_id="", store="s")
    second = KeyPrefix("none").key(r2, namespace=n2, app_id="", store="s")
    assert (first == second) == ((n1, r1) == (n2, r2))


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"\xff",
        b"{",
        b'{"a":' + b"[" * 20 + b"]" * 20 + b"}",
        b"[" * 60_000,
        b'{"a":"' + b"x" * 70_000 + b'"}',
        b'{"a":' + b"9" * 5_000 + b"}",
    ],
)
def test_body_that_is_not_a_plain_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        http_app.json_object(body)


def test_empty_body_is_an_empty_object() -> None:
    assert http_app.json_object(b" \n") == {}


@pytest.mark.parametrize("value", [1.5, True, "x", 2**31, -(2**31) - 1, "", [], "99999999999"])
def test_field_of_32_bits_refuses_other_values(value: object) -> None:
    with pytest.raises(InvalidInput):
        http_app.int_field({"n": value}, "n")


@pytest.mark.parametrize(("value", "expected"), [(5, 5), ("5", 5), (5.0, 5), ("-5", -5), (None, 0)])
def test_numbers_are_parsed_as_in_protojson(value: object, expected: int) -> None:
    assert http_app.int_field({"n": value}, "n") == expected


def test_fields_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(InvalidInput):
        http_app.text_field({"n": 1}, "n")
    with pytest.raises(InvalidInput):
        http_app.flag_field({"n": "true"}, "n")


DECISIONS: list[Decision] = [
    JournalOpened("i", 3),
    LockGranted("k", "id", 7, "p", "o", 1_000, KeepAliveMode.STREAM, 500, "q"),
    TtlChanged("k", "id", 2_000),
    GrantEnded("k", "id", 7, EndReason.FORCED, "p", "because"),
]


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda d: type(d).__name__)
def test_entry_round_trips(decision: Decision) -> None:
    entry = chained(9, 123, decision, NO_HASH)
    assert entry_of(json.loads(json.dumps(entry_fields(entry)))) == entry


def test_hash_chain_detects_every_altered_field() -> None:
    entry = chained(9, 123, DECISIONS[1], NO_HASH)
    assert follows(entry, 8, NO_HASH)
    assert not follows(entry, 7, NO_HASH)
    assert not follows(entry, 8, "1" * 64)
    for name, value in {"token": 8, "principal": "x", "ttl_ms": 1, "mode": "kept"}.items():
        altered = entry_of({**entry_fields(entry), name: value})
        assert not follows(altered, 8, NO_HASH)
    assert not follows(JournalEntry(9, 124, DECISIONS[1], entry.hash), 8, NO_HASH)


@pytest.mark.parametrize(
    "fields",
    [None, [], {}, {"n": 1}, {"n": 1, "at": 1, "hash": "", "kind": "x"}, {"kind": "granted"}],
)
def test_invalid_entry_is_corrupt(fields: object) -> None:
    with pytest.raises(DataCorrupt):
        entry_of(fields)
