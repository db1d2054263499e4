"""The pieces of the exchange that read headers and codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.base.limits import RETRY_AFTER_MS_MAX
from tidelock.store.exchange import http_date_ms, retry_after_ms

NOW_EPOCH_MS = 1_767_323_045_000


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("0", 0),
        ("3", 3_000),
        (" 7 ", 7_000),
        ("100000", RETRY_AFTER_MS_MAX),
        ("Fri, 02 Jan 2026 03:04:10 GMT", 5_000),
        ("Fri, 02 Jan 2026 03:04:00 GMT", 0),
        ("Fri, 02 Jan 2099 03:04:10 GMT", RETRY_AFTER_MS_MAX),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_seconds_or_as_a_date_and_bounded(
    asked: str, expected: int | None
) -> None:
    assert retry_after_ms(asked, NOW_EPOCH_MS) == expected


@given(st.text(max_size=40))
def test_no_header_breaks_the_reading_of_a_pause(asked: str) -> None:
    pause_ms = retry_after_ms(asked, NOW_EPOCH_MS)
    assert pause_ms is None or 0 <= pause_ms <= RETRY_AFTER_MS_MAX


@pytest.mark.parametrize(
    "text", ["Fri, 02 Jan 2026 03:04:05 GMT", "Friday, 02-Jan-26 03:04:05 GMT"]
)
def test_a_date_of_http_is_read(text: str) -> None:
    assert http_date_ms(text) == NOW_EPOCH_MS
