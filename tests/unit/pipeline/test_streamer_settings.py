"""What a streamer is asked, how far it came, and how much it takes next."""

from __future__ import annotations

from typing import Any

import pytest

from tidelock.base import config
from tidelock.base.errors import ConfigInvalid, Conflict, DataCorrupt
from tidelock.pipeline.streamer.checkpoint import (
    Checkpoint,
    check_source,
    checkpoint_of,
    hudi_place,
)
from tidelock.pipeline.streamer.pace import Pace
from tidelock.pipeline.streamer.settings import Asked

ROOT = {"hoodie.deltastreamer.source.dfs.root": "/in"}


def asked(**given: Any) -> Asked:
    properties = {**ROOT, **given.pop("properties", {})}
    source = given.pop("source_class", "JsonDFSSource")
    return Asked("/table", source, properties=properties, **given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"source_class": "PulsarSource"}, "source PulsarSource is not known"),
        ({"source_class": "JsonKafkaSource"}, "hoodie.streamer.source.kafka.topic does not exist"),
        ({"op": "DELETE"}, "--op DELETE is not known"),
        ({"table_type": "ROWS"}, "--table-type ROWS is not known"),
        ({"source_limit": 0}, "--source-limit 0 would read nothing"),
        ({"filter_dupes": True}, "--filter-dupes would leave out what --op UPSERT changes"),
        ({"initial_checkpoint_provider": "MyProvider"}, "provider MyProvider is not known"),
        (
            {"initial_checkpoint_provider": "KafkaConnectHdfsProvider"},
            "hoodie.streamer.checkpoint.provider.path does not exist",
        ),
        (
            {"properties": {"tidelock.streamer.malformedd": "quarantine"}},
            "unknown option tidelock.streamer.malformedd",
        ),
        (
            {"properties": {"hoodie.streamer.source.kafka.topics": "t"}},
            "unknown option hoodie.streamer.source.kafka.topics",
        ),
    ],
)
def test_mistakes_are_named_before_spark_starts(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigInvalid, match=says):
        asked(**given)


def test_settings_of_hudis_streamer_without_effect_are_named_and_pass(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_said", set())
    name = "hoodie.streamer.source.kafka.enable.commit.offset"
    asked(properties={name: "true", "hoodie.deltastreamer.csv.quoteAll": "true"})
    said = [record.getMessage() for record in caplog.records]
    (line,) = [each for each in said if "no effect" in each]
    assert line.startswith(f"{name} has no effect here: ")


def test_the_table_hears_nothing_of_the_source() -> None:
    properties = {
        "bootstrap.servers": "b:9092",
        "hoodie.streamer.source.kafka.topic": "t",
        "tidelock.streamer.writer.id": "w",
        "hoodie.datasource.write.recordkey.field": "id",
    }
    wanted = asked(
        target_table="orders", source_ordering_field="ts", table_type="merge_on_read",
        properties=properties,
    )  # fmt: skip
    assert wanted.table_options() == {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.name": "orders",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.compact.inline": True,
    }


def test_continuous_streamers_compact_beside_their_batches() -> None:
    key = "hoodie.datasource.compaction.async.enable"
    assert asked(continuous=True).table_options()[key] is True
    assert asked(continuous=True, disable_compaction=True).table_options()[key] is False


def test_a_checkpoint_comes_back_from_its_mark() -> None:
    held = Checkpoint("w", "json:/in", '{"time":1}', "5")
    assert checkpoint_of(held.data, where="t") == held
    assert hudi_place(held.metadata("17")) == "17"
    assert hudi_place(held.metadata(None)) is None
    with pytest.raises(DataCorrupt, match="not a streamer's"):
        checkpoint_of("some text", where="t")


def test_a_place_in_one_source_says_nothing_about_another() -> None:
    with pytest.raises(Conflict, match="has read json:/in, and is now to read json:/other"):
        check_source(Checkpoint("w", "json:/in", "1"), "json:/other")


def test_slow_batches_shrink_and_full_fast_ones_grow_again() -> None:
    pace = Pace.of(1_000, 10)
    slow = pace.after(1_000, 20)
    assert slow.limit == 500
    assert slow.after(100, 1).limit == 500, "a small batch says nothing"
    assert slow.after(500, 5).limit == 1_000
    assert slow.after(500, 1).after(1_000, 1).limit == 1_000, "never beyond the user's limit"
    assert pace.after(1_000, 10_000).limit == 250, "one slow batch does not stop the stream"
    assert Pace.of(1_000, 0).after(1_000, 99).limit == 1_000
