"""Which records of a topic come next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidelock.base.errors import ConfigInvalid, DataCorrupt
from tidelock.pipeline.streamer.sources.offsets import (
    offsets_text,
    parse_offsets,
    ranges,
    starting,
)


def test_offsets_are_written_as_hudi_writes_them() -> None:
    text = offsets_text("orders", {1: 4, 0: 17})
    assert text == "orders,0:17,1:4"
    assert parse_offsets(text, "orders") == {0: 17, 1: 4}


@pytest.mark.parametrize("text", ["orders,0", "orders,a:1", "other,0:1"])
def test_other_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse_offsets(text, "orders")


def test_a_partition_that_is_younger_than_the_checkpoint_is_read_from_its_beginning() -> None:
    found = starting("t", {0: 5}, {0: 0, 1: 2}, {0: 9, 1: 7}, latest=True, strict=True)
    assert found == {0: 5, 1: 2}


def test_records_that_are_gone_stop_the_streamer_unless_allowed() -> None:
    with pytest.raises(DataCorrupt, match="3 records from 5 on were deleted"):
        starting("t", {0: 5}, {0: 8}, {0: 9}, latest=False, strict=True)
    assert starting("t", {0: 5}, {0: 8}, {0: 9}, latest=False, strict=False) == {0: 8}


def test_a_topic_that_ends_before_the_checkpoint_is_another_one() -> None:
    with pytest.raises(DataCorrupt, match="ends at 3, before 5"):
        starting("t", {0: 5}, {0: 0}, {0: 3}, latest=False, strict=False)


_SIZES = some.dictionaries(some.integers(0, 6), some.integers(0, 50), min_size=1)


@given(_SIZES, some.integers(1, 100))
def test_a_batch_takes_as_much_as_it_may_and_shares_it(sizes: dict[int, int], limit: int) -> None:
    start = dict.fromkeys(sizes, 10)
    last = {part: 10 + size for part, size in sizes.items()}
    found = ranges(start, last, limit)
    assert found.count == min(limit, sum(sizes.values()))
    taken = {part: found.end[part] - 10 for part in sizes}
    cut = [taken[part] for part in sizes if taken[part] < sizes[part]]
    if cut:
        assert max(taken.values()) <= min(cut) + 1
