"""MERGE on the record key, without a join: the index of the table finds the rows that match.

That needs rows that are the same whether they match or not, so it is for statements in which what
is written follows from the source alone: updates and inserts that set all columns to the same
values, and deletes. Source rows for which that does not hold send the statement the other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import IntegerType, LongType, StructType
from sqlglot import exp

from tidelock.kernel.route import TOMBSTONE
from tidelock.pipeline.sql.changing import value_of
from tidelock.pipeline.sql.clauses import Clause, Then, When
from tidelock.pipeline.sql.failing import carried_out
from tidelock.pipeline.sql.reading import Sources
from tidelock.pipeline.sql.target import Target, fits_driver, fitted
from tidelock.pipeline.sql.text import quoted

_ODD: Final = "_tidelock_odd"


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """A MERGE whose rows follow from the source; `values` are those of all columns."""

    target: Target
    source: str
    values: Mapping[str, exp.Expr]
    clauses: Sequence[Clause]

    def rows(
        self, sources: Sources, source: DataFrame, kind: StructType
    ) -> DataFrame | pa.Table | None:
        """Return the rows to write, tombstones among them; as Arrow if they are few.

        None if some source row asks for what only the matching row can tell, or comes twice.
        """
        there = source.alias(self.source)
        identity = [*dict.fromkeys([*self.target.keys, *self.target.partitions])]
        chosen = {name: self._value(sources, self.values[name]) for name in self.values}
        if not all(_same_type(there, chosen[name], kind, name) for name in identity):
            return None
        matched, missing = self._then(sources, When.MATCHED), self._then(sources, When.NOT_MATCHED)
        writes = (matched == Then.UPDATE.value) & (missing == Then.INSERT.value)
        deletes = (matched == Then.DELETE.value) & (missing == "")
        nothing = (matched == "") & (missing == "")
        odd = ~(writes | deletes)
        for name in identity:
            odd = odd | chosen[name].isNull()
        columns = identity if self.only_deletes else kind.names
        every = [fitted(chosen[name], kind, name) for name in columns]
        found = there.where(~nothing).select(*every, deletes.alias(TOMBSTONE), odd.alias(_ODD))
        if fits_driver(found):
            return self._checked(self.target.as_arrow(found), identity)
        kept = self.target.keep(found)
        keys = [F.col(quoted(name)) for name in identity]
        each = kept.groupBy(*keys).agg(F.count(F.lit(1)).alias("n"), F.max(_ODD).alias("odd"))
        twice = F.lit(not self.only_deletes) & (F.col("n") > 1)
        check = each.agg(F.max(twice | F.col("odd")).alias("odd"))
        (seen,) = carried_out(self.target.spark, self.target.entry.name, check.collect)
        if seen["odd"] is not False:
            return None  # some row is odd, or there is none
        return kept.drop(_ODD, TOMBSTONE) if self.only_deletes else kept.drop(_ODD)

    def _checked(self, rows: pa.Table, identity: Sequence[str]) -> pa.Table | None:
        if pc.any(rows.column(_ODD)).as_py():
            return None
        counts = rows.group_by(list(identity)).aggregate([([], "count_all")])
        if not self.only_deletes and pc.any(pc.greater(counts.column("count_all"), 1)).as_py():
            return None
        return rows.drop_columns([_ODD, TOMBSTONE] if self.only_deletes else [_ODD])

    @property
    def only_deletes(self) -> bool:
        """Tell whether no row is updated or inserted, so that the rows are keys alone."""
        return all(clause.then is Then.DELETE for clause in self.clauses)

    def _then(self, sources: Sources, when: When) -> Column:
        """Return the word of the first clause that a source row meets; "" for none."""
        found: Column | None = None
        for clause in self.clauses:
            if clause.when is not when:
                continue
            meets = F.lit(True)  # noqa: FBT003 - Spark's literal
            if clause.condition is not None:
                meets = F.expr(sources.expression(self.target.statement, clause.condition))
            word = F.lit(clause.then.value)
            found = F.when(meets, word) if found is None else found.when(meets, word)
        return F.lit("") if found is None else found.otherwise(F.lit(""))

    def _value(self, sources: Sources, node: exp.Expr) -> Column:
        return value_of(self.target.statement, sources, node)


def keyed_merge(
    target: Target, tree: exp.Merge, source: str, clauses: Sequence[Clause], known: Sequence[str]
) -> KeyedMerge | None:
    """Return a MERGE that needs no join; None for one that does."""
    pairs = _pairs(target, tree.args["on"], source)
    identity = {*target.keys, *target.partitions}
    if pairs is None or set(pairs) != identity:
        return None
    values: Mapping[str, exp.Expr] | None = None
    for clause in clauses:
        if clause.when is When.BY_SOURCE or not _is_from(clause.condition, source):
            return None
        if clause.then is Then.DELETE:
            continue
        mine = {name: parts[0][1] for name, parts in clause.values.items()}
        whole = all(len(parts) == 1 and not parts[0][0] for parts in clause.values.values())
        if not whole or set(mine) != set(known) or not _all_from(mine, source):
            return None
        if values is not None and any(values[name] != mine[name] for name in known):
            return None
        values = mine
    done = {clause.then for clause in clauses}
    if values is None:
        values = pairs
    elif not {Then.UPDATE, Then.INSERT} <= done:
        return None  # only the row that matches, or none, tells whether there is anything to do
    if any(not _same_name(values[name], pairs[name]) for name in identity):
        return None
    return KeyedMerge(target, source, values, clauses)


def _pairs(target: Target, on: exp.Expr, source: str) -> dict[str, exp.Expr] | None:
    """Return for each target column of ON what it equals in the source; None for any other ON."""
    found: dict[str, exp.Expr] = {}
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on]
    for name, other in equalities(target, on, source, (*target.keys, *target.partitions)):
        if name in found:
            return None
        found[name] = other
    return found if len(found) == len(parts) else None


def equalities(
    target: Target, on: exp.Expr, source: str, known: Sequence[str]
) -> Iterator[tuple[str, exp.Expr]]:
    """Yield the `known` columns of the target that ON wants to equal a plain source column."""
    names = {name.lower(): name for name in known}
    for part in on.flatten() if isinstance(on, exp.And) else [on]:
        if not isinstance(part.unnest(), exp.EQ):
            continue
        left, right = part.unnest().this, part.unnest().expression
        for mine, other in ((left, right), (right, left)):
            owners = (_owner(mine), _owner(other))
            if owners == (target.alias.lower(), source.lower()) and mine.name.lower() in names:
                yield names[mine.name.lower()], other
                break


def _owner(node: exp.Expr) -> str | None:
    """Return whose a plain column is; None for anything else."""
    if isinstance(node, exp.Column) and len(node.parts) == 2:
        return str(node.table).lower()
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Identifier):
        return str(node.this.name).lower()
    return None


def _same_name(mine: exp.Expr, other: exp.Expr) -> bool:
    return (
        _owner(mine) is not None
        and _owner(mine) == _owner(other)
        and mine.name.lower() == other.name.lower()
    )


def _all_from(values: Mapping[str, exp.Expr], source: str) -> bool:
    return all(_is_from(value, source) for value in values.values())


def _is_from(node: exp.Expr | None, source: str) -> bool:
    """Tell whether an expression has plain columns of the source alone, and no query."""
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


def _same_type(there: DataFrame, value: Column, kind: StructType, name: str) -> bool:
    """Tell whether equality with a key column is equality of the keys that are written."""
    offered = there.select(value.alias(name)).schema[name].dataType
    wanted = kind[name].dataType
    return offered == wanted or (isinstance(offered, IntegerType) and isinstance(wanted, LongType))
