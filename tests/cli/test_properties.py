"""Properties files are parsed as Java parses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.cli.options import read_properties
from tidelock.core.errors import ConfigInvalid, NotFound
from tidelock.core.javaproperties import parse_properties
from tidelock.core.limits import PROPERTIES_BYTES_MAX
from tidelock.storage.contract import Create
from tidelock.storage.uri import open_store


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("  a =  b c  ", {"a": "b c  "}),
        ("# x=1\n! y=2\n\n \nz=3", {"z": "3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"a=\t\n\r\f\q", {"a": "\t\n\r\fq"}),
        (r"a=\u00e9\uD83D\uDE00", {"a": "é😀"}),
        ("a=s3://b/t?x=1", {"a": "s3://b/t?x=1"}),
        ("a==b", {"a": "=b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=end\\", {"a": "end"}),
        ("", {}),
    ],
)
def test_line_is_parsed_as_in_java(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


def test_invalid_escape_is_refused() -> None:
    with pytest.raises(ValueError, match="uXXXX"):
        parse_properties(r"a=\u12")


def test_non_utf8_bytes_are_read_as_latin1(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"
    path.write_bytes(b"a=\xe9")
    assert read_properties(str(path)) == {"a": "é"}


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_properties(str(tmp_path / "none"))
    with pytest.raises(ConfigInvalid):
        read_properties(str(tmp_path))
    huge = tmp_path / "huge"
    huge.write_bytes(b"#" * (PROPERTIES_BYTES_MAX + 1))
    with pytest.raises(ConfigInvalid, match="larger than"):
        read_properties(str(huge))


@pytest.mark.parametrize("head", ["", "file://", "file:"])
def test_file_is_given_as_a_path_or_as_a_uri_as_in_hudi(tmp_path: Path, head: str) -> None:
    path = tmp_path / "a b.properties"
    path.write_text("a=1")
    assert read_properties(f"{head}{path}") == {"a": "1"}


def test_file_can_be_an_object_in_a_store() -> None:
    store = open_store("memory://lake/conf")
    store.put("source.properties", b"a=1", Create())
    assert read_properties("memory://lake/conf/source.properties") == {"a": "1"}
    with pytest.raises(NotFound, match=r"memory://lake/conf/none.properties"):
        read_properties("memory://lake/conf/none.properties")


def test_file_can_include_a_sibling_file(tmp_path: Path) -> None:
    (tmp_path / "base.properties").write_text("a=1\nb=1")
    (tmp_path / "kafka-source.properties").write_text("include=base.properties\nb=2")
    assert read_properties(str(tmp_path / "kafka-source.properties")) == {"a": "1", "b": "2"}
    (tmp_path / "base.properties").write_text("include=kafka-source.properties")
    with pytest.raises(ConfigInvalid, match="include each other"):
        read_properties(f"file://{tmp_path}/kafka-source.properties")
