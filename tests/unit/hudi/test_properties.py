"""Table properties: validated on read, and written for all readers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import DataCorrupt, InvalidInput, RecordFromFuture, Unsupported
from tidelock.core.javaproperties import render_properties
from tidelock.hudi import properties as keys
from tidelock.hudi.properties import (
    KeyGenerator,
    MergeMode,
    TableProperties,
    TableType,
    checksum,
    decode,
    inferred_key_generator,
    new_properties,
)

V8 = {
    "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "hoodie.table.initial.version": "8",
    "hoodie.table.keygenerator.type": "NON_PARTITION",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.precombine.field": "longField",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.checksum": "1908876706",
    "hoodie.record.merge.strategy.id": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    "hoodie.table.name": "v8_nonpartitioned",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.timeline.path": "timeline",
    "hoodie.timeline.history.path": "history",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.database.name": "default",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.version": "8",
}


def without(*names: str, **changed: str) -> TableProperties:
    values = {key: value for key, value in V8.items() if key not in names}
    return TableProperties(values | changed, "t/.hoodie/hoodie.properties")


def with_(key: str, value: str) -> TableProperties:
    return without(**{key: value})


def test_properties_of_a_real_table_are_parsed() -> None:
    found = TableProperties(V8)
    assert found.name == "v8_nonpartitioned"
    assert found.database == "default"
    assert found.type is TableType.COPY_ON_WRITE
    assert found.version == 8
    assert found.record_keys == ("id",)
    assert found.partition_fields == ()
    assert not found.is_partitioned
    assert found.ordering_fields == ("longField",)
    assert found.merge_mode is MergeMode.EVENT_TIME_ORDERING
    assert found.key_generator is KeyGenerator.NON_PARTITION
    assert found.hive_style
    assert not found.url_encode
    assert found.populates_meta_fields
    assert not found.is_utc
    assert not found.has_metadata_table
    assert found.timeline_folder == ".hoodie/timeline"
    assert found.history_folder == ".hoodie/timeline/history"


@pytest.mark.parametrize(
    ("database", "name", "expected"),
    [
        ("default", "v8_nonpartitioned", 1908876706),
        ("default", "v9_txns_mor_simple_nometa", 3914184242),
        ("", "v9_txns_cow_simple_meta_metadata", 1362276322),
    ],
)
def test_checksum_matches_java(database: str, name: str, expected: int) -> None:
    assert checksum(database, name) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"hoodie.table.checksum": "1"},
        {"hoodie.table.checksum": ""},
        {"hoodie.table.name": "another"},
        {"hoodie.database.name": "another"},
    ],
)
def test_wrong_checksum_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(DataCorrupt, match=r"hoodie.properties: hoodie\.table\.checksum"):
        without(**changed)


def test_missing_checksum_is_accepted_as_in_java() -> None:
    assert without("hoodie.table.checksum").name == "v8_nonpartitioned"


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.table.name",
        "hoodie.table.type",
        "hoodie.table.version",
        "hoodie.timeline.layout.version",
    ],
)
def test_required_values_must_be_set(key: str) -> None:
    with pytest.raises(DataCorrupt, match=f"t/.hoodie/hoodie.properties: {key} is not set"):
        without(key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.type", "copy_on_write"),
        ("hoodie.record.merge.mode", "LATEST"),
        ("hoodie.table.version", "eight"),
        ("hoodie.table.version", "-8"),
    ],
)
def test_invalid_value_is_rejected(key: str, value: str) -> None:
    with pytest.raises(DataCorrupt, match=f"{key}: .*{value}"):
        with_(key, value)


def test_table_of_a_newer_version_asks_for_a_newer_release() -> None:
    with pytest.raises(RecordFromFuture, match="table version 10"):
        with_("hoodie.table.version", "10")


@pytest.mark.parametrize(
    ("key", "value"), [("hoodie.table.version", "6"), ("hoodie.timeline.layout.version", "1")]
)
def test_table_of_an_older_version_asks_for_an_upgrade(key: str, value: str) -> None:
    with pytest.raises(Unsupported, match="upgrade the table"):
        with_(key, value)


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, MergeMode.COMMIT_TIME_ORDERING),
        ({keys.ORDERING_FIELDS: "ts"}, MergeMode.EVENT_TIME_ORDERING),
        ({keys.PRECOMBINE_FIELD: "ts"}, MergeMode.EVENT_TIME_ORDERING),
        (
            {
                keys.PRECOMBINE_FIELD: "ts",
                keys.MERGE_STRATEGY: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
            },
            MergeMode.COMMIT_TIME_ORDERING,
        ),
        (
            {keys.PAYLOAD_CLASS: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"},
            MergeMode.COMMIT_TIME_ORDERING,
        ),
        (
            {keys.PAYLOAD_CLASS: "org.apache.hudi.common.model.DefaultHoodieRecordPayload"},
            MergeMode.EVENT_TIME_ORDERING,
        ),
        ({keys.PAYLOAD_CLASS: "com.example.Mine"}, MergeMode.CUSTOM),
        (
            {
                keys.MERGE_STRATEGY: "00000000-0000-0000-0000-000000000000",
                keys.PAYLOAD_CLASS: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
            },
            MergeMode.CUSTOM,
        ),
    ],
)
def test_missing_merge_mode_is_inferred(values: dict[str, str], mode: MergeMode) -> None:
    bare = without(
        keys.MERGE_MODE, keys.MERGE_STRATEGY, keys.PAYLOAD_CLASS, keys.PRECOMBINE_FIELD, **values
    )
    assert bare.merge_mode is mode


@pytest.mark.parametrize(
    ("text", "generator"),
    [
        ("SIMPLE", KeyGenerator.SIMPLE),
        ("COMPLEX_AVRO", KeyGenerator.COMPLEX),
        ("timestamp", KeyGenerator.TIMESTAMP),
        ("USER_PROVIDED", KeyGenerator.OTHER),
        ("HOODIE_TABLE_METADATA", KeyGenerator.OTHER),
    ],
)
def test_key_generators_are_found_by_name(text: str, generator: KeyGenerator) -> None:
    assert with_(keys.KEY_GENERATOR, text).key_generator is generator


@pytest.mark.parametrize(
    ("record_keys", "partitions", "generator"),
    [
        (["a"], [], KeyGenerator.NON_PARTITION),
        (["a", "b"], [], KeyGenerator.NON_PARTITION),
        (["a"], ["p"], KeyGenerator.SIMPLE),
        (["a", "b"], ["p"], KeyGenerator.COMPLEX),
        (["a"], ["p", "q"], KeyGenerator.COMPLEX),
    ],
)
def test_key_generator_is_inferred_as_in_hudi(
    record_keys: list[str], partitions: list[str], generator: KeyGenerator
) -> None:
    assert inferred_key_generator(record_keys, partitions) is generator
    created = new_properties("t", record_keys=record_keys, partition_fields=partitions)
    assert created.key_generator is generator
    assert created.with_changes({keys.KEY_GENERATOR: None}).key_generator is generator


def test_custom_generator_has_types_next_to_its_fields() -> None:
    found = without(
        **{keys.PARTITION_FIELDS: "region:SIMPLE,ts:TIMESTAMP", keys.KEY_GENERATOR: "CUSTOM"}
    )
    assert found.partition_fields == ("region", "ts")
    assert found.is_partitioned


def test_non_partitioned_generator_wins_over_partition_fields() -> None:
    assert not with_(keys.PARTITION_FIELDS, "region").is_partitioned


@pytest.mark.parametrize(
    ("values", "used"),
    [
        ({}, False),
        ({keys.METADATA_PARTITIONS: ""}, False),
        ({keys.METADATA_PARTITIONS: "column_stats,files"}, True),
        ({keys.METADATA_INFLIGHT: "files"}, True),
        ({keys.METADATA_PARTITIONS: "", keys.METADATA_INFLIGHT: ""}, False),
    ],
)
def test_metadata_table_is_in_use_if_it_lists_files(values: dict[str, str], used: bool) -> None:
    assert without(**values).has_metadata_table is used


def test_merge_settings_have_a_prefix_since_version_9() -> None:
    key = "hoodie.payload.delete.field"
    assert with_(key, "op").merge_setting(key) == "op"
    assert with_(f"{keys.MERGE_PREFIX}{key}", "op").merge_setting(key) == "op"
    assert TableProperties(V8).merge_setting(key) is None


def test_change_keeps_other_properties_and_updates_the_checksum() -> None:
    changed = TableProperties(V8).with_changes(
        {"hoodie.table.name": "other", keys.METADATA_PARTITIONS: "", keys.PRECOMBINE_FIELD: None}
    )
    assert changed.name == "other"
    assert changed.values[keys.CHECKSUM] == str(checksum("default", "other"))
    assert changed.values[keys.METADATA_PARTITIONS] == ""
    assert changed.ordering_fields == ()
    assert changed.type is TableType.COPY_ON_WRITE


def test_table_of_version_9_stores_only_the_merge_mode() -> None:
    values = new_properties("t", record_keys=["id"], ordering_fields=["ts"]).values
    assert values[keys.MERGE_MODE] == "EVENT_TIME_ORDERING"
    assert values[keys.ORDERING_FIELDS] == "ts"
    assert values["hoodie.table.format"] == "native"
    assert not values.keys() & {keys.MERGE_STRATEGY, keys.PAYLOAD_CLASS, keys.PRECOMBINE_FIELD}


@pytest.mark.parametrize(
    ("ordering", "strategy", "payload"),
    [
        (["ts"], "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "DefaultHoodieRecordPayload"),
        ([], "ce9acb64-bde0-424c-9b91-f6ebba25356d", "OverwriteWithLatestAvroPayload"),
    ],
)
def test_table_of_version_8_has_consistent_mode_strategy_and_payload(
    ordering: list[str], strategy: str, payload: str
) -> None:
    values = new_properties("t", version=8, record_keys=["id"], ordering_fields=ordering).values
    assert values[keys.MERGE_STRATEGY] == strategy
    assert values[keys.PAYLOAD_CLASS] == f"org.apache.hudi.common.model.{payload}"
    assert values.get(keys.PRECOMBINE_FIELD) == (ordering[0] if ordering else None)
    assert "hoodie.table.format" not in values


def test_created_table_is_in_utc_and_has_no_empty_lists() -> None:
    created = new_properties("t", record_keys=["id"])
    assert created.is_utc
    assert keys.PARTITION_FIELDS not in created.values
    assert all(created.values.values())


@pytest.mark.parametrize(
    "wrong", [{"version": 10}, {"version": 6}, {"ordering_fields": ["a", "b"]}, {"name": ""}]
)
def test_table_that_some_readers_cannot_read_is_not_created(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        new_properties(**{"name": "t", **wrong})  # type: ignore[arg-type]


NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)


@given(
    NAMES,
    NAMES,
    st.sampled_from(TableType),
    st.sampled_from([8, 9]),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_created_properties_round_trip_as_text(
    name: str, database: str, table_type: TableType, version: int, schema: str
) -> None:
    created = new_properties(
        name, database=database, table_type=table_type, version=version, create_schema=schema
    )
    body = render_properties(created.values).encode("ascii")
    found = decode(body, where=created.where)
    assert found == created
    assert (found.name, found.create_schema) == (name, schema)
