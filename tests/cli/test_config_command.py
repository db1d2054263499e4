"""`tidelock config`: sections, single keys, unsupported Hudi keys, close matches."""

from __future__ import annotations

from tests.cli.program import Program


def test_key_is_explained(tidelock: Program) -> None:
    shown = tidelock("config", "hoodie.index.type", "--json").facts
    assert shown["key"] == "hoodie.index.type"
    assert (shown["support"], shown["section"]) == ("honoured", "Indexes")
    assert (shown["type"], shown["default"]) == ("string", "SIMPLE")
    assert shown["values"] == ["SIMPLE", "BLOOM", "BUCKET"]
    text = tidelock("config", "hoodie.index.type").out
    assert text.startswith("hoodie.index.type\n")
    assert "default  SIMPLE" in text


def test_alias_shows_its_current_key(tidelock: Program) -> None:
    shown = tidelock("config", "hoodie.cleaner.policy", "--json").facts
    assert shown["key"] == "hoodie.clean.policy"
    assert shown["aliases"] == ["hoodie.cleaner.policy"]


def test_refused_key_is_explained_with_accepted_values(tidelock: Program) -> None:
    shown = tidelock("config", "hoodie.table.base.file.format", "--json").facts
    assert (shown["support"], shown["allowed"]) == ("refused", ["parquet"])
    assert shown["reason"]
    assert shown["instead"]


def test_ignored_key_is_explained_by_its_family(tidelock: Program) -> None:
    shown = tidelock("config", "hoodie.metrics.on", "--json").facts
    assert (shown["key"], shown["support"]) == ("hoodie.metrics.*", "ignored")


def test_unknown_key_is_an_error_with_close_matches(tidelock: Program) -> None:
    ended = tidelock("config", "hoodie.index.typ")
    assert ended.code == 2
    assert "unknown option hoodie.index.typ" in ended.err
    assert "did you mean hoodie.index.type" in ended.err


def test_sections_and_their_keys_are_listed(tidelock: Program) -> None:
    sections = tidelock("config", "--json").facts["sections"]
    assert {"section": "Indexes", "keys": 4} in sections
    keys = tidelock("config", "--section", "indexes", "--json").facts["keys"]
    assert "hoodie.index.type" in [key["key"] for key in keys]
    assert "hoodie.index.type" in tidelock("config", "--section", "Indexes").out
    ended = tidelock("config", "--section", "Nothing")
    assert ended.code == 2
    assert "expected a section" in ended.err
    assert tidelock("config", "a", "--section", "Lock").code == 2
