"""The source of a MERGE: a table or a query, as a frame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidelock.pipeline.sql.reading import Sources
from tidelock.pipeline.sql.references import name_parts, reference_of
from tidelock.pipeline.sql.statement import Statement, closing, deeper, leading_with
from tidelock.pipeline.sql.text import Span, mistake, quoted


def source_frame(statement: Statement, sources: Sources, tree: exp.Merge) -> DataFrame:
    """Return the rows of the source. Raises: `InvalidInput`."""
    using = tree.args["using"]
    if not using.alias_or_name:
        raise mistake(
            statement.text, None, "the source of MERGE needs a name", hint="USING (...) AS s"
        )
    if isinstance(using, exp.Table) and isinstance(using.this, exp.Identifier):
        reference = reference_of(statement, using)
        if reference is not None and sources.catalog.find(reference.parts) is not None:
            return _renamed(sources.frame(reference, None), using)
        name = ".".join(quoted(part) for part in name_parts(using))
        with_names = _names_before(tree)
        if len(name_parts(using)) == 1 and using.name.lower() in with_names:
            found = sources.query(statement, leading_with(statement), f"TABLE {name}")
            return _renamed(found, using)
        return _renamed(sources.spark.table(name), using)
    inner = inner_query(statement)
    return _renamed(sources.query(statement, leading_with(statement), inner), using)


def _renamed(frame: DataFrame, using: exp.Expr) -> DataFrame:
    alias = using.args.get("alias")
    columns = [column.name for column in alias.args.get("columns") or ()] if alias else []
    return frame.toDF(*columns) if columns else frame


def _names_before(tree: exp.Merge) -> set[str]:
    clause = tree.args.get("with_")
    return set() if clause is None else {each.alias.lower() for each in clause.expressions}


def inner_query(statement: Statement) -> Span:
    """Return the query in brackets behind USING."""
    tokens, depth = statement.tokens, 0
    for index, token in enumerate(tokens):
        depth += deeper(token)
        if depth == 0 and token.text.upper() == "USING":
            start = tokens[index + 1]
            if start.token_type is TokenType.L_PAREN:
                return Span(start.end + 1, tokens[closing(tokens, index + 1)].start)
            break
    raise mistake(statement.text, None, "USING takes a table or a query in brackets")
