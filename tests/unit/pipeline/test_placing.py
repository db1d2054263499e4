"""Where a writer begins, and what it may be told about that."""

from __future__ import annotations

import pytest

from tidelock.base.errors import Conflict
from tidelock.pipeline.streamer.checkpoint import HUDI_IGNORE, Checkpoint, checkpoint_of
from tidelock.pipeline.streamer.placing import Place, Told, next_place

HELD = Checkpoint("w", "topic:a", "17", reset="3", ignored="x")


def placed(told: Told, held: Checkpoint | None = HELD, source: str = "topic:a") -> Place:
    return next_place(
        told, held, version=5, source=source, anew=lambda: "anew", first=lambda: "first"
    )


def test_a_writer_goes_on_where_it_was_and_remembers_what_it_was_told() -> None:
    assert placed(Told()) == Place("17", 5, "3", "x")
    assert placed(Told("3", "x")) == Place("17", 5, "3", "x")


def test_a_place_that_is_told_counts_once() -> None:
    assert placed(Told("9")) == Place("9", 5, "9", "x")
    assert placed(Told("9"), None) == Place("9", 5, "9")


def test_a_word_that_was_not_said_before_begins_the_source_anew() -> None:
    assert placed(Told(ignore="y")) == Place("anew", 5, "3", "y")
    assert placed(Told(ignore="y"), None) == Place("anew", 5, "", "y")
    assert placed(Told(ignore="y", checkpoint="3")) == Place("3", 5, "3", "y")


def test_a_writer_that_has_not_read_the_source_asks_where_to_begin() -> None:
    assert placed(Told(), None) == Place("first", 5)
    assert placed(Told(has_initial=True), source="topic:b") == Place("first", 5, "3", "x")
    assert placed(Told(has_initial=True)) == Place("17", 5, "3", "x")


def test_another_source_needs_a_word_about_where_it_begins() -> None:
    with pytest.raises(Conflict, match="has read topic:a, and is now to read topic:b"):
        placed(Told(), source="topic:b")
    assert placed(Told("0"), source="topic:b").at == "0"
    assert placed(Told(ignore="y"), source="topic:b").at == "anew"


def test_the_word_stands_in_the_mark_and_under_hudis_key() -> None:
    assert checkpoint_of(HELD.data, where="t") == HELD
    assert HELD.metadata("17")[HUDI_IGNORE] == "x"
    assert HUDI_IGNORE not in Checkpoint("w", "topic:a", "17").metadata("17")
