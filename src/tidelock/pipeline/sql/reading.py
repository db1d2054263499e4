"""The tables that a statement reads, as Spark's frames: each one as it was when it began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from tidelock.engine.local import Scan
from tidelock.operation.frames import scan_frame
from tidelock.operation.query import changes_scan, readable_schema, snapshot_scan
from tidelock.operation.reads import snapshot_now
from tidelock.pipeline.sql.catalog import MANAGED, Catalog, Entry
from tidelock.pipeline.sql.references import Reference, columns_named, references
from tidelock.pipeline.sql.statement import Statement, read, rendered
from tidelock.pipeline.sql.text import Span, exchanged, quoted
from tidelock.store.uri import open_store
from tidelock.table.snapshot import TableSnapshot

Pinned = Callable[[list[str] | None], DataFrame]
"""Gives some columns (None: all) of a table whose moment somebody else has chosen."""

_NUMBERS: Final = count(1)
_OPTION_HEADS: Final = ("hoodie.", "tidelock.", "fs.")


@dataclass
class Sources:
    """Reads for one statement; views that its text names are there until it is closed.

    Guarantees: a table that the statement names twice shows the same rows both times.
    """

    spark: SparkSession
    catalog: Catalog
    pinned: dict[str, Pinned] = field(default_factory=dict)
    _snapshots: dict[str, TableSnapshot] = field(default_factory=dict)
    _views: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Return the sources."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Forget the views, and give back the stores. Frames that were made stay usable."""
        for name in self._views:
            self.spark.catalog.dropTempView(name)
        for snapshot in self._snapshots.values():
            snapshot.store.close()
        self._views.clear()
        self._snapshots.clear()

    def ours(self, statement: Statement, tree: exp.Expr | None = None) -> list[Reference]:
        """Return the tables of ours among those that a tree reads."""
        found = references(statement, tree)
        return [each for each in found if each.changes or self.catalog.find(each.parts) is not None]

    def text(self, statement: Statement, within: Span | None = None) -> str:
        """Return the statement, or a part of it, with our tables exchanged for views of them."""
        columns = None if statement.tree is None else columns_named(statement.tree)
        edits = []
        for each in self.ours(statement):
            if within is None or each.span in within:
                view = quoted(self.view(self.frame(each, columns)))
                named = each.alias or _is_sampled(each)
                edits.append((each.span, view if named else f"{view} AS {quoted(each.parts[-1])}"))
        return exchanged(statement.text, edits, within)

    def expression(self, statement: Statement, node: exp.Expr) -> str:
        """Return an expression as text, with our tables in its subqueries exchanged for views."""
        copy = node.copy()
        for each in self.ours(statement, copy):
            view = exp.to_table(quoted(self.view(self.frame(each, None))), dialect="spark")
            view.set("alias", exp.TableAlias(this=exp.to_identifier(_called(each), quoted=True)))
            each.node.replace(view)
        return rendered(copy)

    def query(self, statement: Statement, *parts: Span | str | None) -> DataFrame:
        """Return the rows of a query that is in parts of the statement's text."""
        texts = [
            part if isinstance(part, str) else self.text(statement, part) for part in parts if part
        ]
        text = " ".join(texts)
        if statement.args is None or not _has_parameters(text):
            return self.spark.sql(text)
        return self.spark.sql(text, statement.args)

    def view(self, frame: DataFrame) -> str:
        """Return the name of a view of a frame, there until this is closed."""
        name = f"_tidelock_{next(_NUMBERS)}"
        frame.createTempView(name)
        self._views.append(name)
        return name

    def frame(self, reference: Reference, named: frozenset[str] | None) -> DataFrame:
        """Return the rows of a table of ours; `named` are the names that the statement has."""
        entry = self.catalog.required(reference.parts)
        pinned = self.pinned.get(entry.uri)
        if pinned is not None and reference.as_of is None and reference.changes is None:
            return pinned(None)
        options = write_options(self.spark, entry)
        snapshot = self._snapshot(entry, options)
        return scan_frame(self.spark, snapshot, _scan(snapshot, reference, named), options)

    def _snapshot(self, entry: Entry, options: Mapping[str, object]) -> TableSnapshot:
        if entry.uri not in self._snapshots:
            store = open_store(entry.uri, options)
            try:
                self._snapshots[entry.uri] = snapshot_now(store)
            except BaseException:
                store.close()
                raise
        return self._snapshots[entry.uri]


def _has_parameters(text: str) -> bool:
    tree = read(text).tree
    return tree is not None and tree.find(exp.Placeholder) is not None


def write_options(spark: SparkSession, entry: Entry) -> dict[str, object]:
    """Return the options of a table's writes: the session's own win over the table's."""
    session: Mapping[str, Any] = spark.conf.getAll
    every = {**entry.properties, **session}
    return {
        key: value
        for key, value in every.items()
        if key.startswith(_OPTION_HEADS) and key != MANAGED
    }


def _scan(snapshot: TableSnapshot, reference: Reference, named: frozenset[str] | None) -> Scan:
    columns = None
    if named is not None:
        every = readable_schema(snapshot).names
        some = [name for name in every if name.lower() in named]
        columns = some or every[-1:]
    changes = reference.changes
    if changes is not None:
        first = _FIRST if set(changes.since) <= {"0"} else changes.since
        return changes_scan(
            snapshot, first, changes.until, columns=columns, meta_columns=columns is None
        )
    return snapshot_scan(
        snapshot, columns=columns, as_of=reference.as_of, meta_columns=columns is None
    )


_FIRST: Final = "00010101000000000"
"""Hudi's users write 000 for the beginning of the timeline."""


def _is_sampled(reference: Reference) -> bool:
    # The alias would have to stand behind the sample, so such a table keeps no name.
    return isinstance(reference.node.args.get("sample"), exp.TableSample)


def _called(reference: Reference) -> str:
    return reference.alias or reference.parts[-1]
