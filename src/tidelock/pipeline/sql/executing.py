"""Statements, carried out: those on tables of ours here, all others by Spark as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from tidelock.base.errors import Unsupported
from tidelock.operation.options import SCHEMA_EVOLUTION
from tidelock.pipeline.sql import inserting
from tidelock.pipeline.sql.altering import alter, truncate, unset, unset_names
from tidelock.pipeline.sql.catalog import Catalog
from tidelock.pipeline.sql.changing import delete, update
from tidelock.pipeline.sql.defining import create, drop, is_ours
from tidelock.pipeline.sql.describing import describe, show, words_after
from tidelock.pipeline.sql.failing import explained
from tidelock.pipeline.sql.merging import merge
from tidelock.pipeline.sql.parameters import filled
from tidelock.pipeline.sql.procedures.calling import call
from tidelock.pipeline.sql.reading import Sources
from tidelock.pipeline.sql.references import name_parts
from tidelock.pipeline.sql.result import frame_of_rows
from tidelock.pipeline.sql.statement import Statement, read
from tidelock.pipeline.sql.target import Target
from tidelock.pipeline.sql.text import Span
from tidelock.table.schema.evolution import Evolution

Plain = Callable[..., DataFrame]
"""How Spark itself carries out a statement."""

Arguments = Mapping[str, Any] | Sequence[Any] | None
"""The values of a statement's parameters: `:name` or `?`."""


def carry_out(
    spark: SparkSession, text: str, plain: Plain, *, args: Arguments = None, strict: bool = True
) -> DataFrame:
    """Carry out one statement and return its rows; queries run when their rows are asked for.

    With `strict` a statement that cannot be read is refused here, with its place; otherwise it is
    Spark's to refuse. Raises: `InvalidInput`, `Unsupported`, and what reading and writing raise.
    """
    statement, catalog = read(text), Catalog(spark)
    if statement.error is not None and strict and not _spark_reads(spark, text):
        raise statement.error
    work = _Work(spark, statement, catalog, plain, args)
    if not strict:
        return work.done()
    with explained(statement, catalog):
        return work.done()


@dataclass(frozen=True, slots=True)
class _Work:
    spark: SparkSession
    statement: Statement
    catalog: Catalog
    plain: Plain
    args: Arguments

    def done(self) -> DataFrame:
        """Carry the statement out, here or by Spark."""
        found = None
        if self.statement.keyword == "CALL":
            found = call(self.spark, self.catalog, self.statement)
        elif self.statement.keyword == "SHOW":
            found = show(self.spark, self.catalog, self.statement)
        elif self.statement.tree is not None:
            with explained(self.statement, self.catalog):
                found = self._on_ours()
            if found is None:
                return self._reading_ours()
        else:
            _refuse_opaque(self.statement, self.catalog)
        return self._by_spark(self.statement.text) if found is None else found

    def _by_spark(self, text: str) -> DataFrame:
        return self.plain(text) if self.args is None else self.plain(text, self.args)

    def _on_ours(self) -> DataFrame | None:
        """Carry out a statement that makes or changes a table of ours; None for any other."""
        spark, catalog, tree = self.spark, self.catalog, self.statement.tree
        match tree:
            case exp.Create() if is_ours(tree):
                return create(spark, filled(self.statement, self.args), catalog, tree)
            case exp.Drop() if tree.kind == "TABLE":
                return self._dropped(tree)
            case exp.Describe() if isinstance(tree.this, exp.Table) and _is_table(tree):
                entry = catalog.find(name_parts(tree.this))
                return None if entry is None else describe(spark, entry, tree)
            case exp.Update() | exp.Delete() | exp.Merge() | exp.Alter():
                node = tree.this
            case exp.TruncateTable():
                node = tree.expressions[0]
            case exp.Insert():
                node = inserting.target_node(tree)
            case exp.Command() if (found := unset_names(self.statement)) is not None:
                node = found[0]
            case exp.Refresh() if isinstance(tree.this, exp.Table):
                # Every statement looks at the table anew, so there is nothing to refresh.
                known = catalog.find(name_parts(tree.this))
                return None if known is None else frame_of_rows(spark, [], "result string")
            case _:
                return None
        if not isinstance(node, exp.Table) or catalog.find(name_parts(node)) is None:
            return None
        return self._changed(node)

    def _changed(self, node: exp.Table) -> DataFrame:
        statement = filled(self.statement, self.args)
        extra: dict[str, object] | None = None
        tree = statement.tree
        if isinstance(tree, exp.Alter):
            # The setting is about rows that happen not to fit; a statement says what it changes.
            extra = {SCHEMA_EVOLUTION.key: Evolution.WIDEN.value}
        target = Target.open(self.spark, statement, self.catalog, node, extra)
        try:
            match tree:
                case exp.Update():
                    return update(target, tree)
                case exp.Delete():
                    return delete(target, tree)
                case exp.Merge():
                    return merge(target, tree)
                case exp.Insert():
                    return inserting.insert(target, tree)
                case exp.Alter():
                    return alter(target, tree)
                case exp.TruncateTable():
                    return truncate(target, tree)
                case exp.Command() if (found := unset_names(statement)) is not None:
                    return unset(target, found[1], lenient=found[2])
            raise Unsupported(f"{statement.keyword} is not supported on {target.entry.name}")
        finally:
            target.close()

    def _dropped(self, tree: exp.Drop) -> DataFrame | None:
        node = tree.this if isinstance(tree.this, exp.Table) else tree.args["tables"][0]
        entry = self.catalog.find(name_parts(node))
        if entry is None or not entry.parts:
            return None
        return drop(self.spark, entry, purge=bool(tree.args.get("purge")))

    def _reading_ours(self) -> DataFrame:
        """Carry out a query, or a statement of Spark's whose query reads tables of ours."""
        statement, tree = self.statement, self.statement.tree
        with Sources(self.spark, self.catalog) as sources:
            ours = sources.ours(statement)
            if not ours:
                _refuse_opaque(statement, self.catalog)
                return self._by_spark(statement.text)
            with explained(statement, self.catalog):
                match tree:
                    case exp.Create() if tree.kind == "VIEW":
                        return self._view(tree, sources)
                    case exp.Query() | exp.Insert() | exp.Create() | exp.Merge():
                        return self._by_spark(sources.text(statement))
                    case exp.Update() | exp.Delete():
                        return self._by_spark(sources.text(statement))
        raise Unsupported(f"{statement.keyword} is not supported with the table {ours[0].name}")

    def _view(self, tree: exp.Create, sources: Sources) -> DataFrame:
        """Make a temporary view: it shows our tables as they were when it was made."""
        properties, name = tree.args.get("properties"), tree.this.name
        if properties is None or properties.find(exp.TemporaryProperty) is None:
            raise Unsupported(
                f"the view {name} would be kept, and it reads a table of ours",
                hint="CREATE TEMPORARY VIEW",
            )
        text = self.statement.text
        start = next(t.end + 1 for t in self.statement.tokens if t.text.upper() == "AS")
        frame = self._by_spark(sources.text(self.statement, Span(start, len(text))))
        if tree.args.get("replace"):
            frame.createOrReplaceTempView(name)
        else:
            frame.createTempView(name)
        return frame_of_rows(self.spark, [], "result string")


def _refuse_opaque(statement: Statement, catalog: Catalog) -> None:
    """Refuse a statement that only Spark can read, and that names a table of ours."""
    if isinstance(statement.tree, exp.Query) or statement.keyword in ("SET", "RESET", "USE", "ADD"):
        return
    try:
        words = words_after(statement)
    except ValueError:
        return
    for index, word in enumerate(words):
        parts = [word.text]
        if len(words) > index + 2 and words[index + 1].text == ".":
            parts.append(words[index + 2].text)
        if not word.text or not word.text[0].isalpha():
            continue
        entry = catalog.find(parts)
        if entry is not None:
            raise Unsupported(
                f"{statement.keyword} is not supported on the table {entry.name}",
                hint="see docs/sql.md for what is",
            )


def _is_table(tree: exp.Describe) -> bool:
    return str(tree.args.get("kind") or "TABLE").upper() == "TABLE"


def _spark_reads(spark: SparkSession, text: str) -> bool:
    """Tell whether Spark's own grammar has a statement that sqlglot does not read."""
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001
    except (Py4JError, PySparkException):
        return False
    return True
