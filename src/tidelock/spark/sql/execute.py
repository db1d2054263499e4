"""Executes SQL statements: those on Tidelock tables here, all others by Spark, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from tidelock.core.errors import InvalidInput, Unsupported
from tidelock.hudi.schema import Evolution
from tidelock.operations.config import SCHEMA_EVOLUTION
from tidelock.spark.frames import frame_of_rows
from tidelock.spark.sql import insert
from tidelock.spark.sql.catalog import Catalog
from tidelock.spark.sql.ddl import (
    alter,
    create,
    drop,
    is_tidelock_table,
    parse_unset,
    truncate,
    unset_properties,
)
from tidelock.spark.sql.describe import describe, show, tokens_after_keyword
from tidelock.spark.sql.errors import translated_errors
from tidelock.spark.sql.merge import merge
from tidelock.spark.sql.procedures.call import call
from tidelock.spark.sql.sources import Sources, name_parts
from tidelock.spark.sql.statement import Span, Statement, parse, suggestion
from tidelock.spark.sql.target import StatementTarget
from tidelock.spark.sql.update_delete import delete, update

SparkSql = Callable[..., DataFrame]
"""The unpatched `spark.sql`."""

Arguments = Mapping[str, Any] | Sequence[Any] | None
"""Parameter values: `:name` from a mapping, `?` from a sequence."""


def bind_parameters(statement: Statement, args: Arguments) -> Statement:
    """Return the statement with a value in place of each parameter.

    Raises: `InvalidInput` for a parameter without a value, or a value that SQL cannot represent.
    """
    tree = statement.tree
    if tree is None or not tree.find(exp.Placeholder):
        return statement
    values = args if args is not None else {}
    copy = tree.copy()
    number = 0
    for node in list(copy.find_all(exp.Placeholder)):
        key: str | int = node.name
        if node.name in ("", "?"):
            key, number = number, number + 1
        node.replace(_value(values, key))
    # The tree now has the values. Queries go to Spark as text, with `args` passed separately.
    return replace(statement, tree=copy, args=args)


def _value(values: Mapping[str, Any] | Sequence[Any], key: str | int) -> exp.Expr:
    try:
        value = values[key]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        names = [str(each) for each in values] if isinstance(values, Mapping) else []
        raise InvalidInput(
            f"parameter {key!r} has no value", hint=suggestion(str(key), names) or "pass it in args"
        ) from None
    try:
        return exp.convert(value)
    except ValueError:
        raise InvalidInput(
            f"parameter {key!r}: expected a value that SQL can represent, got {value!r}"
        ) from None


def execute(
    spark: SparkSession,
    text: str,
    spark_sql: SparkSql,
    *,
    args: Arguments = None,
    strict: bool = True,
) -> DataFrame:
    """Execute one statement and return its rows; queries are evaluated lazily.

    With `strict`, a statement that cannot be parsed is rejected here, with the position of the
    mistake; otherwise Spark rejects it. Raises: `InvalidInput`, `Unsupported`, and the errors of
    reads and writes.
    """
    statement, catalog = parse(text), Catalog(spark)
    if statement.error is not None and strict and not _spark_parses(spark, text):
        raise statement.error
    execution = _Execution(spark, statement, catalog, spark_sql, args)
    if not strict:
        return execution.run()
    with translated_errors(statement, catalog):
        return execution.run()


_MODIFIERS: Final[Mapping[type, Callable[[StatementTarget, Any], DataFrame]]] = {
    exp.Update: update,
    exp.Delete: delete,
    exp.Merge: merge,
    exp.Insert: insert.insert,
    exp.Alter: alter,
    exp.TruncateTable: truncate,
}
_WITH_QUERIES: Final = (exp.Query, exp.Insert, exp.Create, exp.Merge, exp.Update, exp.Delete)


@dataclass(frozen=True, slots=True)
class _Execution:
    spark: SparkSession
    statement: Statement
    catalog: Catalog
    spark_sql: SparkSql
    args: Arguments

    def run(self) -> DataFrame:
        """Execute the statement, here or by Spark."""
        result = None
        if self.statement.keyword == "CALL":
            result = call(self.spark, self.catalog, self.statement)
        elif self.statement.keyword == "SHOW":
            result = show(self.spark, self.catalog, self.statement)
        elif self.statement.tree is not None:
            with translated_errors(self.statement, self.catalog):
                result = self._on_tidelock_table()
            if result is None:
                return self._query()
        else:
            _reject_unparsed(self.statement, self.catalog)
        return self._run_on_spark(self.statement.text) if result is None else result

    def _run_on_spark(self, text: str) -> DataFrame:
        return self.spark_sql(text) if self.args is None else self.spark_sql(text, self.args)

    def _on_tidelock_table(self) -> DataFrame | None:
        """Execute a statement that creates or changes a Tidelock table; None for any other."""
        spark, catalog, tree = self.spark, self.catalog, self.statement.tree
        match tree:
            case exp.Create() if is_tidelock_table(tree):
                return create(spark, bind_parameters(self.statement, self.args), catalog, tree)
            case exp.Drop() if tree.kind == "TABLE":
                return self._drop(tree)
            case exp.Describe() if isinstance(tree.this, exp.Table):
                if str(tree.args.get("kind") or "TABLE").upper() != "TABLE":
                    return None
                entry = catalog.find(name_parts(tree.this))
                return None if entry is None else describe(spark, entry, tree)
            case exp.Update() | exp.Delete() | exp.Merge() | exp.Alter():
                node = tree.this
            case exp.TruncateTable():
                node = tree.expressions[0]
            case exp.Insert():
                node = insert.target_node(tree)
            case exp.Command() if (unset := parse_unset(self.statement)) is not None:
                node = unset[0]
            case exp.Refresh() if isinstance(tree.this, exp.Table):
                # Every statement reads the latest snapshot, so there is nothing to refresh.
                entry = catalog.find(name_parts(tree.this))
                return None if entry is None else frame_of_rows(spark, [], "result string")
            case _:
                return None
        if not isinstance(node, exp.Table) or catalog.find(name_parts(node)) is None:
            return None
        return self._modify(node)

    def _modify(self, node: exp.Table) -> DataFrame:
        statement = bind_parameters(self.statement, self.args)
        extra: dict[str, object] | None = None
        tree = statement.tree
        if isinstance(tree, exp.Alter):
            # The setting limits implicit schema changes by rows; ALTER TABLE is explicit.
            extra = {SCHEMA_EVOLUTION.key: Evolution.WIDEN.value}
        target = StatementTarget.open(self.spark, statement, self.catalog, node, extra)
        try:
            modify = _MODIFIERS.get(type(tree))
            if modify is not None:
                return modify(target, tree)
            unset = parse_unset(statement)
            if unset is not None:
                return unset_properties(target, unset[1], if_exists=unset[2])
            raise Unsupported(f"{statement.keyword} is not supported on {target.entry.name}")
        finally:
            target.close()

    def _drop(self, tree: exp.Drop) -> DataFrame | None:
        node = tree.this if isinstance(tree.this, exp.Table) else tree.args["tables"][0]
        entry = self.catalog.find(name_parts(node))
        if entry is None or not entry.parts:
            return None
        return drop(self.spark, entry, purge=bool(tree.args.get("purge")))

    def _query(self) -> DataFrame:
        """Execute a query, or a Spark statement whose query reads Tidelock tables."""
        statement, tree = self.statement, self.statement.tree
        with Sources(self.spark, self.catalog) as sources:
            tables = sources.tidelock_tables(statement)
            if not tables:
                _reject_unparsed(statement, self.catalog)
                return self._run_on_spark(statement.text)
            with translated_errors(statement, self.catalog):
                if isinstance(tree, exp.Create) and tree.kind == "VIEW":
                    return self._create_view(tree, sources)
                if isinstance(tree, _WITH_QUERIES):
                    return self._run_on_spark(sources.text(statement))
        raise Unsupported(f"{statement.keyword} is not supported with the table {tables[0].name}")

    def _create_view(self, tree: exp.Create, sources: Sources) -> DataFrame:
        """Create a temporary view; it shows Tidelock tables as of its creation."""
        properties, name = tree.args.get("properties"), tree.this.name
        if properties is None or properties.find(exp.TemporaryProperty) is None:
            raise Unsupported(
                f"view {name}: permanent views on tidelock tables are not supported",
                hint="use CREATE TEMPORARY VIEW",
            )
        text = self.statement.text
        start = next(t.end + 1 for t in self.statement.tokens if t.text.upper() == "AS")
        frame = self._run_on_spark(sources.text(self.statement, Span(start, len(text))))
        if tree.args.get("replace"):
            frame.createOrReplaceTempView(name)
        else:
            frame.createTempView(name)
        return frame_of_rows(self.spark, [], "result string")


def _reject_unparsed(statement: Statement, catalog: Catalog) -> None:
    """Reject a statement that only Spark can parse and that names a Tidelock table."""
    if isinstance(statement.tree, exp.Query) or statement.keyword in ("SET", "RESET", "USE", "ADD"):
        return
    try:
        tokens = tokens_after_keyword(statement)
    except ValueError:
        return
    for index, token in enumerate(tokens):
        parts = [token.text]
        if len(tokens) > index + 2 and tokens[index + 1].text == ".":
            parts.append(tokens[index + 2].text)
        if not token.text or not token.text[0].isalpha():
            continue
        entry = catalog.find(parts)
        if entry is not None:
            raise Unsupported(
                f"{statement.keyword} is not supported on the table {entry.name}",
                hint="see docs/sql.md for the supported statements",
            )


def _spark_parses(spark: SparkSession, text: str) -> bool:
    """Return whether Spark parses a statement that sqlglot does not."""
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001
    except (Py4JError, PySparkException):
        return False
    return True
