"""Parsing of headers and status codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.limits import RETRY_AFTER_MS_MAX
from tidelock.storage.http import http_date_ms, retry_after_ms

NOW_EPOCH_MS = 1_767_323_045_000


@pytest.mark.parametrize(
    ("header", "expected"),
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
def test_retry_after_is_parsed_as_seconds_or_a_date_and_bounded(
    header: str, expected: int | None
) -> None:
    assert retry_after_ms(header, NOW_EPOCH_MS) == expected


@given(st.text(max_size=40))
def test_invalid_retry_after_is_ignored(header: str) -> None:
    pause_ms = retry_after_ms(header, NOW_EPOCH_MS)
    assert pause_ms is None or 0 <= pause_ms <= RETRY_AFTER_MS_MAX


@pytest.mark.parametrize(
    "text", ["Fri, 02 Jan 2026 03:04:05 GMT", "Friday, 02-Jan-26 03:04:05 GMT"]
)
def test_http_date_is_parsed(text: str) -> None:
    assert http_date_ms(text) == NOW_EPOCH_MS
