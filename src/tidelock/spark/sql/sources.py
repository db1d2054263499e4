"""The tables that a statement reads, as frames: each at one snapshot for the whole statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.core.errors import Unsupported
from tidelock.execution.local.read import Scan
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.operations.query import changes_scan, readable_schema, snapshot_scan
from tidelock.operations.read import snapshot_now
from tidelock.operations.request import scan_frame
from tidelock.spark.datasource.read import begin_time
from tidelock.spark.sql.catalog import MANAGED, Catalog, CatalogEntry
from tidelock.spark.sql.statement import (
    Span,
    Statement,
    closing_bracket,
    parse,
    quoted,
    span_of,
    substitute,
    to_sql,
    top_level,
    with_clause,
)
from tidelock.storage.uri import open_store

CHANGES_FUNCTIONS: Final = ("hudi_table_changes", "tidelock_table_changes")
"""Table functions that return the rows that changed between two times."""


@dataclass(frozen=True, slots=True)
class TableChangesCall:
    """The range of a table changes function: completion times."""

    since: str
    until: str | None


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table in a FROM clause: its name, its time travel clause and its position."""

    parts: tuple[str, ...]
    node: exp.Table
    span: Span
    as_of: str | None = None
    changes: TableChangesCall | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return ".".join(self.parts)


def table_references(statement: Statement, tree: exp.Expr | None = None) -> list[TableReference]:
    """Return every table that queries in the tree read, without names of WITH clauses.

    Raises: `InvalidInput` for a time that is not a literal, or a function with invalid arguments.
    """
    root = statement.tree if tree is None else tree
    tables = {id(table): table for table in _tables(root)}
    found = (reference_of(statement, table) for table in tables.values())
    return [each for each in found if each is not None and not _is_cte_name(each, root)]


def name_parts(table: exp.Table) -> tuple[str, ...]:
    """Return the parts of a table's name, the outermost first."""
    return tuple(part.name for part in table.parts)


def columns_named(tree: exp.Expr) -> frozenset[str] | None:
    """Return all identifiers of a tree in lower case; None if it selects all columns."""
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            return None
    if any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    return frozenset(each.name.lower() for each in tree.find_all(exp.Identifier))


def _is_cte_name(reference: TableReference, root: exp.Expr | None) -> bool:
    """Return whether a name is defined by a WITH clause in front of an INSERT or MERGE."""
    if root is None or isinstance(root, exp.Query) or len(reference.parts) != 1:
        return False
    outside = reference.node.find_ancestor(exp.With) is not root.args.get("with_")
    return outside and reference.name.lower() in _cte_names(root)


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
    """Yield the outermost queries of a tree."""
    if isinstance(tree, exp.Query):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from _queries(child)


def reference_of(statement: Statement, table: exp.Table) -> TableReference | None:
    """Return the table that a node refers to; None for any other table function.

    Raises: `InvalidInput` for a time that is not a literal, or a function with invalid arguments.
    """
    if isinstance(table.this, exp.Anonymous):
        if table.this.name.lower() not in CHANGES_FUNCTIONS:
            return None
        return _changes(statement, table)
    if not isinstance(table.this, exp.Identifier):
        return None
    spans = [span for part in table.parts if (span := span_of(part)) is not None]
    if not spans:
        return None
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    version = table.args.get("version")
    as_of = None
    if isinstance(version, exp.Version):
        as_of, end = _as_of(statement, version)
    return TableReference(name_parts(table), table, Span(start, end), as_of)


def _as_of(statement: Statement, version: exp.Version) -> tuple[str, int]:
    value = version.expression
    span = span_of(value)
    if not isinstance(value, exp.Literal) or span is None:
        raise statement.invalid(
            span,
            f"{version.name} AS OF: expected a literal",
            hint="for example a time such as '2025-07-13 01:05:36', or an instant such as"
            " '20250713010536861'",
        )
    return value.name, span.end


def _changes(statement: Statement, table: exp.Table) -> TableReference:
    function = table.this
    span, name = _call_span(statement.tokens, table), function.name
    values = [value.name for value in function.expressions if isinstance(value, exp.Literal)]
    if len(values) != len(function.expressions) or not 3 <= len(values) <= 4:
        raise statement.invalid(
            span,
            f"{name}: expected literals for table, 'latest_state', begin and optional end time",
            hint=f"for example {name}('db.orders', 'latest_state', 'earliest')",
        )
    query = values[1].lower()
    if query == "cdc":
        raise Unsupported(
            f"{name}: 'cdc' is not supported",
            hint="'latest_state' returns the inserted and updated rows as of the end of the range",
        )
    if query != "latest_state":
        raise statement.invalid(span, f"{name}: expected 'latest_state', got {values[1]!r}")
    since = "000" if values[2].lower() == "earliest" else values[2]
    is_path = "/" in values[0] or ":" in values[0]
    parts = tuple(part.strip("`") for part in ([values[0]] if is_path else values[0].split(".")))
    return TableReference(
        parts, table, span, changes=TableChangesCall(since, values[3] if len(values) > 3 else None)
    )


def _call_span(tokens: list[Token], table: exp.Table) -> Span:
    """Return the span of a function call; sqlglot only has positions for its arguments."""
    inner = span_of(table.this)
    for index, token in enumerate(tokens[:-1]):
        named = token.text.lower() == table.this.name.lower()
        if not named or tokens[index + 1].token_type is not TokenType.L_PAREN:
            continue
        end = tokens[closing_bracket(tokens, index + 1)].end + 1
        if inner is None or (token.start <= inner.start and inner.end <= end):
            return Span(token.start, end)
    return inner or Span(0, 1)


_NUMBERS: Final = count(1)
_OPTION_PREFIXES: Final = ("hoodie.", "tidelock.", "fs.")


@dataclass
class Sources:
    """The tables that one statement reads. Temporary views exist until this is closed.

    `pinned` reads tables, by URI, at a snapshot that the caller has chosen.
    Guarantees: a table that the statement names twice has the same rows both times.
    """

    spark: SparkSession
    catalog: Catalog
    pinned: dict[str, Callable[[], DataFrame]] = field(default_factory=dict)
    _snapshots: dict[str, TableSnapshot] = field(default_factory=dict)
    _views: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the views and close the stores. Frames remain usable."""
        for name in self._views:
            self.spark.catalog.dropTempView(name)
        for snapshot in self._snapshots.values():
            snapshot.store.close()
        self._views.clear()
        self._snapshots.clear()

    def tidelock_tables(
        self, statement: Statement, tree: exp.Expr | None = None
    ) -> list[TableReference]:
        """Return the Tidelock tables that a tree reads."""
        found = table_references(statement, tree)
        return [each for each in found if each.changes or self.catalog.find(each.parts) is not None]

    def text(self, statement: Statement, within: Span | None = None) -> str:
        """Return the statement, or a part of it, with Tidelock tables replaced by views."""
        columns = None if statement.tree is None else columns_named(statement.tree)
        edits = []
        for each in self.tidelock_tables(statement):
            if within is None or each.span in within:
                view = quoted(self.view(self.frame(each, columns)))
                # An alias would have to follow a TABLESAMPLE clause, so none is added there.
                if not each.node.alias and not each.node.args.get("sample"):
                    view = f"{view} AS {quoted(each.parts[-1])}"
                edits.append((each.span, view))
        return substitute(statement.text, edits, within)

    def expression(self, statement: Statement, node: exp.Expr) -> str:
        """Return an expression as SQL, with Tidelock tables in subqueries replaced by views."""
        copy = node.copy()
        for each in self.tidelock_tables(statement, copy):
            view = exp.to_table(quoted(self.view(self.frame(each, None))), dialect="spark")
            alias = exp.to_identifier(each.node.alias or each.parts[-1], quoted=True)
            view.set("alias", exp.TableAlias(this=alias))
            each.node.replace(view)
        return to_sql(copy)

    def query(self, statement: Statement, *parts: Span | str | None) -> DataFrame:
        """Return the rows of the query made of these parts of the statement's text."""
        texts = [
            part if isinstance(part, str) else self.text(statement, part) for part in parts if part
        ]
        text = " ".join(texts)
        tree = None if statement.args is None else parse(text).tree
        if tree is None or tree.find(exp.Placeholder) is None:
            return self.spark.sql(text)
        return self.spark.sql(text, statement.args)

    def view(self, frame: DataFrame) -> str:
        """Create a temporary view of a frame; return its name."""
        name = f"_tidelock_{next(_NUMBERS)}"
        frame.createTempView(name)
        self._views.append(name)
        return name

    def frame(self, reference: TableReference, named: frozenset[str] | None) -> DataFrame:
        """Return the rows of a Tidelock table; `named` are the identifiers in the statement."""
        entry = self.catalog.required(reference.parts)
        pinned = self.pinned.get(entry.uri)
        if pinned is not None and reference.as_of is None and reference.changes is None:
            return pinned()
        options = write_options(self.spark, entry)
        snapshot = self._snapshot(entry, options)
        return scan_frame(self.spark, snapshot, _scan(snapshot, reference, named), options)

    def _snapshot(self, entry: CatalogEntry, options: Mapping[str, object]) -> TableSnapshot:
        if entry.uri not in self._snapshots:
            store = open_store(entry.uri, options)
            try:
                self._snapshots[entry.uri] = snapshot_now(store)
            except BaseException:
                store.close()
                raise
        return self._snapshots[entry.uri]


def merge_source(statement: Statement, sources: Sources, tree: exp.Merge) -> DataFrame:
    """Return the rows of the source of a MERGE. Raises: `InvalidInput`."""
    using = tree.args["using"]
    if not using.alias_or_name:
        raise statement.invalid(None, "MERGE: the source has no alias", hint="USING (...) AS s")
    if isinstance(using, exp.Table) and isinstance(using.this, exp.Identifier):
        reference = reference_of(statement, using)
        if reference is not None and sources.catalog.find(reference.parts) is not None:
            return _with_column_aliases(sources.frame(reference, None), using)
        name = ".".join(quoted(part) for part in name_parts(using))
        if len(name_parts(using)) == 1 and using.name.lower() in _cte_names(tree):
            found = sources.query(statement, with_clause(statement), f"TABLE {name}")
            return _with_column_aliases(found, using)
        return _with_column_aliases(sources.spark.table(name), using)
    inner = using_query(statement)
    return _with_column_aliases(sources.query(statement, with_clause(statement), inner), using)


def _with_column_aliases(frame: DataFrame, using: exp.Expr) -> DataFrame:
    alias = using.args.get("alias")
    columns = [column.name for column in alias.args.get("columns") or ()] if alias else []
    return frame.toDF(*columns) if columns else frame


def _cte_names(tree: exp.Expr) -> set[str]:
    clause = tree.args.get("with_")
    return set() if clause is None else {each.alias.lower() for each in clause.expressions}


def using_query(statement: Statement) -> Span:
    """Return the span of the query in parentheses after USING."""
    tokens, index = statement.tokens, top_level(statement, "USING")
    if index is not None and tokens[index + 1].token_type is TokenType.L_PAREN:
        return Span(tokens[index + 1].end + 1, tokens[closing_bracket(tokens, index + 1)].start)
    raise statement.invalid(None, "USING: expected a table or a query in parentheses")


def write_options(spark: SparkSession, entry: CatalogEntry) -> dict[str, object]:
    """Return the options of a table; those of the session override those of the table."""
    session: Mapping[str, Any] = spark.conf.getAll
    options = {**entry.properties, **session}
    return {
        key: value
        for key, value in options.items()
        if key.startswith(_OPTION_PREFIXES) and key != MANAGED
    }


def _scan(snapshot: TableSnapshot, reference: TableReference, named: frozenset[str] | None) -> Scan:
    columns = None
    if named is not None:
        names = readable_schema(snapshot).names
        columns = [name for name in names if name.lower() in named] or names[-1:]
    changes = reference.changes
    if changes is not None:
        return changes_scan(
            snapshot,
            begin_time(changes.since),
            changes.until,
            columns=columns,
            meta_columns=columns is None,
        )
    return snapshot_scan(
        snapshot, columns=columns, as_of=reference.as_of, meta_columns=columns is None
    )
