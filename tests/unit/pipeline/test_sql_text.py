"""Where a mistake is, and texts with parts exchanged."""

from __future__ import annotations

import pytest

from tidelock.pipeline.sql.text import Span, exchanged, mistake, nearest, quoted


def test_a_mistake_shows_its_line_and_column_as_people_count() -> None:
    text = "SELECT a,\n  nme\nFROM t"
    error = mistake(text, Span(12, 15), "there is no column nme", hint="did you mean name?")
    assert error.message == "line 2:3: there is no column nme\n    nme\n    ^^^"
    assert error.hint == "did you mean name?"


def test_a_mistake_after_a_tab_stands_below_its_letter() -> None:
    assert mistake("\tx", 1, "no").message.splitlines()[-1] == "  \t^"


def test_a_mistake_without_a_place_is_the_message_alone() -> None:
    assert mistake("SELECT 1", None, "no").message == "no"


def test_a_mistake_at_the_end_of_the_text_is_shown_there() -> None:
    assert mistake("SELECT", 6, "it ends").message == "line 1:7: it ends\n  SELECT\n        ^"


def test_spans_are_exchanged_whatever_order_they_come_in() -> None:
    text = "FROM a JOIN b ON a.x = b.x"
    edits = [(Span(12, 13), "`v2` AS `b`"), (Span(5, 6), "`v1` AS `a`")]
    assert exchanged(text, edits) == "FROM `v1` AS `a` JOIN `v2` AS `b` ON a.x = b.x"


def test_spans_outside_of_the_part_are_left_alone() -> None:
    text = "INSERT INTO a SELECT * FROM b"
    edits = [(Span(12, 13), "X"), (Span(28, 29), "Y")]
    assert exchanged(text, edits, Span(14, 29)) == "SELECT * FROM Y"


def test_a_quoted_name_keeps_its_own_quotes() -> None:
    assert quoted("a`b") == "`a``b`"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nmae", "did you mean name?"),
        ("zzz", "there is id, name"),
        ("NAME", "did you mean name?"),
    ],
)
def test_the_nearest_name_is_offered(name: str, says: str) -> None:
    assert nearest(name, ["id", "name"]) == says
