"""Offset ranges of the next batch of a topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidelock.core.errors import ConfigInvalid, DataCorrupt
from tidelock.streamer.sources.offsets import (
    offset_ranges,
    offsets_text,
    parse_offsets,
    start_offsets,
)


def test_offsets_have_hudis_format() -> None:
    text = offsets_text("orders", {1: 4, 0: 17})
    assert text == "orders,0:17,1:4"
    assert parse_offsets(text, "orders") == {0: 17, 1: 4}


@pytest.mark.parametrize("text", ["orders,0", "orders,a:1", "other,0:1"])
def test_invalid_checkpoints_are_rejected(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse_offsets(text, "orders")


def test_new_partition_is_read_from_its_beginning() -> None:
    found = start_offsets("t", {0: 5}, {0: 0, 1: 2}, {0: 9, 1: 7}, latest=True, strict=True)
    assert found == {0: 5, 1: 2}


def test_deleted_records_stop_the_streamer_unless_allowed() -> None:
    with pytest.raises(DataCorrupt, match="3 records from 5 on were deleted"):
        start_offsets("t", {0: 5}, {0: 8}, {0: 9}, latest=False, strict=True)
    assert start_offsets("t", {0: 5}, {0: 8}, {0: 9}, latest=False, strict=False) == {0: 8}


def test_topic_that_ends_before_the_checkpoint_is_rejected() -> None:
    with pytest.raises(DataCorrupt, match="the end offset 3 is before 5"):
        start_offsets("t", {0: 5}, {0: 0}, {0: 3}, latest=False, strict=False)


_SIZES = some.dictionaries(some.integers(0, 6), some.integers(0, 50), min_size=1)


@given(_SIZES, some.integers(1, 100))
def test_batch_shares_its_limit_evenly(sizes: dict[int, int], limit: int) -> None:
    start = dict.fromkeys(sizes, 10)
    last = {part: 10 + size for part, size in sizes.items()}
    found = offset_ranges(start, last, limit)
    assert found.count == min(limit, sum(sizes.values()))
    taken = {part: found.end[part] - 10 for part in sizes}
    cut = [taken[part] for part in sizes if taken[part] < sizes[part]]
    if cut:
        assert max(taken.values()) <= min(cut) + 1
