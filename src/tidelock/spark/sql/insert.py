"""INSERT INTO and INSERT OVERWRITE."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidelock.core.errors import Unsupported
from tidelock.execution.spark.types import spark_schema
from tidelock.hudi.schema import META_COLUMNS
from tidelock.operations.attempt import ReadSnapshot
from tidelock.spark.datasource.write import requested_app_transaction
from tidelock.spark.frames import report_frame
from tidelock.spark.options import INSERT_OPERATION, OVERWRITE_MODE
from tidelock.spark.sql.partitions import PartitionSpec, existing_partitions, partition_spec
from tidelock.spark.sql.sources import Sources
from tidelock.spark.sql.statement import Span, Statement, closing_bracket, span_of, with_clause
from tidelock.spark.sql.target import StatementTarget, cast_column


def insert(target: StatementTarget, tree: exp.Insert) -> DataFrame:
    """Execute an INSERT.

    If the query reads the target table, its rows are computed again after each conflict. Raises:
    `InvalidInput` for columns that do not match, `Unsupported`, and the errors of writes.
    """
    _reject_unsupported_clauses(tree)
    named = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    clause = node.args.get("partition")
    spec = partition_spec(target, clause) if isinstance(clause, exp.Partition) else None
    query = query_span(target.statement, tree)
    overwrites = bool(tree.args.get("overwrite"))
    operation = _operation(target, spec, overwrites=overwrites)
    by_name = bool(tree.args.get("by_name"))

    def rows(sources: Sources) -> DataFrame:
        found = sources.query(target.statement, with_clause(target.statement), query)
        return _conformed(target, found, named, spec, by_name=by_name)

    with Sources(target.spark, target.catalog) as sources:
        read = {
            target.catalog.required(r.parts).uri for r in sources.tidelock_tables(target.statement)
        }
        if target.entry.uri not in read and not (overwrites and spec):
            report = target.table.write(
                rows(sources), operation, app_transaction=requested_app_transaction(target.options)
            )
            return report_frame(target.spark, "insert", report)

    def compute(snapshot: ReadSnapshot) -> object | None:
        with target.sources(snapshot) as sources:
            return target.cache(rows(sources))

    paths: Sequence[str] = ()
    if overwrites and spec is not None and not _is_dynamic(target):
        paths = spec.paths(target.properties, existing_partitions(target))
    return target.rewrite(compute, operation, partitions=paths)


def query_span(statement: Statement, tree: exp.Insert) -> Span:
    """Return the span of the query of an INSERT: after the table, PARTITION and columns."""
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    span = span_of(exp.Tuple(expressions=[part.copy() for part in node.parts]))
    assert span is not None
    tokens = statement.tokens
    at = next(i for i, token in enumerate(tokens) if token.start >= span.end)
    has_columns = isinstance(tree.this, exp.Schema)
    while at < len(tokens):
        word = tokens[at].text.upper()
        if word == "PARTITION":
            at = closing_bracket(tokens, at + 1) + 1
        elif word == "BY":
            at += 2
        elif has_columns and tokens[at].token_type is TokenType.L_PAREN:
            at, has_columns = closing_bracket(tokens, at) + 1, False
        else:
            break
    start = tokens[at].start if at < len(tokens) else len(statement.text)
    return Span(start, len(statement.text))


def target_node(tree: exp.Insert) -> exp.Table | None:
    """Return the target table of an INSERT; None for a directory."""
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return node if isinstance(node, exp.Table) else None


def _reject_unsupported_clauses(tree: exp.Insert) -> None:
    for name, words in (("where", "INSERT ... REPLACE WHERE"), ("conflict", "ON CONFLICT")):
        if tree.args.get(name):
            raise Unsupported(f"{words} is not supported", hint="use DELETE and INSERT, or MERGE")


def _operation(target: StatementTarget, spec: PartitionSpec | None, *, overwrites: bool) -> str:
    options = target.options
    if not overwrites:
        named = INSERT_OPERATION.required(options)
        if named not in INSERT_OPERATION.choices:
            raise INSERT_OPERATION.unknown_value(named)
        return named
    if target.partition_columns and (_is_dynamic(target) or (spec is not None and spec.names)):
        return "insert_overwrite"
    return "insert_overwrite_table"


def _is_dynamic(target: StatementTarget) -> bool:
    mode = OVERWRITE_MODE.value(target.options) or str(
        target.spark.conf.get("spark.sql.sources.partitionOverwriteMode")
    )
    if mode.lower() not in OVERWRITE_MODE.choices:
        raise OVERWRITE_MODE.unknown_value(mode)
    return mode.lower() == "dynamic"


def _conformed(
    target: StatementTarget,
    query_rows: DataFrame,
    named: Sequence[exp.Expr],
    spec: PartitionSpec | None,
    *,
    by_name: bool,
) -> DataFrame:
    """Return the rows with the columns and types of the table.

    Meta columns in the rows, from a query on another Tidelock table, are dropped.
    """
    schema = spark_schema(target.table.schema)
    fixed = {} if spec is None else dict(spec.nodes)
    positions = [i for i, name in enumerate(query_rows.columns) if name not in META_COLUMNS]
    unique_names = [f"_tidelock_{i}" for i in range(len(query_rows.columns))]
    rows = query_rows.toDF(*unique_names)
    if by_name:
        nodes = [exp.column(query_rows.columns[i]) for i in positions]
        columns = [target.resolve_column(node, schema.names)[0] for node in nodes]
    elif named:
        columns = [target.resolve_column(node, schema.names)[0] for node in named]
        columns = [name for name in columns if name not in fixed]
    else:
        columns = [name for name in schema.names if name not in fixed]
    if len(columns) != len(positions):
        raise target.statement.invalid(
            None,
            f"{target.entry.name}: expected {len(columns)} columns ({', '.join(columns)}), got"
            f" {len(positions)} from the query",
            hint="list the columns: INSERT INTO t (a, b) ...",
        )
    values: dict[str, Column] = {
        name: F.col(unique_names[i]) for name, i in zip(columns, positions, strict=True)
    }
    if spec is not None:
        constants = spec.values.to_pylist()[0] if spec.names else {}
        values |= {name: F.lit(value) for name, value in constants.items()}
    missing = F.lit(None)
    return rows.select(
        *(cast_column(values.get(name, missing), schema, name) for name in schema.names)
    )
