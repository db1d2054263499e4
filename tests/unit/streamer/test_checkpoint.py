"""The start position of a writer, and the options that override it."""

from __future__ import annotations

import pytest

from tidelock.core.errors import Conflict
from tidelock.streamer.checkpoint import (
    HUDI_IGNORE,
    BatchStart,
    StreamCheckpoint,
    UserCheckpoint,
    checkpoint_of,
    next_start,
)

STORED = StreamCheckpoint("w", "topic:a", "17", reset="3", ignored="x")


def started(
    user: UserCheckpoint, stored: StreamCheckpoint | None = STORED, source: str = "topic:a"
) -> BatchStart:
    return next_start(
        user, stored, version=5, source=source, fresh=lambda: "anew", first=lambda: "first"
    )


def test_writer_resumes_from_its_checkpoint() -> None:
    assert started(UserCheckpoint()) == BatchStart("17", 5, "3", "x")
    assert started(UserCheckpoint("3", "x")) == BatchStart("17", 5, "3", "x")


def test_checkpoint_of_the_user_takes_effect_once() -> None:
    assert started(UserCheckpoint("9")) == BatchStart("9", 5, "9", "x")
    assert started(UserCheckpoint("9"), None) == BatchStart("9", 5, "9")


def test_new_ignore_value_starts_the_source_afresh() -> None:
    assert started(UserCheckpoint(ignore="y")) == BatchStart("anew", 5, "3", "y")
    assert started(UserCheckpoint(ignore="y"), None) == BatchStart("anew", 5, "", "y")
    assert started(UserCheckpoint(ignore="y", checkpoint="3")) == BatchStart("3", 5, "3", "y")


def test_writer_that_has_not_read_the_source_uses_the_first_position() -> None:
    assert started(UserCheckpoint(), None) == BatchStart("first", 5)
    assert started(UserCheckpoint(has_initial=True), source="topic:b") == BatchStart(
        "first", 5, "3", "x"
    )
    assert started(UserCheckpoint(has_initial=True)) == BatchStart("17", 5, "3", "x")


def test_another_source_requires_a_start_position() -> None:
    with pytest.raises(Conflict, match="expected the source topic:a, got topic:b"):
        started(UserCheckpoint(), source="topic:b")
    assert started(UserCheckpoint("0"), source="topic:b").position == "0"
    assert started(UserCheckpoint(ignore="y"), source="topic:b").position == "anew"


def test_ignore_value_is_in_the_checkpoint_and_under_hudis_key() -> None:
    assert checkpoint_of(STORED.data, where="t") == STORED
    assert STORED.metadata("17")[HUDI_IGNORE] == "x"
    assert HUDI_IGNORE not in StreamCheckpoint("w", "topic:a", "17").metadata("17")
