"""Tidelock tables in Spark's session catalog.

A Tidelock table is an entry of Spark's own catalog (in memory or in a Hive metastore) with the
provider `tidelock` and a location. The entry holds the name and the write options; the columns and
all other properties come from the table itself. So sessions with different catalogs can share a
table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidelock.core.errors import InvalidInput, NotFound, TidelockError
from tidelock.execution.spark.types import spark_schema
from tidelock.hudi.properties import KEY as PROPERTIES
from tidelock.spark.options import FORMAT
from tidelock.spark.sql.statement import quoted, suggestion
from tidelock.table import Table

PROVIDERS: Final = (FORMAT, "hudi")
"""Names of the format in `CREATE TABLE ... USING`, and before a path in `FROM`."""

MANAGED: Final = "tidelock.managed"
"""Property of managed tables, whose files are deleted by `DROP TABLE`."""

_SPARK_CATALOG: Final = "spark_catalog"
_RESERVED: Final = ("path", "location", "external", "owner", "provider", "is_managed_location")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A Tidelock table. `parts` is empty for a table that is referenced by its path."""

    uri: str
    parts: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in messages."""
        return ".".join(self.parts) or self.uri

    @property
    def is_managed(self) -> bool:
        """Return whether `DROP TABLE` deletes the files."""
        return self.properties.get(MANAGED) == "true"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The Tidelock tables of a session's catalog."""

    spark: SparkSession

    def find(self, parts: Sequence[str]) -> CatalogEntry | None:
        """Return the Tidelock table of this name or path; None for any other table."""
        if len(parts) == 1 and _is_path(parts[0]):
            return CatalogEntry(parts[0])
        if len(parts) == 2 and parts[0].lower() in PROVIDERS and _is_path(parts[1]):
            return CatalogEntry(parts[1])
        names = self._local_name(parts)
        if names is None:
            return None
        if len(parts) == 1 and self._session_catalog.getTempView(parts[0]).isDefined():
            return None
        try:
            metadata = self._session_catalog.getTableMetadata(self._identifier(names))
        except (Py4JError, PySparkException):
            return None
        provider = metadata.provider()
        if not provider.isDefined() or provider.get().lower() not in PROVIDERS:
            return None
        location = metadata.storage().locationUri()
        if not location.isDefined():
            return None
        return CatalogEntry(
            _plain_uri(location.get().toString()), tuple(parts), _properties(metadata)
        )

    def required(self, parts: Sequence[str]) -> CatalogEntry:
        """Return the table of this name. Raises: `NotFound` with the nearest names."""
        found = self.find(parts)
        if found is None:
            name = ".".join(parts)
            raise NotFound(f"tidelock table {name} not found", hint=suggestion(name, self.names()))
        return found

    def exists(self, parts: Sequence[str]) -> bool:
        """Return whether a table or view of any kind has this name."""
        return bool(self.spark.catalog.tableExists(".".join(quoted(part) for part in parts)))

    def names(self) -> list[str]:
        """Return the names of all tables and views of the current database."""
        try:
            return [table.name for table in self.spark.catalog.listTables()]
        except (Py4JError, PySparkException):
            return []

    def columns(self, parts: Sequence[str]) -> list[str]:
        """Return the columns of a table or view in the catalog; empty if it is not there."""
        name = ".".join(quoted(part) for part in parts)
        try:
            return [column.name for column in self.spark.catalog.listColumns(name)]
        except (Py4JError, PySparkException):
            return []

    def default_location(self, parts: Sequence[str]) -> str:
        """Return the location that Spark gives a table of this name, in its database's folder."""
        names = self._local_name(parts)
        if names is None:
            raise InvalidInput(
                f"{'.'.join(parts)}: expected a name in {_SPARK_CATALOG}",
                hint="remove the name of the other catalog",
            )
        location = self._session_catalog.defaultTablePath(self._identifier(names))
        return _plain_uri(str(location.toString()))

    def register(
        self, parts: Sequence[str], uri: str, schema: StructType, properties: Mapping[str, str]
    ) -> None:
        """Register a table under a name. Raises: `InvalidInput` if Spark rejects it."""
        name = ".".join(quoted(part) for part in parts)
        stored = {key: value for key, value in properties.items() if key not in _RESERVED}
        try:
            self.spark.catalog.createTable(
                name, path=uri, source=FORMAT, schema=schema, **dict(stored)
            )
        except (AnalysisException, Py4JJavaError) as error:
            first = str(error).splitlines()[0]
            raise InvalidInput(f"{'.'.join(parts)} cannot be registered: {first}") from error

    def unregister(self, parts: Sequence[str]) -> None:
        """Remove a name from the catalog. The entry has a location, so Spark deletes no files."""
        names = self._local_name(parts)
        assert names is not None
        self._session_catalog.dropTable(self._identifier(names), True, False)  # noqa: FBT003 - Java's

    @property
    def _session_catalog(self) -> Any:
        # The public catalog API does not expose a table's provider and properties.
        return self.spark._jsparkSession.sessionState().catalog()  # noqa: SLF001

    def _local_name(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        """Return the database and name, or only the name; None for a name in another catalog."""
        if len(parts) == 3:
            return tuple(parts[1:]) if parts[0].lower() == _SPARK_CATALOG else None
        if len(parts) > 2 or self.spark.catalog.currentCatalog() != _SPARK_CATALOG:
            return None
        return tuple(parts)

    def _identifier(self, names: Sequence[str]) -> Any:
        text = ".".join(quoted(name) for name in names)
        parser = self.spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        return parser.parseTableIdentifier(text)


def _is_path(name: str) -> bool:
    return "/" in name


def _plain_uri(uri: str) -> str:
    """Return a location in the form our stores accept: Hadoop writes file:/x for file:///x."""
    if uri.startswith("file:/") and not uri.startswith("file://"):
        return uri.removeprefix("file:")
    return uri


def _properties(metadata: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in (metadata.properties(), metadata.storage().properties()):
        pairs = source.iterator()
        while pairs.hasNext():
            pair = pairs.next()
            found[str(pair._1())] = str(pair._2())  # noqa: SLF001 - a Scala tuple
    return {
        key: value
        for key, value in found.items()
        if key not in _RESERVED and not key.startswith("option.")
    }


logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"\w+", re.ASCII)
_DATABASE: Final = ".db"


def register_tables(spark: SparkSession, folder: Path) -> list[str]:
    """Register every table in a folder that is not registered yet; return the names.

    A folder `sales.db` is the database `sales`, as in Spark's warehouse layout. A table that cannot
    be opened is skipped with a warning.
    """
    catalog, registered = Catalog(spark), []
    for parts, location in _tables(spark, folder):
        if catalog.exists(parts):
            continue
        try:
            with Table.open(str(location)) as table:
                schema = spark_schema(table.schema)
            catalog.register(parts, str(location), schema, {MANAGED: "true"})
        except TidelockError as error:
            logger.warning("skipping %s: %s", location, error)
            continue
        registered.append(".".join(parts))
    return registered


def _tables(spark: SparkSession, folder: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    for location in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (location / PROPERTIES).is_file() and _NAME.fullmatch(location.name):
            yield (location.name,), location
        elif location.is_dir() and location.suffix == _DATABASE and _NAME.fullmatch(location.stem):
            inner = [each for each in sorted(location.iterdir()) if (each / PROPERTIES).is_file()]
            if inner:
                spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(location.stem)}")
            yield from (((location.stem, each.name), each) for each in inner)
