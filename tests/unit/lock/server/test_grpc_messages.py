"""The compiled descriptor set, against protoc's output and against Dapr's own package."""

from __future__ import annotations

from typing import Any

import pytest
from dapr.proto.runtime.v1 import lock_pb2
from google.protobuf import descriptor_pb2

from scripts.generate_protos import TARGET, compiled
from tidelock.lock.server.grpc_messages import message, method, methods


def test_committed_descriptor_set_is_up_to_date() -> None:
    committed = descriptor_pb2.FileDescriptorSet.FromString(TARGET.read_bytes())
    assert committed == descriptor_pb2.FileDescriptorSet.FromString(compiled()), (
        "run python -m scripts.generate_protos"
    )


@pytest.mark.parametrize(
    "name", ["TryLockRequest", "TryLockResponse", "UnlockRequest", "UnlockResponse"]
)
def test_alpha1_messages_match_dapr_field_by_field(name: str) -> None:
    theirs = getattr(lock_pb2, name).DESCRIPTOR
    ours = message(f"dapr.proto.runtime.v1.{name}").DESCRIPTOR
    assert _shape(ours) == _shape(theirs)


def _shape(descriptor: Any) -> dict[str, tuple[int, int, list[tuple[str, int]]]]:
    return {
        field.name: (
            field.number,
            field.type,
            [(v.name, v.number) for v in field.enum_type.values] if field.enum_type else [],
        )
        for field in descriptor.fields
    }


def test_both_options_are_separate_services() -> None:
    package = "tidelock.lockservice.v1alpha2"
    assert not method(f"{package}.Locks", "Lock").streams
    assert method(f"{package}.StreamLocks", "Lock").streams
    assert len(methods(f"{package}.Locks")) == 6
