"""`tidelock config`: sections, single keys, unsupported Hudi keys, close matches."""

from __future__ import annotations

import pytest

from tests.cli.program import Program
from tidelock.lock.config import RENEW_S, VALIDITY_S, WAIT_TIME_MS


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
    assert shown["covers"] == "every key that begins with hoodie.metrics. is ignored"
    assert shown["similar"] == []


def test_misspelt_key_of_a_family_is_shown_with_the_key_that_is_meant(tidelock: Program) -> None:
    shown = tidelock("config", "hoodie.metadata.enabel", "--json").facts
    assert shown["key"] == "hoodie.metadata.*"
    assert shown["similar"] == ["hoodie.metadata.enable"]


def test_switch_of_the_metadata_table_has_an_entry_of_its_own(tidelock: Program) -> None:
    shown = tidelock("config", "hoodie.metadata.enable", "--json").facts
    assert (shown["key"], shown["support"]) == ("hoodie.metadata.enable", "ignored")
    assert "refuse a table that has one" in shown["reason"]
    assert "tidelock.metadata.table.policy=disable" in shown["instead"]
    assert "covers" not in shown


def test_unknown_key_is_an_error_with_close_matches(tidelock: Program) -> None:
    ended = tidelock("config", "hoodie.index.typ")
    assert ended.code == 2
    assert "unknown setting hoodie.index.typ" in ended.err
    assert "did you mean hoodie.index.type?" in ended.err


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("hoodie.datasource.write.recordky.field", "hoodie.datasource.write.recordkey.field"),
        ("hoodie.metadta.enable", "hoodie.metadata.enable"),
        ("hoodie.upsert.shufle.parallelism", "hoodie.upsert.shuffle.parallelism"),
        ("HOODIE.INDEX.TYPE", "hoodie.index.type"),
        ("HOODIE.BASE.FILE.FORMAT", "hoodie.base.file.format"),
    ],
)
def test_one_key_is_suggested_for_a_typo(tidelock: Program, key: str, meant: str) -> None:
    ended = tidelock("config", key)
    assert ended.code == 2
    assert f"did you mean {meant}?" in ended.err


def test_nothing_is_suggested_for_a_name_that_resembles_no_key(tidelock: Program) -> None:
    ended = tidelock("config", "hoodie.bogus")
    assert ended.code == 2
    assert "did you mean" not in ended.err


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


@pytest.mark.parametrize(
    ("command", "option", "default"),
    [
        (("acquire",), "--wait", f"{WAIT_TIME_MS.key}, 60 s"),
        (("acquire",), "--validity", str(VALIDITY_S.default)),
        (("acquire",), "--renew", str(RENEW_S.default)),
        (("streamer",), "--max-retry-count", "3"),
        (("streamer",), "--retry-interval-seconds", "30.0"),
        (("streamer",), "--min-sync-interval-seconds", "0.0"),
    ],
)
def test_help_shows_the_default(
    tidelock: Program, command: tuple[str, ...], option: str, default: str
) -> None:
    group = ("lock",) if command == ("acquire",) else ()
    words = " ".join(tidelock(*group, *command, "--help").out.split())
    described = words.partition(f" {option} ")[2][:200]
    assert f"[default: {default}]" in described
