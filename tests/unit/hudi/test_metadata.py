"""Timeline metadata: round trips, files of other versions, and corrupt ones."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.timeline.instant import Action, InstantState
from tidelock.hudi.timeline.metadata import (
    CONTENT,
    CommitMetadata,
    OperationType,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
    RestoreMetadata,
    RollbackPlan,
    TimelineRecord,
    WriteStat,
    avro_schema,
    decode,
    encode,
)

KINDS = sorted(set(CONTENT.values()), key=lambda kind: kind.__name__)
COMMIT = CommitMetadata(
    {"part=a": (WriteStat(file_id="f-0", path="part=a/f-0_0-1-1_1.parquet", num_writes=3),)},
    extra_metadata={"schema": '{"type":"record"}'},
    operation_type="UPSERT",
)
INT_MAX = 2**31 - 1


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type as annotated in the timeline's dataclasses."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return st.one_of(*(values(each) for each in inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(st.text(max_size=5), values(inner[1]), max_size=2)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = {field.name: values(hints[field.name]) for field in dataclasses.fields(kind)}
        if isinstance(kind, type) and issubclass(kind, CommitMetadata):
            fields["operation_type"] = st.sampled_from([None, *OperationType.__members__])
        return st.builds(cast("type[Any]", kind), **fields)
    return {
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        int: st.integers(-INT_MAX, INT_MAX),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        types.NoneType: st.none(),
    }[kind]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_metadata_round_trips(kind: type[TimelineRecord], data: st.DataObject) -> None:
    metadata = data.draw(values(cast("Any", kind)))
    body = encode(metadata)
    assert decode(kind, body, where="x") == metadata
    assert encode(metadata) == body


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_dataclass_has_the_fields_of_its_schema(kind: type[TimelineRecord]) -> None:
    made = _record_of(encode(_example(kind)))
    assert made.keys() == {field["name"] for field in avro_schema(kind)["fields"]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_schema_equals_hudis(kind: type[TimelineRecord]) -> None:
    schemas = json.loads(Path(__file__).with_name("avro_schemas.json").read_text())
    assert json.dumps(avro_schema(kind)) == json.dumps(schemas[kind.__name__])


def _example(kind: Any) -> Any:
    required = {
        field.name: 0 if "int" in str(field.type) else "x"
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return kind(**required)


def _record_of(body: bytes) -> dict[str, Any]:
    (record,) = fastavro.reader(io.BytesIO(body))
    assert isinstance(record, dict)
    return record


@pytest.mark.parametrize("kind", [CommitMetadata, ReplaceCommitMetadata])
def test_maps_required_by_java_are_never_null(kind: type[CommitMetadata]) -> None:
    record = _record_of(encode(kind()))
    maps = {name for name, value in record.items() if value == {}}
    assert {"partitionToWriteStats", "extraMetadata"} <= maps
    assert kind is CommitMetadata or "partitionToReplaceFileIds" in maps


def test_file_equals_that_of_an_avro_library() -> None:
    many = dataclasses.replace(COMMIT, extra_metadata={str(n): "x" * n for n in range(200)})
    for metadata in (COMMIT, many, RequestedReplaceMetadata()):
        body = encode(metadata)
        found = fastavro.reader(io.BytesIO(body))
        file = io.BytesIO()
        schema = fastavro.parse_schema(avro_schema(type(metadata)))
        fastavro.writer(file, schema, list(found), sync_marker=body[-16:])
        assert file.getvalue() == body


def test_null_map_is_read_as_empty() -> None:
    file = io.BytesIO()
    fastavro.writer(
        file, avro_schema(CommitMetadata), [{"partitionToWriteStats": None, "extraMetadata": None}]
    )
    found = decode(CommitMetadata, file.getvalue(), where="x")
    assert found.partition_to_write_stats == {}
    assert found.schema_json == ""


@pytest.mark.parametrize("operation", ["upsert", "MERGE", ""])
def test_operation_unknown_to_java_is_not_written(operation: str) -> None:
    with pytest.raises(InvalidInput, match="unknown operation type"):
        encode(CommitMetadata(operation_type=operation))


def test_value_out_of_range_for_avro_is_not_written() -> None:
    stat = WriteStat(log_version=2**40)
    with pytest.raises(InvalidInput, match="CommitMetadata cannot be encoded"):
        encode(CommitMetadata({"": (stat,)}))


def test_request_of_an_overwrite_is_present_with_nulls() -> None:
    body = encode(RequestedReplaceMetadata())
    assert body
    assert set(_record_of(body).values()) == {None}


def test_commit_of_an_older_version_lacks_fields() -> None:
    older = copy.deepcopy(avro_schema(CommitMetadata))
    older["fields"] = [f for f in older["fields"] if f["name"] not in ("compacted", "version")]
    stat = older["fields"][0]["type"][1]["values"]["items"]
    stat["fields"] = [f for f in stat["fields"] if f["name"] in ("fileId", "path", "numWrites")]
    record = {
        "partitionToWriteStats": {"": [{"fileId": "f", "path": "f.parquet", "numWrites": 7}]},
        "extraMetadata": {"schema": "{}"},
        "operationType": "INSERT",
    }
    file = io.BytesIO()
    fastavro.writer(file, older, [record], codec="deflate")
    found = decode(CommitMetadata, file.getvalue(), where="x")
    assert found.partition_to_write_stats[""][0].num_writes == 7
    assert found.partition_to_write_stats[""][0].runtime_stats is None
    assert (found.compacted, found.version) == (None, 1)


def test_commit_of_a_newer_version_has_more_fields() -> None:
    newer = copy.deepcopy(avro_schema(CommitMetadata))
    newer["fields"].append({"name": "mood", "type": ["null", "string"], "default": None})
    file = io.BytesIO()
    fastavro.writer(file, newer, [{"extraMetadata": {"a": "b"}, "mood": "fine"}])
    assert decode(CommitMetadata, file.getvalue(), where="x").extra_metadata == {"a": "b"}


def test_commit_of_an_old_table_is_json() -> None:
    record = {
        "partitionToWriteStats": {"p": [{"fileId": "f", "path": "p/f.parquet", "unknown": 1}]},
        "compacted": False,
        "extraMetadata": {"schema": "{}"},
        "operationType": "UPSERT",
    }
    found = decode(CommitMetadata, json.dumps(record).encode(), where="x")
    assert found.partition_to_write_stats["p"][0].path == "p/f.parquet"
    assert found.operation_type == "UPSERT"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the file is empty"),
        (b"PAR1", "expected the Avro magic"),
        (b"{", "invalid JSON"),
        (b"[]", "expected the Avro magic"),
        (b'{"partitionToWriteStats": 7}', "expected CommitMetadata"),
        (b"Obj\x01", "expected Avro"),
        (encode(COMMIT)[:-1], "expected Avro"),
        (encode(_example(RestoreMetadata)), "expected Avro"),
    ],
)
def test_corrupt_metadata_is_refused_by_name(body: bytes, says: str) -> None:
    with pytest.raises(DataCorrupt, match=says) as caught:
        decode(CommitMetadata, body, where="table/.hoodie/timeline/1_2.commit")
    assert "table/.hoodie/timeline/1_2.commit cannot be read" in str(caught.value)


def test_two_records_in_a_file_are_refused() -> None:
    file = io.BytesIO()
    fastavro.writer(file, avro_schema(CommitMetadata), [{}, {}])
    with pytest.raises(DataCorrupt, match="expected one record, found 2"):
        decode(CommitMetadata, file.getvalue(), where="x")


@given(st.integers(0, 10**6), st.integers(0, 255), st.booleans())
def test_damaged_metadata_is_read_or_refused(at: int, byte: int, cut: bool) -> None:
    body = bytearray(encode(COMMIT))
    at %= len(body)
    body[at] = byte
    try:
        decode(CommitMetadata, bytes(body[:at] if cut else body), where="x")
    except DataCorrupt as error:
        assert error.message.startswith("x cannot be read")  # noqa: PT017 - some damage is legal


def test_rollback_requests_use_the_capitalization_of_java() -> None:
    assert "RollbackRequests" in _record_of(encode(RollbackPlan()))


def test_every_completed_action_has_content() -> None:
    completed = {action for action, state in CONTENT if state is InstantState.COMPLETED}
    assert completed == {action.completed for action in Action}
