"""Protobuf message classes of the gRPC API, from the compiled descriptor set.

`protos/lockservice.binpb` is made from the .proto files next to it by `scripts/generate_protos.py`.
It is loaded into a descriptor pool of its own: Dapr's Python package registers the same message
names in the process-wide pool, and a name can be registered there only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """One method of a service, with the classes of its messages."""

    path: str
    request: Any
    response: Any
    streams: bool


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    data = files("tidelock.lock.server").joinpath("protos", "lockservice.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def duration(duration_ms: int) -> Any:
    """Return milliseconds as a protobuf duration."""
    seconds, rest_ms = divmod(duration_ms, 1000)
    return message("google.protobuf.Duration")(seconds=seconds, nanos=rest_ms * 1_000_000)


@cache
def method(service: str, name: str) -> GrpcMethod:
    """Return a method by the full name of its service and its own name."""
    found = _pool().FindServiceByName(service).methods_by_name[name]
    return GrpcMethod(
        f"/{service}/{name}",
        message_factory.GetMessageClass(found.input_type),
        message_factory.GetMessageClass(found.output_type),
        bool(found.server_streaming),
    )


def methods(service: str) -> list[GrpcMethod]:
    return [method(service, name) for name in _pool().FindServiceByName(service).methods_by_name]
