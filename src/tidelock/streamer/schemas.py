"""Schema providers: a file, a schema registry, or the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from tidelock.core.config import ConfigKey
from tidelock.core.errors import ConfigInvalid, DataCorrupt, NotFound, StoreUnreachable, Unavailable
from tidelock.core.limits import REQUEST_TIMEOUT_MS
from tidelock.core.system import SystemClock
from tidelock.hudi.schema import arrow_schema, parse_schema
from tidelock.lock.providers.json_api import JsonService
from tidelock.streamer import config as c


@dataclass(frozen=True)
class SchemaProvider:
    """Provides Avro schemas. This one provides none: they are inferred from the rows."""

    settings: Mapping[str, object]

    def source(self) -> str | None:
        """Return the schema of the records; None to infer it."""
        return None

    def target(self) -> str | None:
        """Return the schema of a table to create; None to use that of the rows."""
        return None


class FileSchemas(SchemaProvider):
    """Reads schemas from files."""

    def source(self) -> str | None:
        return _read(c.SOURCE_SCHEMA.required(self.settings), c.SOURCE_SCHEMA)

    def target(self) -> str | None:
        path = c.TARGET_SCHEMA.value(self.settings)
        return None if path is None else _read(path, c.TARGET_SCHEMA)


class RegistrySchemas(SchemaProvider):
    """Fetches the latest schemas from a schema registry, each time, to detect new columns."""

    def source(self) -> str | None:
        return SchemaRegistry.of(c.REGISTRY_URL.required(self.settings)).schema_at_url()

    def target(self) -> str | None:
        url = c.REGISTRY_TARGET_URL.value(self.settings)
        return None if url is None else SchemaRegistry.of(url).schema_at_url()


@dataclass(frozen=True)
class SchemaRegistry:
    """A client of Confluent's schema registry API: `GET /schemas/ids/7`, `GET /subjects/...`."""

    origin: str
    path: str = ""
    prefix: str = ""

    @classmethod
    def of(cls, url: str) -> SchemaRegistry:
        """Return the registry for the URL of one of its schemas. Raises: `ConfigInvalid`."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigInvalid(
                f"schema registry: expected the URL of a schema, got {url!r}",
                hint="for example http://host:8081/subjects/orders-value/versions/latest",
            )
        prefix = parts.path.partition("/subjects/")[0]
        return cls(f"{parts.scheme}://{parts.netloc}", parts.path, prefix.rstrip("/"))

    def schema_at_url(self) -> str:
        """Return the schema at the URL."""
        return self._schema(self.path)

    def by_id(self, number: int) -> str:
        """Return the schema with an id."""
        return self._schema(f"{self.prefix}/schemas/ids/{number}")

    @cached_property
    def _service(self) -> JsonService:
        return JsonService(self.origin, clock=SystemClock(), timeout_ms=REQUEST_TIMEOUT_MS)

    def _schema(self, path: str) -> str:
        where = f"the schema registry {self.origin}"
        try:
            answer = self._service.query("GET", path)
        except StoreUnreachable as error:
            raise Unavailable(
                f"cannot reach {where}: {error.message}",
                hint="the streamer continues when the registry responds again",
            ) from error
        if answer.status == 404:
            raise NotFound(f"{where} has no {path}", hint="correct the subject in the URL")
        if not answer.ok:
            raise Unavailable(f"{where}: status {answer.status} for {path}")
        schema: Any = answer.body.get("schema")
        if not isinstance(schema, str):
            raise DataCorrupt(f"{where}: the response for {path} has no schema")
        if answer.body.get("schemaType", "AVRO") != "AVRO":
            raise ConfigInvalid(
                f"{where}{path}: expected an AVRO schema, got {answer.body['schemaType']}",
                hint="register an Avro schema",
            )
        return schema


def arrow_of(avro: str, *, where: str) -> pa.Schema:
    """Return the columns of an Avro schema, all nullable."""
    found = arrow_schema(parse_schema(avro, where=where), where=where)
    return pa.schema([field.with_nullable(nullable=True) for field in found])


def schema_provider(named: str | None, settings: Mapping[str, object]) -> SchemaProvider:
    """Return the provider for Hudi's class name or its last part. Raises: `ConfigInvalid`."""
    short = (named or "").rpartition(".")[2].lower()
    match short:
        case "filebasedschemaprovider":
            return FileSchemas(settings)
        case "schemaregistryprovider":
            return RegistrySchemas(settings)
        case "rowbasedschemaprovider" | "nullschemaprovider":
            return SchemaProvider(settings)
        case "":
            named_file = c.SOURCE_SCHEMA.value(settings)
            return FileSchemas(settings) if named_file else SchemaProvider(settings)
        case _:
            raise ConfigInvalid(
                f"unknown schema provider class {named!r}",
                hint="use FilebasedSchemaProvider, SchemaRegistryProvider or"
                " RowBasedSchemaProvider",
            )


def _read(uri: str, key: ConfigKey[str]) -> str:
    path = Path(uri.removeprefix("file://"))
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(
            f"cannot read the schema file {path}: {error.strerror or error}",
            hint=f"correct {key.key}",
        ) from error
