"""Spark's catalog as the place where tables have names: which are ours, and where they lie.

A table of ours is an entry of Spark's own catalog, in memory or in a Hive metastore, with the
provider `tidelock` and a location. The entry gives a name and the options of writes; what the table
is, its columns too, the table itself says. So two sessions with two catalogs can share a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidelock.base.errors import InvalidInput, NotFound
from tidelock.pipeline.datasource.options import FORMAT
from tidelock.pipeline.sql.text import nearest, quoted

PROVIDERS: Final = (FORMAT, "hudi")
"""Names of the format in CREATE TABLE ... USING, and before a path in FROM."""

MANAGED: Final = "tidelock.managed"
"""The property of tables whose files go when they are dropped."""

_SPARK_CATALOG: Final = "spark_catalog"
_OWN: Final = ("path", "location", "external", "owner", "provider", "is_managed_location")


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of ours. `parts` is empty for one that was named by its path."""

    uri: str
    parts: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name as messages show it."""
        return ".".join(self.parts) or self.uri

    @property
    def is_managed(self) -> bool:
        """Tell whether dropping the table deletes its files."""
        return self.properties.get(MANAGED) == "true"


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a session's catalog knows of our tables."""

    spark: SparkSession

    def find(self, parts: Sequence[str]) -> Entry | None:
        """Return the table of ours that has this name, or is at this path; None for any other."""
        if len(parts) == 1 and _is_path(parts[0]):
            return Entry(parts[0])
        if len(parts) == 2 and parts[0].lower() in PROVIDERS and _is_path(parts[1]):
            return Entry(parts[1])
        names = self._own_names(parts)
        if names is None or (len(parts) == 1 and self._is_view(parts[0])):
            return None
        try:
            known = self._sessions.getTableMetadata(self._identifier(names))
        except (Py4JError, PySparkException):
            return None
        provider = known.provider()
        if not provider.isDefined() or provider.get().lower() not in PROVIDERS:
            return None
        place = known.storage().locationUri()
        if not place.isDefined():
            return None
        return Entry(_plain_uri(place.get().toString()), tuple(parts), _strings(known))

    def required(self, parts: Sequence[str]) -> Entry:
        """Return the table of this name. Raises: `NotFound` with the nearest names."""
        found = self.find(parts)
        if found is None:
            name = ".".join(parts)
            raise NotFound(f"there is no tidelock table {name}", hint=nearest(name, self.names()))
        return found

    def is_taken(self, parts: Sequence[str]) -> bool:
        """Tell whether the name is that of a table or view of any kind."""
        return bool(self.spark.catalog.tableExists(".".join(quoted(part) for part in parts)))

    def names(self) -> list[str]:
        """Return the names of all tables and views of the current database."""
        try:
            return [table.name for table in self.spark.catalog.listTables()]
        except (Py4JError, PySparkException):
            return []

    def columns(self, parts: Sequence[str]) -> list[str]:
        """Return the columns of a table or view, as the catalog knows them; none if it does not."""
        name = ".".join(quoted(part) for part in parts)
        try:
            return [column.name for column in self.spark.catalog.listColumns(name)]
        except (Py4JError, PySparkException):
            return []

    def place_for(self, parts: Sequence[str]) -> str:
        """Return where Spark would put a table of this name: in its database's folder."""
        names = self._own_names(parts)
        if names is None:
            raise InvalidInput(
                f"{'.'.join(parts)}: tables are named in Spark's own catalog, {_SPARK_CATALOG}",
                hint="leave the name of the other catalog out",
            )
        place = self._sessions.defaultTablePath(self._identifier(names))
        return _plain_uri(str(place.toString()))

    def register(
        self, parts: Sequence[str], uri: str, schema: StructType, properties: Mapping[str, str]
    ) -> None:
        """Enter a table under a name. Raises: `InvalidInput` if Spark refuses it."""
        name = ".".join(quoted(part) for part in parts)
        kept = {key: value for key, value in properties.items() if key not in _OWN}
        try:
            self.spark.catalog.createTable(
                name, path=uri, source=FORMAT, schema=schema, **dict(kept)
            )
        except (AnalysisException, Py4JJavaError) as error:
            first = str(error).splitlines()[0]
            raise InvalidInput(f"{'.'.join(parts)} cannot be registered: {first}") from error

    def forget(self, parts: Sequence[str]) -> None:
        """Take a name out of the catalog. The entry has a location, so Spark deletes no file."""
        names = self._own_names(parts)
        assert names is not None
        self._sessions.dropTable(self._identifier(names), True, False)  # noqa: FBT003 - Java's

    @property
    def _sessions(self) -> Any:
        # The public catalog does not tell a table's provider and properties.
        return self.spark._jsparkSession.sessionState().catalog()  # noqa: SLF001

    def _own_names(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        """Return database and name, or the name alone; None for a name in another catalog."""
        if len(parts) == 3:
            return tuple(parts[1:]) if parts[0].lower() == _SPARK_CATALOG else None
        if len(parts) > 2 or self.spark.catalog.currentCatalog() != _SPARK_CATALOG:
            return None
        return tuple(parts)

    def _identifier(self, names: Sequence[str]) -> Any:
        text = ".".join(quoted(name) for name in names)
        parser = self.spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        return parser.parseTableIdentifier(text)

    def _is_view(self, name: str) -> bool:
        return bool(self._sessions.getTempView(name).isDefined())


def _is_path(name: str) -> bool:
    return "/" in name


def _plain_uri(uri: str) -> str:
    """Return a location as our stores take it: Hadoop writes file:/x for file:///x."""
    if uri.startswith("file:/") and not uri.startswith("file://"):
        return uri.removeprefix("file:")
    return uri


def _strings(known: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in (known.properties(), known.storage().properties()):
        pairs = source.iterator()
        while pairs.hasNext():
            pair = pairs.next()
            found[str(pair._1())] = str(pair._2())  # noqa: SLF001 - Scala's name for it
    return {
        key: value
        for key, value in found.items()
        if key not in _OWN and not key.startswith("option.")
    }
