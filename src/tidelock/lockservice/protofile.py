"""Message classes straight from our own .proto files.

Generated code would register Dapr's names in the process-wide pool, where Dapr's own package puts
them as well, and two owners of one name are an error. So the files are read here, into a pool of
our own. Only the part of the language that they use is understood; a test compares the result with
protoc's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory

_TOKEN = re.compile(r'"[^"]*"|[\w.]+|[{}()=;]')
_COMMENT = re.compile(r"//[^\n]*")
_TYPES = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service, with the classes of its messages."""

    path: str
    request: Any
    response: Any
    streams: bool


class _Reader:
    """Reads one file, token by token."""

    def __init__(self, name: str, text: str) -> None:
        self._tokens = _TOKEN.findall(_COMMENT.sub("", text))
        self._at = 0
        self.file = descriptor_pb2.FileDescriptorProto(name=name)

    def read(self) -> descriptor_pb2.FileDescriptorProto:
        """Return the descriptor of the file."""
        while self._at < len(self._tokens):
            match self._next():
                case "syntax":
                    self._expect("=")
                    self.file.syntax = self._next().strip('"')
                    self._expect(";")
                case "package":
                    self.file.package = self._next()
                    self._expect(";")
                case "import":
                    self.file.dependency.append(self._next().strip('"'))
                    self._expect(";")
                case "message":
                    self._message(self.file.message_type.add())
                case "service":
                    self._service(self.file.service.add())
                case other:
                    raise ValueError(f"{self.file.name}: {other!r} is not understood")
        return self.file

    def _message(self, message: Any) -> None:
        message.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "enum":
                self._enum(message.enum_type.add())
            elif word == "oneof":
                message.oneof_decl.add(name=self._next())
                self._expect("{")
                while (kind := self._next()) != "}":
                    self._field(message, kind).oneof_index = len(message.oneof_decl) - 1
            elif word == "optional":
                field = self._field(message, self._next())
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            else:
                self._field(message, word)

    def _field(self, message: Any, kind: str) -> Any:
        field = message.field.add(name=self._next())
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
        head, *rest = field.name.split("_")
        field.json_name = head + "".join(part.capitalize() for part in rest)
        self._expect("=")
        field.number = int(self._next())
        self._expect(";")
        if kind in _TYPES:
            field.type = _TYPES[kind]
        elif any(kind == enum.name for enum in message.enum_type):
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_ENUM
            field.type_name = f".{self.file.package}.{message.name}.{kind}"
        else:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{kind}" if "." in kind else f".{self.file.package}.{kind}"
        return field

    def _enum(self, enum: Any) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            self._expect("=")
            enum.value.add(name=word, number=int(self._next()))
            self._expect(";")

    def _service(self, service: Any) -> None:
        service.name = self._next()
        self._expect("{")
        while self._next() != "}":
            method = service.method.add(name=self._next())
            self._expect("(")
            method.input_type = f".{self.file.package}.{self._next()}"
            for word in (")", "returns", "("):
                self._expect(word)
            word = self._next()
            if word == "stream":
                method.server_streaming = True
                word = self._next()
            method.output_type = f".{self.file.package}.{word}"
            self._expect(")")
            self._expect(";")

    def _next(self) -> str:
        self._at += 1
        return str(self._tokens[self._at - 1])

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise ValueError(f"{self.file.name}: {wanted!r} expected, {found!r} found")


def described(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of one of our .proto files."""
    text = files("tidelock.lockservice").joinpath("protos", name).read_text(encoding="utf-8")
    return _Reader(name, text).read()


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(duration_pb2.DESCRIPTOR.serialized_pb)
    for name in ("dapr_lock.proto", "lockservice.proto"):
        pool.AddSerializedFile(described(name).SerializeToString())
    return pool


@cache
def message(name: str) -> Any:
    """Return the class of a message by its full name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def method(service: str, name: str) -> Method:
    """Return a method of a service by their names."""
    found = _pool().FindServiceByName(service).methods_by_name[name]
    return Method(
        f"/{service}/{name}",
        message_factory.GetMessageClass(found.input_type),
        message_factory.GetMessageClass(found.output_type),
        bool(found.server_streaming),
    )


def methods(service: str) -> list[Method]:
    """Return all methods of a service."""
    names = _pool().FindServiceByName(service).methods_by_name
    return [method(service, name) for name in names]
