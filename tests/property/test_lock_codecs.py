"""Hypothesis on the lock's pure parts: codecs accept or raise `DataCorrupt`; leases do not meet."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelock.core.clock import Now
from tidelock.core.errors import DataCorrupt
from tidelock.core.limits import RECORD_BYTES_MAX, RECORD_TEXT_BYTES_MAX, TOKEN_MAX
from tidelock.lock.lease import Lease
from tidelock.lock.record import (
    LockRecord,
    PreviousRecord,
    TokenCounter,
    decode,
    decode_counter,
    encode,
    encode_counter,
)
from tidelock.lock.state import Grant, LockClientState, Phase, Standing, standing

MANY = settings(max_examples=2_000)

# --- values ---------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=RECORD_TEXT_BYTES_MAX // 4)
nonces = texts.filter(bool)
wholes = st.integers(0, TOKEN_MAX)
previous = st.builds(PreviousRecord, owner=texts, nonce=texts, token=wholes, expired=st.booleans())
our_records = st.builds(
    LockRecord,
    expired=st.booleans(),
    valid_until_epoch_ms=wholes,
    owner=texts,
    token=wholes,
    token_ceiling=wholes,
    nonce=nonces,
    previous=st.none() | previous,
)
java_records = st.builds(
    LockRecord, expired=st.booleans(), valid_until_epoch_ms=wholes, owner=texts
)
records = our_records | java_records

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("expired", "validUntil", "owner", "token", "tokenCeiling", "nonce", "previous", "format")
almost_records = st.fixed_dictionaries(
    {}, optional={name: json_values | wholes | st.booleans() | texts for name in FIELDS}
)


def decoded(body: bytes) -> LockRecord | None:
    """Return the record, or None after the one permitted error."""
    try:
        return decode(body)
    except DataCorrupt:
        return None


# --- codecs ---------------------------------------------------------------------------------------


@MANY
@given(records)
def test_every_record_round_trips(record: LockRecord) -> None:
    assert decode(encode(record)) == record


@given(wholes, nonces)
def test_every_counter_round_trips(ceiling: int, nonce: str) -> None:
    counter = TokenCounter(ceiling, nonce)
    assert decode_counter(encode_counter(counter)) == counter


@MANY
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf{}")
@example(b"\xff\xfe{\x00}\x00")
@example(b"[" * RECORD_BYTES_MAX)
@example(b'{"a":' * (RECORD_BYTES_MAX // 5))
@example(b"9" * RECORD_BYTES_MAX)
@example(b"-" * RECORD_BYTES_MAX)
@example(b'{"expired":false,"validUntil":1e999,"owner":"o"}')
@example(b'{"expired":false,"validUntil":1e400000000,"owner":"o"}')
@example(b'{"length":104857600')
def test_any_bytes_are_a_record_or_data_corrupt(body: bytes) -> None:
    record = decoded(body)
    assert record is None or isinstance(record, LockRecord)
    with suppress(DataCorrupt):
        decode_counter(body)


@MANY
@given(almost_records)
def test_any_json_is_a_record_or_data_corrupt(fields: dict[str, object]) -> None:
    record = decoded(json.dumps(fields).encode())
    if record is not None:
        assert isinstance(record.expired, bool)
        assert 0 <= record.valid_until_epoch_ms <= TOKEN_MAX
        assert record.is_ours == (fields.get("format", 0) != 0)


@given(records, st.data())
def test_record_truncated_anywhere_is_data_corrupt(record: LockRecord, data: st.DataObject) -> None:
    body = encode(record)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(DataCorrupt):
        decode(body[:cut])


@given(records, st.data())
def test_record_with_one_byte_changed_never_raises_another_error(
    record: LockRecord, data: st.DataObject
) -> None:
    body = bytearray(encode(record))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    record_read = decoded(bytes(body))
    assert record_read is None or isinstance(record_read, LockRecord)


@given(java_records, st.dictionaries(st.text().filter(lambda n: n not in FIELDS), json_values))
def test_unknown_fields_change_nothing(record: LockRecord, extra: dict[str, object]) -> None:
    fields = {**extra, **json.loads(encode(record))}
    body = json.dumps(fields).encode()
    if len(body) <= RECORD_BYTES_MAX:
        assert decode(body) == record


@given(st.integers(RECORD_BYTES_MAX + 1, RECORD_BYTES_MAX * 4))
def test_oversized_input_is_not_parsed(size: int) -> None:
    body = b'{"expired":true,"expired":true' + b" " * size
    with pytest.raises(DataCorrupt, match="larger than"):
        decode(body)


# Six bytes of JSON for each byte of text: the longest possible record.
LONGEST = "\x01" * RECORD_TEXT_BYTES_MAX


@MANY
@example(
    LockRecord(
        expired=False,
        valid_until_epoch_ms=TOKEN_MAX,
        owner=LONGEST,
        token=TOKEN_MAX,
        token_ceiling=TOKEN_MAX,
        nonce="n:1",
        previous=PreviousRecord(LONGEST, LONGEST, TOKEN_MAX, expired=False),
    )
)
@given(st.one_of(records, almost_records.map(lambda f: decoded(json.dumps(f).encode()))))
def test_any_readable_record_can_be_replaced_by_a_readable_one(
    found: LockRecord | None,
) -> None:
    # P4: the next record repeats parts of this one. It must not become unreadable by them.
    if found is None:
        return
    taken = LockRecord(
        expired=False,
        valid_until_epoch_ms=TOKEN_MAX,
        owner="0" * 36,
        token=TOKEN_MAX,
        token_ceiling=TOKEN_MAX,
        nonce="0" * 36 + ":9999999",
        previous=found.as_previous(),
    )
    assert decode(encode(taken)) == taken
    forced = replace(found, expired=True, nonce="0" * 36 + ":1", previous=found.as_previous())
    assert decode(encode(forced)) == forced


# --- leases ---------------------------------------------------------------------------------------


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    renew_ms = draw(st.integers(50, 60_000))
    return Lease(
        validity_ms=draw(st.integers(max(10 * renew_ms, 500), 24 * 3_600_000)),
        renew_ms=renew_ms,
        drift_ms=draw(st.integers(500, 60_000)),
        grace_ms=draw(st.integers(0, 5_000)),
    )


instants = st.integers(0, 10**13)


@MANY
@given(leases(), st.data(), instants, instants)
def test_holder_ends_before_any_contender_within_the_drift_may_start(
    lease: Lease, data: st.DataObject, sent_ms: int, boot_ms: int
) -> None:
    # One real time; each of the two wall clocks is off by at most half the drift.
    half = lease.drift_ms // 2
    holder_off = data.draw(st.integers(-half, half))
    contender_off = data.draw(st.integers(-half, half))
    epoch = 10**12
    sent = Now(boot_ms, epoch + sent_ms + holder_off)
    record = LockRecord(
        expired=False, valid_until_epoch_ms=lease.valid_until_epoch_ms(sent), owner="holder"
    )
    ends_ms = sent_ms + lease.deadline_monotonic_ms(sent) - boot_ms
    first_ms = lease.dead_after_epoch_ms(record) + 1 - epoch - contender_off
    assert not lease.is_dead(record, Now(0, epoch + first_ms - 1 + contender_off))
    assert lease.is_dead(record, Now(0, epoch + first_ms + contender_off))
    assert first_ms - ends_ms > lease.margin_ms + lease.grace_ms


@given(leases(), instants, st.integers(0, 10**9))
def test_later_request_never_ends_earlier(lease: Lease, boot_ms: int, later_ms: int) -> None:
    first = lease.deadline_monotonic_ms(Now(boot_ms, 0))
    assert lease.deadline_monotonic_ms(Now(boot_ms + later_ms, 0)) == first + later_ms


@given(leases(), instants, instants, instants)
def test_wall_clock_jump_moves_no_deadline(
    lease: Lease, boot_ms: int, wall_ms: int, jumped_ms: int
) -> None:
    # L14: neither the request nor later checks depend on the holder's wall clock.
    deadline = lease.deadline_monotonic_ms(Now(boot_ms, wall_ms))
    assert deadline == lease.deadline_monotonic_ms(Now(boot_ms, jumped_ms))
    record = LockRecord(expired=False, valid_until_epoch_ms=wall_ms, owner="o", nonce="o:1")
    state = LockClientState("o", lease, phase=Phase.HOLDING, grant=Grant("v", record, deadline))
    assert standing(state, Now(deadline - 1, jumped_ms)) is Standing.HELD
    assert standing(state, Now(deadline, jumped_ms)) is Standing.LOST


@given(leases())
def test_holder_has_time_for_five_renewals_even_in_the_shortest_lease(lease: Lease) -> None:
    assert lease.deadline_monotonic_ms(Now(0, 0)) > 5 * lease.renew_ms
