"""Positions of SQL errors, and replacement of parts of a statement."""

from __future__ import annotations

import pytest

from tidelock.spark.sql.statement import Span, quoted, sql_error, substitute, suggestion


def test_error_shows_its_line_and_column() -> None:
    text = "SELECT a,\n  nme\nFROM t"
    error = sql_error(text, Span(12, 15), "there is no column nme", hint="did you mean name?")
    assert error.message == "line 2:3: there is no column nme\n    nme\n    ^^^"
    assert error.hint == "did you mean name?"


def test_caret_is_aligned_after_a_tab() -> None:
    assert sql_error("\tx", 1, "no").message.splitlines()[-1] == "  \t^"


def test_error_without_a_position_is_only_the_message() -> None:
    assert sql_error("SELECT 1", None, "no").message == "no"


def test_error_at_the_end_of_the_text_is_shown_there() -> None:
    assert sql_error("SELECT", 6, "it ends").message == "line 1:7: it ends\n  SELECT\n        ^"


def test_spans_are_replaced_in_any_order() -> None:
    text = "FROM a JOIN b ON a.x = b.x"
    edits = [(Span(12, 13), "`v2` AS `b`"), (Span(5, 6), "`v1` AS `a`")]
    assert substitute(text, edits) == "FROM `v1` AS `a` JOIN `v2` AS `b` ON a.x = b.x"


def test_spans_outside_of_the_range_are_unchanged() -> None:
    text = "INSERT INTO a SELECT * FROM b"
    edits = [(Span(12, 13), "X"), (Span(28, 29), "Y")]
    assert substitute(text, edits, Span(14, 29)) == "SELECT * FROM Y"


def test_quoted_name_keeps_its_own_quotes() -> None:
    assert quoted("a`b") == "`a``b`"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nmae", "did you mean name?"),
        ("zzz", "available: id, name"),
        ("NAME", "did you mean name?"),
    ],
)
def test_closest_name_is_suggested(name: str, expected: str) -> None:
    assert suggestion(name, ["id", "name"]) == expected
