"""What a procedure is: its arguments, its columns, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from tidelock.pipeline.sql.catalog import Catalog, Entry
from tidelock.pipeline.sql.reading import write_options
from tidelock.tableservice.table import Table

Row = tuple[Any, ...]
MISSING: Final = object()
"""The default of an argument that must be given."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a procedure; Hudi's name for it."""

    name: str
    kind: type
    default: object = MISSING

    def shown(self) -> str:
        """Return it as `help` shows it."""
        word = {str: "string", int: "int", bool: "boolean"}[self.kind]
        if self.default is MISSING:
            return f"{self.name} {word}"
        return f"{self.name} {word} = {'null' if self.default is None else self.default}"


@dataclass(frozen=True, slots=True)
class Call:
    """A procedure that is called: what it was given, and where it runs."""

    spark: SparkSession
    catalog: Catalog
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return an argument's value."""
        return self.values[name]

    @property
    def entry(self) -> Entry:
        """The table that it is about. Raises: `NotFound`."""
        parts = [part.strip("`") for part in str(self["table"]).split(".")]
        if "/" in str(self["table"]):
            parts = [str(self["table"])]
        return self.catalog.required(parts)

    @property
    def options(self) -> dict[str, object]:
        """The options of the table's writes, and those that the call itself gives."""
        own = write_options(self.spark, self.entry)
        pairs = str(self.values.get("options") or "")
        for pair in filter(None, (each.strip() for each in pairs.split(","))):
            key, _, value = pair.partition("=")
            own[key.strip()] = value.strip()
        return own

    def opened(self, extra: Mapping[str, object] | None = None) -> Table:
        """Open the table. Raises: what `Table.open` raises."""
        given = {key: value for key, value in (extra or {}).items() if value is not None}
        return Table.open(self.entry.uri, options={**self.options, **given})


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure. `columns` are those of its rows, as Spark declares them."""

    name: str
    says: str
    arguments: Sequence[Argument]
    columns: str
    run: Callable[[Call], Iterable[Row]]


TABLE: Final = Argument("table", str)
OPTIONS: Final = Argument("options", str, None)


def limit(default: int) -> Argument:
    """Return the argument that says how many rows are wanted."""
    return Argument("limit", int, default)
