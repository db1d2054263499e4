"""Our reading of the .proto files, against protoc's and against Dapr's own package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dapr.proto.runtime.v1 import lock_pb2
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

import tidelock.lockservice.protofile
from tidelock.lockservice.protofile import described, message, method, methods

PROTOS = Path(tidelock.lockservice.protofile.__file__).parent / "protos"


@pytest.mark.parametrize("name", ["dapr_lock.proto", "lockservice.proto"])
def test_files_are_read_as_protoc_reads_them(name: str, tmp_path: Path) -> None:
    include = Path(protoc.__file__).parent / "_proto"
    target = tmp_path / "set.binpb"
    args = [f"-I{PROTOS}", f"-I{include}", f"--descriptor_set_out={target}", name]
    assert protoc.main(["protoc", *args]) == 0
    found = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    assert described(name) == found.file[0]


@pytest.mark.parametrize(
    "name", ["TryLockRequest", "TryLockResponse", "UnlockRequest", "UnlockResponse"]
)
def test_alpha1_messages_are_daprs_field_by_field(name: str) -> None:
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


def test_both_options_are_services_of_their_own() -> None:
    package = "tidelock.lockservice.v1alpha2"
    assert not method(f"{package}.Locks", "Lock").streams
    assert method(f"{package}.StreamLocks", "Lock").streams
    assert len(methods(f"{package}.Locks")) == 6


def test_a_file_with_something_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="not understood"):
        tidelock.lockservice.protofile._Reader("x", "extend A { }").read()
