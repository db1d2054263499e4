"""INSERT INTO and INSERT OVERWRITE: the rows of a query, in the table's columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidelock.base.errors import ConfigInvalid, Unsupported
from tidelock.operation.moment import Moment
from tidelock.pipeline.datasource.writing import asked_mark
from tidelock.pipeline.sql import options as o
from tidelock.pipeline.sql.partitions import PartitionSpec, existing_partitions, partition_spec
from tidelock.pipeline.sql.reading import Sources
from tidelock.pipeline.sql.result import reported
from tidelock.pipeline.sql.statement import (
    Statement,
    closing,
    leading_with,
    place_of,
)
from tidelock.pipeline.sql.target import Target, struct_of
from tidelock.pipeline.sql.text import Span, mistake
from tidelock.table.schema.meta import META_COLUMNS

_OPERATIONS = ("insert", "upsert", "bulk_insert")


def insert(target: Target, tree: exp.Insert) -> DataFrame:
    """Carry out an INSERT.

    Rows that come from the table itself are computed again if others write meanwhile. Raises:
    `InvalidInput` for columns that do not fit, `Unsupported`, and what writing raises.
    """
    _refuse_strange(tree)
    named = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    clause = node.args.get("partition")
    spec = partition_spec(target, clause) if isinstance(clause, exp.Partition) else None
    query = query_span(target.statement, tree)
    overwrites = bool(tree.args.get("overwrite"))
    operation = _operation(target, spec, overwrites=overwrites)
    by_name = bool(tree.args.get("by_name"))

    def rows(sources: Sources) -> DataFrame:
        found = sources.query(target.statement, leading_with(target.statement), query)
        return _fitted(target, found, named, spec, by_name=by_name)

    with Sources(target.spark, target.catalog) as sources:
        read = {target.catalog.required(r.parts).uri for r in sources.ours(target.statement)}
        if target.entry.uri not in read and not (overwrites and spec):
            report = target.table.write(rows(sources), operation, mark=asked_mark(target.options))
            return reported(target.spark, "insert", report)

    def compute(now: Moment) -> object | None:
        with target.sources(now) as sources:
            return target.keep(rows(sources))

    paths: Sequence[str] = ()
    if overwrites and spec is not None and not _is_dynamic(target):
        paths = spec.paths(target.properties, existing_partitions(target))
    return target.rewrite(compute, operation, partitions=paths)


def query_span(statement: Statement, tree: exp.Insert) -> Span:
    """Return where the query of an INSERT is: behind the table, its partition and its columns."""
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    place = place_of(exp.Tuple(expressions=[part.copy() for part in node.parts]))
    assert place is not None
    tokens = statement.tokens
    at = next(i for i, token in enumerate(tokens) if token.start >= place.end)
    listed = isinstance(tree.this, exp.Schema)
    while at < len(tokens):
        word = tokens[at].text.upper()
        if word == "PARTITION":
            at = closing(tokens, at + 1) + 1
        elif word == "BY":
            at += 2
        elif listed and tokens[at].token_type is TokenType.L_PAREN:
            at, listed = closing(tokens, at) + 1, False
        else:
            break
    start = tokens[at].start if at < len(tokens) else len(statement.text)
    return Span(start, len(statement.text))


def target_node(tree: exp.Insert) -> exp.Table | None:
    """Return the table that an INSERT names; None for a folder."""
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return node if isinstance(node, exp.Table) else None


def _refuse_strange(tree: exp.Insert) -> None:
    for name, words in (("where", "INSERT ... REPLACE WHERE"), ("conflict", "ON CONFLICT")):
        if tree.args.get(name):
            raise Unsupported(f"{words} is not supported", hint="use DELETE and INSERT, or MERGE")


def _operation(target: Target, spec: PartitionSpec | None, *, overwrites: bool) -> str:
    options = target.options
    if not overwrites:
        named = o.INSERT_OPERATION.required(options)
        if named not in _OPERATIONS:
            raise ConfigInvalid(
                f"{o.INSERT_OPERATION.key} = {named} is not known",
                hint=f"use {', '.join(_OPERATIONS)}",
            )
        return named
    if target.partitions and (_is_dynamic(target) or (spec is not None and spec.names)):
        return "insert_overwrite"
    return "insert_overwrite_table"


def _is_dynamic(target: Target) -> bool:
    mode = o.OVERWRITE_MODE.value(target.options) or str(
        target.spark.conf.get("spark.sql.sources.partitionOverwriteMode")
    )
    if mode.lower() not in ("static", "dynamic"):
        raise ConfigInvalid(f"{o.OVERWRITE_MODE.key} = {mode}", hint="use static or dynamic")
    return mode.lower() == "dynamic"


def _fitted(
    target: Target,
    found: DataFrame,
    named: Sequence[exp.Expr],
    spec: PartitionSpec | None,
    *,
    by_name: bool,
) -> DataFrame:
    """Return the rows in the columns and types of the table.

    Rows of another table of ours bring its meta columns, which are not columns of a user's.
    """
    kind = struct_of(target.table.schema)
    fixed = {} if spec is None else dict(spec.nodes)
    places = [i for i, name in enumerate(found.columns) if name not in META_COLUMNS]
    plain = [f"_tidelock_{i}" for i in range(len(found.columns))]
    rows = found.toDF(*plain)
    if by_name:
        wanted = [target.column(exp.column(found.columns[i]), kind.names)[0] for i in places]
    elif named:
        wanted = [target.column(node, kind.names)[0] for node in named]
        wanted = [name for name in wanted if name not in fixed]
    else:
        wanted = [name for name in kind.names if name not in fixed]
    if len(wanted) != len(places):
        raise mistake(
            target.statement.text,
            None,
            f"{target.entry.name} takes {len(wanted)} columns here ({', '.join(wanted)}), and the"
            f" query gives {len(places)}",
            hint="name the columns: INSERT INTO t (a, b) ...",
        )
    given: dict[str, Column] = {
        name: F.col(plain[i]) for name, i in zip(wanted, places, strict=True)
    }
    if spec is not None:
        constants = spec.values.to_pylist()[0] if spec.names else {}
        given |= {name: F.lit(value) for name, value in constants.items()}
    missing = F.lit(None)
    return rows.select(
        *(given.get(name, missing).cast(kind[name].dataType).alias(name) for name in kind.names)
    )
