"""The tables that a statement reads, and where its text names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.base.errors import Unsupported
from tidelock.pipeline.sql.statement import Statement, closing, place_of
from tidelock.pipeline.sql.text import Span, mistake

CHANGES: Final = ("hudi_table_changes", "tidelock_table_changes")
"""Functions that give the rows which changed between two moments."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a function of table changes is asked for: completion times, both ends if given."""

    since: str
    until: str | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A table in a FROM clause: its name in parts, which moment of it, where the text has it."""

    parts: tuple[str, ...]
    node: exp.Table
    span: Span
    as_of: str | None = None
    changes: Changes | None = None

    @property
    def name(self) -> str:
        """The name as messages show it."""
        return ".".join(self.parts)

    @property
    def alias(self) -> str | None:
        """The name that the statement gives it, if it gives one."""
        return self.node.alias or None


def references(statement: Statement, tree: exp.Expr | None = None) -> list[Reference]:
    """Return every table that queries in the tree read; names of WITH clauses are not among them.

    Raises: `InvalidInput` for a time that is no plain value, or a function with wrong arguments.
    """
    root = statement.tree if tree is None else tree
    found: dict[int, Reference] = {}
    for table in _tables(root):
        if id(table) not in found:
            reference = reference_of(statement, table)
            if reference is not None:
                found[id(table)] = reference
    return [each for each in found.values() if not _is_named_before(each, root)]


def name_parts(table: exp.Table) -> tuple[str, ...]:
    """Return the parts of a table's name, the outermost first."""
    return tuple(part.name for part in table.parts)


def columns_named(tree: exp.Expr) -> frozenset[str] | None:
    """Return every name that a tree has, in lower case; None if it asks for all columns."""
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            return None
    if any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    return frozenset(each.name.lower() for each in tree.find_all(exp.Identifier))


def _is_named_before(reference: Reference, root: exp.Expr | None) -> bool:
    """Tell whether a name is of a WITH clause that stands before an INSERT or MERGE."""
    clause = None if root is None or isinstance(root, exp.Query) else root.args.get("with_")
    if clause is None or len(reference.parts) != 1:
        return False
    names = {each.alias.lower() for each in clause.expressions}
    return reference.name.lower() in names and reference.node.find_ancestor(exp.With) is not clause


def _tables(tree: exp.Expr | None) -> Iterator[exp.Table]:
    if tree is None:
        return
    for query in _queries(tree):
        try:
            scopes = traverse_scope(query)
        except SqlglotError:
            yield from query.find_all(exp.Table)
            continue
        for scope in scopes:
            for source in scope.sources.values():
                if isinstance(source, exp.Table):
                    yield source


def _queries(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost queries of a tree, with the names of WITH clauses before them known."""
    if isinstance(tree, exp.Query):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from _queries(child)


def reference_of(statement: Statement, table: exp.Table) -> Reference | None:
    """Return what a node refers to; None for a function that gives rows.

    Raises: `InvalidInput` for a time that is no plain value, or a function with wrong arguments.
    """
    if isinstance(table.this, exp.Anonymous):
        if table.this.name.lower() not in CHANGES:
            return None
        return _changes(statement, table)
    if not isinstance(table.this, exp.Identifier):
        return None
    names = [place_of(part) for part in table.parts]
    spans = [span for span in names if span is not None]
    if not spans:
        return None
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    version = table.args.get("version")
    as_of = None
    if isinstance(version, exp.Version):
        as_of, end = _moment(statement, version)
    return Reference(name_parts(table), table, Span(start, end), as_of)


def _moment(statement: Statement, version: exp.Version) -> tuple[str, int]:
    value = version.expression
    place = place_of(value)
    if not isinstance(value, exp.Literal) or place is None:
        raise mistake(
            statement.text,
            place,
            f"{version.name} AS OF takes a plain value",
            hint="give a time such as '2025-07-13 01:05:36', or an instant such as"
            " '20250713010536861'",
        )
    return value.name, place.end


def _changes(statement: Statement, table: exp.Table) -> Reference:
    function = table.this
    span, name = _call_span(statement.tokens, table), function.name
    values = [value.name for value in function.expressions if isinstance(value, exp.Literal)]
    if len(values) != len(function.expressions) or not 3 <= len(values) <= 4:
        raise mistake(
            statement.text,
            span,
            f"{name} takes a table, 'latest_state', a first and a last time, as plain values",
            hint=f"{name}('db.orders', 'latest_state', 'earliest')",
        )
    kind = values[1].lower()
    if kind == "cdc":
        raise Unsupported(
            f"{name}: changes with the rows before them (cdc) are not kept",
            hint="'latest_state' gives the inserted and updated rows as they are at the end",
        )
    if kind != "latest_state":
        raise mistake(statement.text, span, f"{values[1]!r} is not known", hint="'latest_state'")
    since = "000" if values[2].lower() == "earliest" else values[2]
    parts = tuple(part.strip("`") for part in _split_name(values[0]))
    return Reference(
        parts, table, span, changes=Changes(since, values[3] if len(values) > 3 else None)
    )


def _split_name(name: str) -> list[str]:
    """Return the parts of a name in a text; a path is one part."""
    return [name] if "/" in name or ":" in name else name.split(".")


def _call_span(tokens: list[Token], table: exp.Table) -> Span:
    """Return where a call of a function is: sqlglot does not say, but its arguments have places."""
    inner = place_of(table.this)
    for index, token in enumerate(tokens[:-1]):
        named = token.text.lower() == table.this.name.lower()
        if not named or tokens[index + 1].token_type is not TokenType.L_PAREN:
            continue
        end = tokens[closing(tokens, index + 1)].end + 1
        if inner is None or (token.start <= inner.start and inner.end <= end):
            return Span(token.start, end)
    return inner or Span(0, 1)
