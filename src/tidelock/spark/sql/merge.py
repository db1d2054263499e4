"""MERGE INTO: parses the WHEN clauses, joins source and target, and applies the first match.

A MERGE whose rows follow from the source alone is written as an upsert or delete without a join
(`KeyedMerge`). Any other MERGE joins the source with the target rows that may match it
(`MergeExecution`), and is computed again after each conflict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st
from sqlglot import exp

from tidelock.core.errors import InvalidInput
from tidelock.execution.spark.frame_size import is_rereadable
from tidelock.execution.spark.session import is_local_master
from tidelock.execution.spark.types import spark_schema, worker_schema
from tidelock.execution.write_plan import TOMBSTONE
from tidelock.operations.attempt import ReadSnapshot
from tidelock.spark.frames import all_of, local_frame
from tidelock.spark.sql.errors import REJECTED, run_statement_job
from tidelock.spark.sql.sources import Sources, columns_named, merge_source, name_parts
from tidelock.spark.sql.statement import quoted, suggestion
from tidelock.spark.sql.target import StatementTarget, cast_column, fits_driver, is_small
from tidelock.spark.sql.update_delete import (
    Assignments,
    assigned_columns,
    assignments,
    is_default,
    value_column,
)


class ClauseMatch(Enum):
    """The rows that a clause applies to."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    BY_SOURCE = "NOT MATCHED BY SOURCE"


class ClauseAction(Enum):
    """The action of a clause."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


_ACTIONS: Final[Mapping[type, str]] = {exp.Update: "UPDATE", exp.Insert: "INSERT"}


@dataclass(frozen=True, slots=True)
class Clause:
    """One WHEN clause; `values` are the columns that it sets or inserts."""

    when: ClauseMatch
    then: ClauseAction
    condition: exp.Expr | None
    values: Assignments


def parse_clauses(
    target: StatementTarget,
    tree: exp.Merge,
    source: str,
    target_columns: Sequence[str],
    source_columns: Sequence[str],
) -> tuple[Clause, ...]:
    """Return the clauses of a MERGE.

    `source` is the alias of the source. Raises: `InvalidInput` with the position of a mistake.
    """
    parser = _ClauseParser(target, source, target_columns, source_columns)
    whens = tree.args.get("whens")
    found = tuple(parser.clause(node) for node in (whens.expressions if whens else ()))
    if not found:
        raise target.statement.invalid(
            None, "MERGE: expected a WHEN clause", hint="for example WHEN MATCHED THEN UPDATE SET *"
        )
    return found


@dataclass(frozen=True, slots=True)
class _ClauseParser:
    target: StatementTarget
    source: str
    target_columns: Sequence[str]
    source_columns: Sequence[str]

    def clause(self, node: exp.Expr) -> Clause:
        when = ClauseMatch.NOT_MATCHED
        if node.args.get("matched"):
            when = ClauseMatch.MATCHED
        elif node.args.get("source"):
            when = ClauseMatch.BY_SOURCE
        sides = {ClauseMatch.NOT_MATCHED: self.source, ClauseMatch.BY_SOURCE: self.target.alias}
        side = sides.get(when)
        condition = node.args.get("condition")
        if condition is not None:
            condition = self._qualified(condition, side)
        then = node.args.get("then")
        if isinstance(then, exp.Update) and when is not ClauseMatch.NOT_MATCHED:
            return Clause(when, ClauseAction.UPDATE, condition, self._updated(then, when, side))
        if isinstance(then, exp.Insert) and when is ClauseMatch.NOT_MATCHED:
            return Clause(when, ClauseAction.INSERT, condition, self._inserted(then, side))
        deletes = isinstance(then, exp.Var) and then.name.upper() == "DELETE"
        if deletes and when is not ClauseMatch.NOT_MATCHED:
            return Clause(when, ClauseAction.DELETE, condition, {})
        raise self._error(
            node,
            f"WHEN {when.value} THEN {_ACTIONS.get(type(then), 'DELETE')} is not allowed",
            hint="matched rows are updated or deleted; rows that are not matched are inserted",
        )

    def _error(self, node: exp.Expr | None, message: str, hint: str = "") -> InvalidInput:
        return self.target.statement.invalid(node, message, hint=hint)

    def _updated(self, then: exp.Update, when: ClauseMatch, side: str | None) -> Assignments:
        if any(isinstance(each, exp.Star) for each in then.expressions):
            if when is ClauseMatch.BY_SOURCE:
                raise self._error(
                    None,
                    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET * is not allowed: there is no"
                    " source row",
                    hint="list the columns and their values",
                )
            return self._all()
        found = assignments(self.target, then.expressions, self.target_columns)
        return {
            name: [(inner, self._qualified(node, side)) for inner, node in parts]
            for name, parts in found.items()
        }

    def _inserted(self, then: exp.Insert, side: str | None) -> Assignments:
        if isinstance(then.this, exp.Star):
            return self._all()
        values = then.expression.expressions if then.expression is not None else []
        nodes = then.this.expressions if then.this is not None else []
        if not nodes:
            nodes = [exp.column(name) for name in self.target_columns]
        if len(nodes) != len(values):
            raise self._error(then, f"INSERT: expected {len(nodes)} values, got {len(values)}")
        found: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
        for node, value in zip(nodes, values, strict=True):
            name, _ = self.target.resolve_column(node, self.target_columns)
            if name in found:
                raise self._error(node, f"INSERT: duplicate column {name}")
            found[name] = [((), self._qualified(value, side))]
        return found

    def _all(self) -> Assignments:
        """Return the values of `*`: each target column from the source column of that name."""
        by_name = {name.lower(): name for name in self.source_columns}
        found: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
        for name in self.target_columns:
            if name.lower() not in by_name:
                raise self._error(
                    None,
                    f"*: the source has no column {name}",
                    hint=suggestion(name, self.source_columns)
                    or "list the columns and their values",
                )
            column = exp.column(by_name[name.lower()], table=self.source, quoted=True)
            found[name] = [((), column)]
        return found

    def _qualified(self, node: exp.Expr, side: str | None) -> exp.Expr:
        """Return an expression whose unqualified columns are qualified with one side.

        The full name of the target, which Spark cannot resolve here, becomes its alias.
        """
        sides = {self.source.lower(), self.target.alias.lower()}
        copy = node.copy()
        for column in [copy, *copy.find_all(exp.Column)]:
            if not isinstance(column, exp.Column) or column.find_ancestor(exp.Query):
                continue
            parts = list(column.parts)
            full = tuple(part.name.lower() for part in parts[:-1])
            if len(full) > 1 and full == tuple(p.lower() for p in self.target.entry.parts):
                parts = [exp.to_identifier(self.target.alias, quoted=True), parts[-1]]
            elif side is not None and parts[0].name.lower() not in sides and not is_default(column):
                parts = [exp.to_identifier(side, quoted=True), *parts]
            else:
                continue
            other = exp.Dot.build([part.copy() for part in parts])
            if column is copy:
                return other
            column.replace(other)
        return copy


_NEEDS_JOIN: Final = "_tidelock_needs_join"


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """A MERGE whose rows follow from the source alone; `values` has all target columns."""

    target: StatementTarget
    source: str
    values: Mapping[str, exp.Expr]
    clauses: Sequence[Clause]

    def rows(
        self, sources: Sources, source: DataFrame, schema: st.StructType
    ) -> DataFrame | pa.Table | None:
        """Return the rows to write, including tombstones; as Arrow if they fit the driver.

        Returns None if the result of some source row depends on the target, or if a key occurs
        more than once in the source.
        """
        source_rows = source.alias(self.source)
        identity = self.target.identity
        statement = self.target.statement
        values = {n: value_column(statement, sources, node) for n, node in self.values.items()}
        if not all(_same_type(source_rows, values[name], schema, name) for name in identity):
            return None
        matched = self._action_of(sources, ClauseMatch.MATCHED)
        missing = self._action_of(sources, ClauseMatch.NOT_MATCHED)
        writes = (matched == ClauseAction.UPDATE.value) & (missing == ClauseAction.INSERT.value)
        deletes = (matched == ClauseAction.DELETE.value) & (missing == "")
        nothing = (matched == "") & (missing == "")
        needs_join = ~(writes | deletes)
        for name in identity:
            needs_join = needs_join | values[name].isNull()
        columns = identity if self.only_deletes else schema.names
        cast = [cast_column(values[name], schema, name) for name in columns]
        found = source_rows.where(~nothing).select(
            *cast, deletes.alias(TOMBSTONE), needs_join.alias(_NEEDS_JOIN)
        )
        if fits_driver(found):
            return self._checked(self.target.collect_arrow(found), identity)
        cached = self.target.cache(found)
        key_columns = [F.col(quoted(name)) for name in identity]
        each = cached.groupBy(*key_columns).agg(
            F.count(F.lit(1)).alias("n"), F.max(_NEEDS_JOIN).alias("needs_join")
        )
        ambiguous = F.lit(not self.only_deletes) & (F.col("n") > 1)
        check = each.agg(F.max(ambiguous | F.col("needs_join")).alias("needs_join"))
        (seen,) = run_statement_job(self.target.spark, self.target.entry.name, check.collect)
        if seen["needs_join"] is not False:
            return None  # a row needs the join, or there are no rows
        return cached.drop(*self._helper_columns)

    def _checked(self, rows: pa.Table, identity: Sequence[str]) -> pa.Table | None:
        if pc.any(rows.column(_NEEDS_JOIN)).as_py():
            return None
        counts = rows.group_by(list(identity)).aggregate([([], "count_all")])
        if not self.only_deletes and pc.any(pc.greater(counts.column("count_all"), 1)).as_py():
            return None
        return rows.drop_columns(self._helper_columns)

    @property
    def _helper_columns(self) -> list[str]:
        return [_NEEDS_JOIN, TOMBSTONE] if self.only_deletes else [_NEEDS_JOIN]

    @property
    def only_deletes(self) -> bool:
        """Return whether all clauses delete; the rows then have only the identity columns."""
        return all(clause.then is ClauseAction.DELETE for clause in self.clauses)

    def _action_of(self, sources: Sources, when: ClauseMatch) -> Column:
        """Return the action of the first clause that applies to a source row; "" for none."""
        branches = []
        for clause in self.clauses:
            if clause.when is when:
                applies = _true()
                if clause.condition is not None:
                    applies = F.expr(sources.expression(self.target.statement, clause.condition))
                branches.append((applies, F.lit(clause.then.value)))
        return _case_when(branches).otherwise(F.lit("")) if branches else F.lit("")


def keyed_merge(
    target: StatementTarget,
    tree: exp.Merge,
    source: str,
    clauses: Sequence[Clause],
    target_columns: Sequence[str],
) -> KeyedMerge | None:
    """Return the MERGE if its rows follow from the source alone; None if it needs a join."""
    pairs = _pairs(target, tree.args["on"], source)
    if pairs is None or set(pairs) != set(target.identity):
        return None
    values: Mapping[str, exp.Expr] | None = None
    for clause in clauses:
        if clause.when is ClauseMatch.BY_SOURCE or not _is_from(clause.condition, source):
            return None
        if clause.then is ClauseAction.DELETE:
            continue
        assigned = {name: parts[0][1] for name, parts in clause.values.items()}
        whole = all(len(parts) == 1 and not parts[0][0] for parts in clause.values.values())
        from_source = all(_is_from(value, source) for value in assigned.values())
        if not whole or set(assigned) != set(target_columns) or not from_source:
            return None
        if values is not None and any(values[name] != assigned[name] for name in target_columns):
            return None
        values = assigned
    actions = {clause.then for clause in clauses}
    if values is None:
        values = pairs
    elif not {ClauseAction.UPDATE, ClauseAction.INSERT} <= actions:
        return None  # whether a row is written depends on the target
    if any(not _same_name(values[name], pairs[name]) for name in target.identity):
        return None
    return KeyedMerge(target, source, values, clauses)


def _pairs(target: StatementTarget, on: exp.Expr, source: str) -> dict[str, exp.Expr] | None:
    """Return the source column for each target column of ON; None unless all are equalities."""
    found: dict[str, exp.Expr] = {}
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on]
    for name, other in key_equalities(target, on, source, target.identity):
        if name in found:
            return None
        found[name] = other
    return found if len(found) == len(parts) else None


def key_equalities(
    target: StatementTarget, on: exp.Expr, source: str, target_columns: Sequence[str]
) -> Iterator[tuple[str, exp.Expr]]:
    """Yield the `target_columns` that ON equates with a plain source column."""
    names = {name.lower(): name for name in target_columns}
    for part in on.flatten() if isinstance(on, exp.And) else [on]:
        if not isinstance(part.unnest(), exp.EQ):
            continue
        left, right = part.unnest().this, part.unnest().expression
        for column, other in ((left, right), (right, left)):
            owners = (_owner(column), _owner(other))
            if owners == (target.alias.lower(), source.lower()) and column.name.lower() in names:
                yield names[column.name.lower()], other
                break


def _owner(node: exp.Expr) -> str | None:
    """Return the alias that qualifies a plain column; None for anything else."""
    if isinstance(node, exp.Column) and len(node.parts) == 2:
        return str(node.table).lower()
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Identifier):
        return str(node.this.name).lower()
    return None


def _same_name(one: exp.Expr, other: exp.Expr) -> bool:
    return (
        _owner(one) is not None
        and _owner(one) == _owner(other)
        and one.name.lower() == other.name.lower()
    )


def _is_from(node: exp.Expr | None, source: str) -> bool:
    """Return whether an expression has only plain columns of the source, and no query."""
    if node is None:
        return True
    if node.find(exp.Query) is not None:
        return False
    columns = [
        each
        for each in node.walk()
        if isinstance(each, exp.Column)
        or (isinstance(each, exp.Dot) and not isinstance(each.parent, exp.Dot))
    ]
    return all(_owner(each) == source.lower() for each in columns)


def _same_type(source_rows: DataFrame, value: Column, schema: st.StructType, name: str) -> bool:
    """Return whether equality with a key column means equality of the written keys."""
    found = source_rows.select(value.alias(name)).schema[name].dataType
    expected = schema[name].dataType
    return found == expected or (
        isinstance(found, st.IntegerType) and isinstance(expected, st.LongType)
    )


CANDIDATE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Size in Arrow. If the candidate rows are larger, Spark reads the table."""

_BROADCAST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Size in Arrow. Smaller candidates are broadcast; larger ones are shuffled like the source."""

_COMPARABLE_TYPES: Final = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.StringType,
    st.DateType,
)
"""Types for which equality in Arrow is the same as equality in Spark."""

_KEY: Final = "_tidelock_key_"


@dataclass(frozen=True, slots=True)
class MergeCandidates:
    """Target rows that source rows may match; `in_driver` if they are collected already."""

    frame: DataFrame
    in_driver: bool = False


@dataclass(frozen=True, slots=True)
class CandidateSource:
    """A source that fits the driver; `pairs` maps target columns to equal source columns."""

    target: StatementTarget
    source: DataFrame
    pairs: Mapping[str, str]

    def rows(self, snapshot: ReadSnapshot, names: Sequence[str]) -> MergeCandidates | None:
        """Return the target rows that some source row may match; None if the keys are too many.

        Raises: `InvalidInput`, `NotFound`, and the errors of reads.
        """
        columns = [F.col(quoted(name)) for name in self.pairs.values()]
        key_columns = self.source.select(*(c.alias(f"{_KEY}{i}") for i, c in enumerate(columns)))
        if not fits_driver(key_columns):
            return None
        if is_local_master(self.target.spark) and fits_driver(self.source):
            found = self._read_in_driver(self.target.collect_arrow(key_columns), snapshot, names)
            if found is not None:
                return found
        return MergeCandidates(self._semi_joined(key_columns, snapshot, names))

    def _read_in_driver(
        self, key_columns: pa.Table, snapshot: ReadSnapshot, names: Sequence[str]
    ) -> MergeCandidates | None:
        """Return the rows, read by this process; None if they exceed the limit."""
        values = {
            name: column.unique().drop_null().cast(snapshot.schema.field(name).type)
            for name, column in zip(self.pairs, key_columns.columns, strict=True)
        }
        found = snapshot.lookup(names, values, bytes_max=CANDIDATE_BYTES_MAX)
        if found is None:
            return None
        plain = found.cast(worker_schema(found.schema))
        frame = local_frame(self.target.spark, plain, spark_schema(found.schema))
        small = plain.nbytes <= _BROADCAST_BYTES_MAX
        return MergeCandidates(F.broadcast(frame) if small else frame, in_driver=True)

    def _semi_joined(
        self, key_columns: DataFrame, snapshot: ReadSnapshot, names: Sequence[str]
    ) -> DataFrame:
        """Return the rows, read by Spark and semi-joined with the keys."""
        same = all_of(
            self.target.column(name) == F.col(f"{_KEY}{i}") for i, name in enumerate(self.pairs)
        )
        rows = self.target.frame(snapshot, frozenset(name.lower() for name in names))
        return rows.join(F.broadcast(key_columns), same, "left_semi")


def candidate_source(
    target: StatementTarget, on: exp.Expr, name: str, source: DataFrame
) -> CandidateSource | None:
    """Return the lookup of candidate rows; None unless ON equates the whole record key.

    `name` is the alias of the source.
    """
    if target.uses_meta_columns or on.find(exp.Query) is not None:
        return None
    schema = spark_schema(target.table.schema)
    source_columns = {each.lower(): each for each in source.columns}
    pairs: dict[str, str] = {}
    for column, other in key_equalities(target, on, name, schema.names):
        match = source_columns.get(other.name.lower())
        if match is not None and _compare_alike(
            schema[column].dataType, source.schema[match].dataType
        ):
            pairs.setdefault(column, match)
    if len(source_columns) < len(source.columns) or not set(target.key_columns) <= set(pairs):
        return None
    # The source is read twice, so it is cached if it is computed or may differ the second time.
    repeatable = source if is_rereadable(source) else target.cache(source)
    return CandidateSource(target, repeatable, pairs)


def _compare_alike(one: st.DataType, other: st.DataType) -> bool:
    """Return whether equality of these types is the same in Arrow and in Spark."""
    if isinstance(one, st.LongType) and isinstance(other, st.IntegerType):
        return True
    return one == other and isinstance(one, _COMPARABLE_TYPES)


_TARGET_ROW: Final = "_tidelock_target_row"
_SOURCE_ROW: Final = "_tidelock_source_row"
_CLAUSE: Final = "_tidelock_clause"
_OLD: Final = "_tidelock_old_"


@dataclass(frozen=True, slots=True)
class MergeExecution:
    """A MERGE that joins source and target; `source` is the alias of the source."""

    target: StatementTarget
    tree: exp.Merge
    source: str

    def compute(self, snapshot: ReadSnapshot) -> object | None:
        """Return the rows to write, including tombstones; None if there are none.

        Raises: `InvalidInput` if several source rows would update one target row.
        """
        with self.target.sources(snapshot) as sources:
            source = merge_source(self.target.statement, sources, self.tree)
            schema = spark_schema(snapshot.schema)
            names = schema.names
            clauses = parse_clauses(self.target, self.tree, self.source, names, source.columns)
            candidates = self._candidates(source, snapshot, clauses)
            joined = self._joined(sources, source, candidates.frame, clauses)
            matched_rows = joined.withColumn(_CLAUSE, self._action(sources, clauses))
            matched_rows = matched_rows.where(F.col(_CLAUSE).isNotNull())
            rows = matched_rows.select(*self._columns(sources, clauses, schema))
            in_driver = candidates.in_driver or (is_small(snapshot) and fits_driver(source))
            if in_driver and not self._changes_partition(clauses):
                return self._checked_arrow(self.target.collect_arrow(rows), schema)
            cached = self.target.cache(rows)
            if not self._checked(cached):
                return None
            return self._with_partition_moves(cached, clauses, schema)

    def _candidates(
        self, source: DataFrame, snapshot: ReadSnapshot, clauses: Sequence[Clause]
    ) -> MergeCandidates:
        """Return the target rows that may match, or all if that cannot be narrowed down."""
        target, on, named = self.target, self.tree.args["on"], None
        matches = {clause.when for clause in clauses}
        if matches == {ClauseMatch.NOT_MATCHED} and (named := columns_named(on)) is not None:
            named |= {name.lower() for name in self.target.identity}
        if ClauseMatch.BY_SOURCE not in matches:
            names = [n for n in snapshot.schema.names if named is None or n.lower() in named]
            lookup = candidate_source(target, on, self.source, source)
            candidates = None if lookup is None else lookup.rows(snapshot, names)
            if candidates is not None:
                return candidates
        return MergeCandidates(target.frame(snapshot, named))

    def _joined(
        self, sources: Sources, source: DataFrame, candidates: DataFrame, clauses: Sequence[Clause]
    ) -> DataFrame:
        """Return the join of source and target rows."""
        target, on = self.target, self.tree.args["on"]
        matches = {clause.when for clause in clauses}
        target_rows = candidates.withColumn(_TARGET_ROW, _true()).alias(target.alias)
        source_rows = source.withColumn(_SOURCE_ROW, _true()).alias(self.source)
        how = "inner"
        if ClauseMatch.BY_SOURCE in matches:
            how = "full"
        elif ClauseMatch.NOT_MATCHED in matches:
            how = "left"
        return source_rows.join(target_rows, F.expr(sources.expression(target.statement, on)), how)

    def _action(self, sources: Sources, clauses: Sequence[Clause]) -> Column:
        """Return the index of the first clause that applies to a row; null if none does."""
        target_rows, source_rows = F.col(_TARGET_ROW).isNotNull(), F.col(_SOURCE_ROW).isNotNull()
        rows = {
            ClauseMatch.MATCHED: target_rows & source_rows,
            ClauseMatch.NOT_MATCHED: source_rows & ~target_rows,
            ClauseMatch.BY_SOURCE: target_rows & ~source_rows,
        }
        branches = []
        for number, clause in enumerate(clauses):
            applies = rows[clause.when]
            if clause.condition is not None:
                condition = sources.expression(self.target.statement, clause.condition)
                applies = applies & F.expr(condition)
            branches.append((applies, F.lit(number)))
        return _case_when(branches)

    def _columns(
        self, sources: Sources, clauses: Sequence[Clause], schema: st.StructType
    ) -> list[Column]:
        """Return the new target columns, and the columns that the checks need."""
        by_clause = [self._values(sources, clause, schema) for clause in clauses]
        action = F.col(_CLAUSE)
        columns = []
        for name in schema.names:
            branches = [(action == n, values[name]) for n, values in enumerate(by_clause)]
            columns.append(cast_column(_case_when(branches), schema, name))
        columns += [self.target.column(name).alias(_OLD + name) for name in self.target.identity]
        deletes = [
            number for number, clause in enumerate(clauses) if clause.then is ClauseAction.DELETE
        ]
        return [*columns, F.col(_TARGET_ROW), action.isin(deletes).alias(TOMBSTONE)]

    def _values(self, sources: Sources, clause: Clause, schema: st.StructType) -> dict[str, Column]:
        target, statement = self.target, self.target.statement
        match clause.then:
            case ClauseAction.DELETE:
                return {name: target.column(name) for name in schema.names}
            case ClauseAction.UPDATE:
                values = assigned_columns(statement, sources, target, clause.values, schema)
                for name in target.key_columns:
                    if name in values:
                        values[name] = self._unchanged_key(values[name], name)
                return {name: values.get(name, target.column(name)) for name in schema.names}
            case ClauseAction.INSERT:
                inserted = {
                    name: value_column(statement, sources, parts[0][1])
                    for name, parts in clause.values.items()
                }
                return {
                    name: inserted.get(name, F.lit(None)).cast(schema[name].dataType)
                    for name in schema.names
                }

    def _unchanged_key(self, value: Column, name: str) -> Column:
        message = (
            f"{REJECTED}MERGE: {name} is part of the record key of {self.target.entry.name} and"
            " cannot be updated"
        )
        changed = ~value.eqNullSafe(self.target.column(name))
        return F.when(changed, F.raise_error(F.lit(message))).otherwise(value)

    def _checked(self, rows: DataFrame) -> int:
        """Return the number of rows. Raises: `InvalidInput` if a target row is updated twice."""
        before = [F.col(quoted(_OLD + name)) for name in self.target.identity]
        changed = F.col(_TARGET_ROW).isNotNull() & ~F.col(TOMBSTONE)
        each = rows.groupBy(*before).agg(
            F.count(_true()).alias("n"),
            F.max(F.col(_TARGET_ROW).isNotNull() & changed).alias("changed"),
        )
        ambiguous = F.when((F.col("n") > 1) & F.col("changed"), F.to_json(F.struct(*before)))
        found = each.agg(F.sum("n").alias("n"), F.max(ambiguous).alias("ambiguous"))
        (total,) = run_statement_job(self.target.spark, self.target.entry.name, found.collect)
        if total["ambiguous"] is not None:
            raise self._ambiguous_match(total["ambiguous"].replace(_OLD, ""))
        return int(total["n"] or 0)

    def _checked_arrow(self, rows: pa.Table, schema: st.StructType) -> pa.Table | None:
        """Return the rows to write, from collected rows; None if there are none."""
        before = [_OLD + name for name in self.target.identity]
        matched = rows.filter(rows.column(_TARGET_ROW).is_valid())
        each = matched.group_by(before).aggregate([(TOMBSTONE, "min"), ([], "count_all")])
        changed = pc.invert(each.column(f"{TOMBSTONE}_min"))
        ambiguous = each.filter(pc.and_(changed, pc.greater(each.column("count_all"), 1)))
        if ambiguous.num_rows:
            first = ambiguous.select(before).slice(0, 1).to_pylist()[0]
            row = {name.removeprefix(_OLD): value for name, value in first.items()}
            raise self._ambiguous_match(json.dumps(row, default=str, separators=(",", ":")))
        return rows.select([*schema.names, TOMBSTONE]) if rows.num_rows else None

    def _ambiguous_match(self, row: str) -> InvalidInput:
        return InvalidInput(
            f"MERGE: several rows of {self.source} match one row of {self.target.entry.name}:"
            f" {row}",
            hint="deduplicate the source, for example with GROUP BY",
        )

    def _changes_partition(self, clauses: Sequence[Clause]) -> bool:
        """Return whether a clause may move a row to another partition."""
        parts = set(self.target.partition_columns)
        return any(c.then is ClauseAction.UPDATE and parts & set(c.values) for c in clauses)

    def _with_partition_moves(
        self, rows: DataFrame, clauses: Sequence[Clause], schema: st.StructType
    ) -> DataFrame:
        """Return the rows to write, with a tombstone for each row that moves."""
        written = rows.select(*(F.col(quoted(name)) for name in [*schema.names, TOMBSTONE]))
        parts = self.target.partition_columns
        if not self._changes_partition(clauses):
            return written
        same = all_of(F.col(quoted(name)).eqNullSafe(F.col(quoted(_OLD + name))) for name in parts)
        moved = rows.where(F.col(_TARGET_ROW).isNotNull() & ~F.col(TOMBSTONE) & ~same)
        columns = [
            F.col(quoted(_OLD + name if name in parts else name)).alias(name)
            for name in schema.names
        ]
        tombstones = moved.select(*columns, _true().alias(TOMBSTONE))
        return tombstones.unionByName(written)


def merge(target: StatementTarget, tree: exp.Merge) -> DataFrame:
    """Execute a MERGE INTO. Raises: `InvalidInput`, and the errors of reads and writes."""
    source = tree.args["using"].alias_or_name
    rows = _rows_without_join(target, tree, source)
    if rows is not None:
        names = rows.column_names if isinstance(rows, pa.Table) else rows.columns
        only_keys = TOMBSTONE not in names
        batch = None if isinstance(rows, pa.Table) and not rows.num_rows else rows
        operation = "delete" if only_keys else "upsert"
        return target.rewrite(lambda _: batch, operation, tombstones=not only_keys, reads=False)
    execution = MergeExecution(target, tree, source)
    return target.rewrite(execution.compute, "upsert", tombstones=True)


def _rows_without_join(
    target: StatementTarget, tree: exp.Merge, source: str
) -> DataFrame | pa.Table | None:
    """Return the rows of a MERGE if they follow from the source alone; otherwise None."""
    with Sources(target.spark, target.catalog) as sources:
        if target.entry.uri in _tables_read(target, sources, tree):
            return None
        rows = merge_source(target.statement, sources, tree)
        schema = spark_schema(target.table.schema)
        clauses = parse_clauses(target, tree, source, schema.names, rows.columns)
        keyed = keyed_merge(target, tree, source, clauses, schema.names)
        return None if keyed is None else keyed.rows(sources, rows, schema)


def _tables_read(target: StatementTarget, sources: Sources, tree: exp.Merge) -> set[str]:
    """Return the URIs of the Tidelock tables that the source of a MERGE reads."""
    names = [each.parts for each in sources.tidelock_tables(target.statement)]
    if isinstance(tree.args["using"], exp.Table):
        names.append(name_parts(tree.args["using"]))
    found = (target.catalog.find(parts) for parts in names)
    return {entry.uri for entry in found if entry is not None}


def _true() -> Column:
    return F.lit(True)  # noqa: FBT003 - Spark's literal


def _case_when(chosen: Sequence[tuple[Column, Column]]) -> Column:
    """Return the value of the first condition that is true."""
    (condition, value), *others = chosen
    found = F.when(condition, value)
    for other, its in others:
        found = found.when(other, its)
    return found
