"""Every setting of Hudi 1.2 is known, and how it is treated is decided.

`hudi-1.2.0-keys.jsonl` is made from Hudi's own jar by `testkit.java.configs`. The other list has
settings of modules that the jar does not contain, from Hudi's source.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import tidelock as tl
from scripts.generate_docs import configuration_page
from tidelock.core import config
from tidelock.core.config import support
from tidelock.core.errors import ConfigInvalid, NotFound
from tidelock.core.unsupported_keys import KeySupport
from tidelock.operations.config import check_options

HERE = Path(__file__).parent
ROWS = pa.table({"id": ["a", "b"], "day": ["mon", "tue"], "ts": [1, 2]})
NEEDS_A_SERVER = "hoodie.write.lock.provider"


class Key(NamedTuple):
    name: str
    aliases: tuple[str, ...]
    default: str | None


def listed() -> list[Key]:
    files = ("hudi-1.2.0-keys.jsonl", "hudi-1.2.0-keys-elsewhere.jsonl")
    lines = [line for file in files for line in (HERE / file).read_text().splitlines()]
    found = map(json.loads, lines)
    return [Key(each["key"], tuple(each["aliases"]), each["default"]) for each in found]


@pytest.fixture(autouse=True)
def everything_declared() -> None:
    configuration_page()


def test_list_is_complete() -> None:
    names = {key.name for key in listed()}
    assert len(names) > 700
    assert {
        "hoodie.insert.shuffle.parallelism",
        "hoodie.datasource.write.payload.class",
        "hoodie.datasource.write.drop.partition.columns",
        "hoodie.table.services.enabled",
    } <= names


def test_every_hudi_setting_is_honoured_harmless_or_refused() -> None:
    names = [name for key in listed() for name in (key.name, *key.aliases)]
    assert [name for name in names if support(name) is None] == []


def test_hudi_default_is_never_refused() -> None:
    refused = {}
    for key in listed():
        for name in (key.name, *key.aliases):
            try:
                check_options({name: key.default or ""} if key.default is not None else {})
            except ConfigInvalid as error:
                refused[name] = str(error)
    assert refused == {}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_table_is_created_and_written_with_the_hudi_default_of_each_setting(
    kind: str,
) -> None:
    keys = [key for key in listed() if support(key.name) is KeySupport.HONOURED and key.default]
    assert len(keys) > 100
    for number, key in enumerate(keys):
        given = {key.name: key.default or ""}
        if key.name in (NEEDS_A_SERVER, "hoodie.datasource.write.table.type", "hoodie.table.type"):
            continue
        uri = f"memory://hudi-defaults-{kind}-{number}"
        with tl.Table.create(
            uri, ROWS.schema, key="id", ordering="ts", partition_by="day", type=kind, options=given
        ) as table:
            table.upsert(ROWS)
            assert len(table.read().to_pylist()) == 2, key.name


def test_genuine_settings_that_resemble_ours_are_accepted() -> None:
    check_options(
        {
            "hoodie.insert.shuffle.parallelism": "2",
            "hoodie.upsert.shuffle.parallelism": "2",
            "hoodie.delete.shuffle.parallelism": "2",
            "hoodie.write.lock.client.wait_time_ms": "1000",
            "hoodie.table.services.enabled": "false",
            "hoodie.datasource.write.record.merger.impls": "org.apache.hudi.X",
            "hoodie.datasource.write.drop.partition.columns": "false",
        }
    )
    tl.lock(
        "memory://genuine-lock-keys",
        settings={"hoodie.write.lock.client.wait_time_ms": "1000"},
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("hoodie.datasource.write.drop.partition.columns", "true", "keep the partition columns"),
        ("hoodie.populate.meta.fields", "false", "meta columns"),
        ("hoodie.table.base.file.format", "ORC", "Parquet"),
        ("hoodie.metadata.record.index.enable", "true", "record index"),
        ("hoodie.datasource.write.record.merger.impls", "com.acme.Merger", "cannot be run"),
        ("hoodie.datasource.write.payload.class", "com.acme.Payload", "is not supported"),
        ("hoodie.bootstrap.base.path", "s3://elsewhere", "point at files elsewhere"),
        ("hoodie.table.cdc.enabled", "true", "before a change"),
        ("hoodie.payload.ordering.field", "ts", "ordering fields"),
        ("parquet.crypto.factory.class", "com.acme.Factory", "not encrypted"),
    ],
)
def test_setting_that_would_change_the_rows_is_refused_with_the_reason(
    name: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigInvalid, match=says) as caught:
        tl.Table.create("memory://refused-settings", ROWS.schema, key="id", options={name: value})
    assert caught.value.hint
    with pytest.raises(NotFound):
        tl.Table.open("memory://refused-settings")


def test_ordering_field_named_twice_is_one() -> None:
    check_options(
        {
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.payload.ordering.field": "ts",
        }
    )


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (
            "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
            "COMMIT_TIME_ORDERING",
        ),
        ("org.apache.hudi.common.model.DefaultHoodieRecordPayload", "EVENT_TIME_ORDERING"),
    ],
)
def test_payload_class_selects_the_merge_mode(given: str, mode: str) -> None:
    options = {"hoodie.datasource.write.payload.class": given}
    uri = f"memory://payload-{mode}"
    with tl.Table.create(uri, ROWS.schema, key="id", ordering="ts", options=options) as table:
        table.upsert(ROWS)
        table.upsert(pa.table({"id": ["a"], "day": ["wed"], "ts": [0]}))
        days = {row["id"]: row["day"] for row in table.read().to_pylist()}
    assert days["a"] == ("wed" if mode == "COMMIT_TIME_ORDERING" else "mon")


def test_two_merge_modes_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="different merge modes"):
        check_options(
            {
                "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.datasource.write.payload.class": "DefaultHoodieRecordPayload",
            }
        )


def test_setting_without_effect_is_logged_once_per_process(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_warned", set())
    options = {"hoodie.upsert.shuffle.parallelism": "2"}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with tl.Table.create(
                "memory://said-once", ROWS.schema, key="id", options=options, exist_ok=True
            ) as table:
                table.upsert(ROWS)
    messages = [each for each in caplog.messages if "hoodie.upsert.shuffle.parallelism" in each]
    assert len(messages) == 1
    assert "no effect here" in messages[0]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("hoodie.datasource.write.recordkey.fields", "hoodie.datasource.write.recordkey.field"),
        ("hoodie.write.lock.providr", "hoodie.write.lock.provider"),
        ("hoodie.clean.commits.retaned", "hoodie.clean.commits.retained"),
    ],
)
def test_unknown_names_are_errors(name: str, near: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"unknown setting {name}") as caught:
        check_options({name: "1"})
    assert near in caught.value.hint
