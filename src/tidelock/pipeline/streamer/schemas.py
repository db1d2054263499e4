"""What records are said to be: by a file, by a schema registry, or by the records themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from tidelock.base.clock import SystemClock
from tidelock.base.config import ConfigKey
from tidelock.base.errors import (
    ConfigInvalid,
    DataCorrupt,
    NotFound,
    StoreUnreachable,
    Unavailable,
)
from tidelock.base.limits import REQUEST_TIMEOUT_MS
from tidelock.lockproviders.jsonservice import JsonService
from tidelock.pipeline.streamer import config as c
from tidelock.table.schema.avro import arrow_schema, parse_schema


class SchemaProvider(Protocol):
    """Says which columns records have, and a table that is created for them."""

    def source(self) -> str | None:
        """Return the Avro schema of the records; None to take them as they are."""
        ...

    def target(self) -> str | None:
        """Return the Avro schema of a table to create; None to take that of the rows."""
        ...


class RowSchemas:
    """Rows say themselves what they are."""

    def source(self) -> str | None:
        """Nothing is known before."""
        return None

    def target(self) -> str | None:
        """Likewise."""
        return None


@dataclass(frozen=True)
class FileSchemas:
    """Avro schemas in files."""

    settings: Mapping[str, object]

    def source(self) -> str | None:
        """Return the schema in `hoodie.streamer.schemaprovider.source.schema.file`."""
        return _read(c.SOURCE_SCHEMA.required(self.settings), c.SOURCE_SCHEMA)

    def target(self) -> str | None:
        """Return the schema in the file for targets, if there is one."""
        path = c.TARGET_SCHEMA.value(self.settings)
        return None if path is None else _read(path, c.TARGET_SCHEMA)


@dataclass(frozen=True)
class RegistrySchemas:
    """The latest schemas of a schema registry."""

    settings: Mapping[str, object]

    def source(self) -> str | None:
        """Ask the registry each time: it knows of new columns first."""
        return Registry.of(c.REGISTRY_URL.required(self.settings)).at_url()

    def target(self) -> str | None:
        """Ask for the schema of the table, if it has a URL of its own."""
        url = c.REGISTRY_TARGET_URL.value(self.settings)
        return None if url is None else Registry.of(url).at_url()


@dataclass(frozen=True)
class Registry:
    """A schema registry as Confluent's answers: `GET /schemas/ids/7`, `GET /subjects/...`."""

    origin: str
    path: str = ""
    prefix: str = ""

    @classmethod
    def of(cls, url: str) -> Registry:
        """Return the registry of the URL of one of its schemas. Raises: `ConfigInvalid`."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigInvalid(
                f"{url!r} is no URL of a schema",
                hint="such as http://host:8081/subjects/orders-value/versions/latest",
            )
        prefix = parts.path.partition("/subjects/")[0]
        return cls(f"{parts.scheme}://{parts.netloc}", parts.path, prefix.rstrip("/"))

    def at_url(self) -> str:
        """Return the schema that the URL names."""
        return self._schema(self.path)

    def by_id(self, number: int) -> str:
        """Return the schema of a number that records carry."""
        return self._schema(f"{self.prefix}/schemas/ids/{number}")

    @cached_property
    def _service(self) -> JsonService:
        return JsonService(self.origin, clock=SystemClock(), timeout_ms=REQUEST_TIMEOUT_MS)

    def _schema(self, path: str) -> str:
        where = f"the schema registry {self.origin}"
        try:
            said = self._service.ask("GET", path)
        except StoreUnreachable as error:
            raise Unavailable(
                f"{where} cannot be reached: {error.message}",
                hint="the streamer goes on from where it was once the registry answers",
            ) from error
        if said.status == 404:
            raise NotFound(f"{where} has no {path}", hint="correct the subject in the URL")
        if not said.ok:
            raise Unavailable(f"{where} answered {said.status} to {path}")
        schema: Any = said.body.get("schema")
        if not isinstance(schema, str):
            raise DataCorrupt(f"{where} answered {path} without a schema")
        if said.body.get("schemaType", "AVRO") != "AVRO":
            raise ConfigInvalid(
                f"{where}{path} is of the type {said.body['schemaType']}", hint="use Avro schemas"
            )
        return schema


def arrow_of(avro: str, *, where: str) -> pa.Schema:
    """Return the columns of an Avro schema, each of which may be null."""
    found = arrow_schema(parse_schema(avro, where=where), where=where)
    return pa.schema([field.with_nullable(nullable=True) for field in found])


def schema_provider(named: str | None, settings: Mapping[str, object]) -> SchemaProvider:
    """Return the provider of a class name, Hudi's or its last part. Raises: `ConfigInvalid`."""
    short = (named or "").rpartition(".")[2].lower()
    match short:
        case "filebasedschemaprovider":
            return FileSchemas(settings)
        case "schemaregistryprovider":
            return RegistrySchemas(settings)
        case "rowbasedschemaprovider" | "nullschemaprovider":
            return RowSchemas()
        case "":
            return FileSchemas(settings) if c.SOURCE_SCHEMA.value(settings) else RowSchemas()
        case _:
            raise ConfigInvalid(
                f"the schema provider {named} is not known",
                hint="FilebasedSchemaProvider, SchemaRegistryProvider or RowBasedSchemaProvider",
            )


def _read(place: str, key: ConfigKey[str]) -> str:
    path = Path(place.removeprefix("file://"))
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(
            f"the schema {path} cannot be read: {error.strerror or error}",
            hint=f"correct {key.key}",
        ) from error
