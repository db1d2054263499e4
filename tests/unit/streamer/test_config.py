"""The request to a streamer, its checkpoints, and the size of its batches."""

from __future__ import annotations

from typing import Any

import pytest

from tidelock.core import config
from tidelock.core.errors import ConfigInvalid, Conflict, DataCorrupt
from tidelock.streamer.batch import BatchPace
from tidelock.streamer.checkpoint import (
    StreamCheckpoint,
    check_source,
    checkpoint_of,
    hudi_checkpoint,
)
from tidelock.streamer.config import StreamerRequest

ROOT = {"hoodie.deltastreamer.source.dfs.root": "/in"}


def streamer_request(**given: Any) -> StreamerRequest:
    properties = {**ROOT, **given.pop("properties", {})}
    source = given.pop("source_class", "JsonDFSSource")
    return StreamerRequest("/table", source, properties=properties, **given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"source_class": "PulsarSource"}, "unknown source class 'PulsarSource'"),
        (
            {"source_class": "JsonKafkaSource"},
            "hoodie.streamer.source.kafka.topic: required, not set",
        ),
        ({"op": "DELETE"}, "--op: expected one of .*, got 'DELETE'"),
        ({"table_type": "ROWS"}, "--table-type: expected one of .*, got 'ROWS'"),
        ({"source_limit": 0}, "--source-limit: expected 1 or more, got 0"),
        ({"filter_dupes": True}, "--filter-dupes: not allowed with --op UPSERT"),
        (
            {"initial_checkpoint_provider": "MyProvider"},
            "unknown checkpoint provider class 'MyProvider'",
        ),
        (
            {"initial_checkpoint_provider": "KafkaConnectHdfsProvider"},
            "hoodie.streamer.checkpoint.provider.path: required, not set",
        ),
        (
            {"properties": {"tidelock.streamer.malformedd": "quarantine"}},
            "unknown setting tidelock.streamer.malformedd",
        ),
        (
            {"properties": {"hoodie.streamer.source.kafka.topics": "t"}},
            "unknown setting hoodie.streamer.source.kafka.topics",
        ),
    ],
)
def test_invalid_requests_are_rejected_before_spark_starts(
    given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigInvalid, match=expected):
        streamer_request(**given)


def test_settings_of_hudis_streamer_without_effect_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_warned", set())
    name = "hoodie.streamer.source.kafka.enable.commit.offset"
    streamer_request(properties={name: "true", "hoodie.deltastreamer.csv.quoteAll": "true"})
    messages = [record.getMessage() for record in caplog.records]
    (line,) = [each for each in messages if "no effect" in each]
    assert line.startswith(f"{name} has no effect here: ")


def test_table_options_exclude_settings_of_the_source() -> None:
    properties = {
        "bootstrap.servers": "b:9092",
        "hoodie.streamer.source.kafka.topic": "t",
        "tidelock.streamer.writer.id": "w",
        "hoodie.datasource.write.recordkey.field": "id",
    }
    request = streamer_request(
        target_table="orders", source_ordering_field="ts", table_type="merge_on_read",
        properties=properties,
    )  # fmt: skip
    assert request.table_options() == {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.name": "orders",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.compact.inline": True,
    }


def test_continuous_streamers_compact_in_the_background() -> None:
    key = "hoodie.datasource.compaction.async.enable"
    assert streamer_request(continuous=True).table_options()[key] is True
    assert streamer_request(continuous=True, disable_compaction=True).table_options()[key] is False


def test_checkpoint_survives_a_round_trip() -> None:
    held = StreamCheckpoint("w", "json:/in", '{"time":1}', "5")
    assert checkpoint_of(held.data, where="t") == held
    assert hudi_checkpoint(held.metadata("17")) == "17"
    assert hudi_checkpoint(held.metadata(None)) is None
    with pytest.raises(DataCorrupt, match="was not written by a streamer"):
        checkpoint_of("some text", where="t")


def test_checkpoint_of_another_source_is_rejected() -> None:
    with pytest.raises(Conflict, match="expected the source json:/in, got json:/other"):
        check_source(StreamCheckpoint("w", "json:/in", "1"), "json:/other")


def test_slow_batches_shrink_and_full_fast_ones_grow_again() -> None:
    pace = BatchPace.of(1_000, 10)
    slow = pace.after(1_000, 20)
    assert slow.limit == 500
    assert slow.after(100, 1).limit == 500, "a batch limited by the source does not change the pace"
    assert slow.after(500, 5).limit == 1_000
    assert slow.after(500, 1).after(1_000, 1).limit == 1_000, "never beyond the user's limit"
    assert pace.after(1_000, 10_000).limit == 250, "one slow batch does not stop the stream"
    assert BatchPace.of(1_000, 0).after(1_000, 99).limit == 1_000
