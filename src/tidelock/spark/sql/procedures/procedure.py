"""The definition of a procedure: arguments, result columns and function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from tidelock.spark.sql.catalog import Catalog, CatalogEntry
from tidelock.spark.sql.sources import write_options
from tidelock.table import Table

Row = tuple[Any, ...]
MISSING: Final = object()
"""The default of a required argument."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a procedure, with Hudi's name."""

    name: str
    type: type
    default: object = MISSING

    def signature(self) -> str:
        """Return the declaration that `help` shows."""
        type_name = {str: "string", int: "int", bool: "boolean"}[self.type]
        if self.default is MISSING:
            return f"{self.name} {type_name}"
        return f"{self.name} {type_name} = {'null' if self.default is None else self.default}"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a procedure: its argument values and its session."""

    spark: SparkSession
    catalog: Catalog
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def entry(self) -> CatalogEntry:
        """The table of the call. Raises: `NotFound`."""
        parts = [part.strip("`") for part in str(self["table"]).split(".")]
        if "/" in str(self["table"]):
            parts = [str(self["table"])]
        return self.catalog.required(parts)

    @property
    def options(self) -> dict[str, object]:
        """The options of the table, overridden by the `options` argument."""
        options = write_options(self.spark, self.entry)
        pairs = str(self.values.get("options") or "")
        for pair in filter(None, (each.strip() for each in pairs.split(","))):
            key, _, value = pair.partition("=")
            options[key.strip()] = value.strip()
        return options

    def open_table(self, extra: Mapping[str, object] | None = None) -> Table:
        """Open the table. Raises: the errors of `Table.open`."""
        overrides = {key: value for key, value in (extra or {}).items() if value is not None}
        return Table.open(self.entry.uri, options={**self.options, **overrides})


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure; `columns` declares its result columns, as in `name string, n bigint`."""

    name: str
    description: str
    arguments: Sequence[Argument]
    columns: str
    run: Callable[[Call], Iterable[Row]]


def procedure(
    description: str, columns: str, *arguments: Argument
) -> Callable[[Callable[[Call], Iterable[Row]]], Procedure]:
    """Return a decorator that makes a function a procedure of the same name."""
    return lambda run: Procedure(run.__name__, description, arguments, columns, run)


TABLE: Final = Argument("table", str)
OPTIONS: Final = Argument("options", str, None)


def limit(default: int) -> Argument:
    """Return the argument that limits the number of rows."""
    return Argument("limit", int, default)
