"""Properties text round-trips with Java in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.javaproperties import parse_properties, render_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("  a \t = \t b", "a", "b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        ("a=b=c:d e", "a", "b=c:d e"),
        ("a\\ b\\==c", "a b=", "c"),
        (r'schema={"type"\:"record"}', "schema", '{"type":"record"}'),
        (r"a=\u00e9\u20AC", "a", "é€"),
        (r"a=\ud83d\ude00", "a", "😀"),
        (r"a=\t\n\\", "a", "\t\n\\"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b \\\n#c", "a", "b #c"),
        ("a=b\\\\\n", "a", "b\\"),
        ("a=trailing ", "a", "trailing "),
        ("a=\\ leading", "a", " leading"),
    ],
)
def test_java_syntax_is_parsed(line: str, key: str, value: str) -> None:
    assert parse_properties(line) == {key: value}


@pytest.mark.parametrize("text", ["", "\n", "# a=b", "  ! a=b", "\r\n\t\n", "\\\n", "\\"])
def test_comments_and_blank_lines_set_nothing(text: str) -> None:
    assert parse_properties(text) == {}


def test_last_of_two_equal_keys_wins() -> None:
    assert parse_properties("a=1\na=2\n") == {"a": "2"}


def test_invalid_escape_is_refused() -> None:
    with pytest.raises(ValueError, match="escape"):
        parse_properties(r"a=\u12")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('{"type":"record"}', r'a={"type"\:"record"}'),
        ("  two", "a=\\  two"),
        ("x#y!z=", r"a=x\#y\!z\="),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", r"a=yyyy-MM-dd'T'HH\:mm\:ss.SSSZ"),
        ("é", r"a=\u00E9"),
        ("😀", r"a=\uD83D\uDE00"),
    ],
)
def test_values_are_escaped_as_java_stores_them(value: str, shown: str) -> None:
    assert render_properties({"a": value}) == f"{shown}\n"


def test_comment_cannot_become_a_setting() -> None:
    text = render_properties({"a": "b"}, comments=["one\nc=d", "two"])
    assert parse_properties(text) == {"a": "b"}
    assert text.startswith("#one?c=d\n#two\n")


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_written_properties_are_read_back(settings: dict[str, str]) -> None:
    text = render_properties(settings, comments=["written by a test"])
    assert text.isascii()
    assert parse_properties(text) == settings
    # Java's loader decodes Latin-1; in UTF-8 the text is the same.
    assert parse_properties(text.encode().decode("latin-1")) == settings


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except ValueError as error:
        assert "escape" in str(error)  # noqa: PT017 - most texts are read, and raise nothing
