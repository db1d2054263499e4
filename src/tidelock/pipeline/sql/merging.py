"""MERGE INTO: source and target brought together, and each row given to its first clause."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import StructType
from sqlglot import exp

from tidelock.base.errors import InvalidInput
from tidelock.kernel.route import TOMBSTONE
from tidelock.operation.moment import Moment
from tidelock.pipeline.sql.changing import set_values, value_of
from tidelock.pipeline.sql.clauses import Clause, Then, When, clauses
from tidelock.pipeline.sql.failing import REFUSED, carried_out
from tidelock.pipeline.sql.keyed import keyed_merge
from tidelock.pipeline.sql.meeting import Met, meeting_of
from tidelock.pipeline.sql.mergesource import source_frame
from tidelock.pipeline.sql.reading import Sources
from tidelock.pipeline.sql.references import columns_named, name_parts
from tidelock.pipeline.sql.target import (
    Target,
    fits_driver,
    fitted,
    is_small,
    struct_of,
)
from tidelock.pipeline.sql.text import quoted

_HERE: Final = "_tidelock_here"
_THERE: Final = "_tidelock_there"
_ACTION: Final = "_tidelock_action"
_BEFORE: Final = "_tidelock_before_"


@dataclass(frozen=True, slots=True)
class Merging:
    """A MERGE that is being carried out; `source` is what it calls its source."""

    target: Target
    tree: exp.Merge
    source: str

    def compute(self, now: Moment) -> object | None:
        """Return the rows that the statement writes, tombstones among them; None for none.

        Raises: `InvalidInput` where two source rows would change one target row.
        """
        with self.target.sources(now) as sources:
            source = source_frame(self.target.statement, sources, self.tree)
            kind = struct_of(now.schema)
            found = clauses(self.target, self.tree, self.source, kind.names, source.columns)
            met = self._met(source, now, found)
            joined = self._joined(sources, source, met.frame, found)
            acted = joined.withColumn(_ACTION, self._action(sources, found))
            acted = acted.where(F.col(_ACTION).isNotNull())
            rows = acted.select(*self._columns(sources, found, kind))
            few = met.few or (is_small(now) and fits_driver(source))
            if few and not self._moves(found):
                return self._checked_table(self.target.as_arrow(rows), kind)
            kept = self.target.keep(rows)
            return self._with_moves(kept, found, kind) if self._checked(kept) else None

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell rows of the target apart."""
        return tuple(dict.fromkeys([*self.target.keys, *self.target.partitions]))

    def _met(self, source: DataFrame, now: Moment, found: Sequence[Clause]) -> Met:
        """Return the target's rows, without those that it is known that no source row matches."""
        target, on, named = self.target, self.tree.args["on"], None
        kinds = {clause.when for clause in found}
        if kinds == {When.NOT_MATCHED} and (named := columns_named(on)) is not None:
            named |= {name.lower() for name in self.identity}
        if When.BY_SOURCE not in kinds:
            names = [n for n in now.schema.names if named is None or n.lower() in named]
            meeting = meeting_of(target, on, self.source, source)
            met = None if meeting is None else meeting.rows(now, names)
            if met is not None:
                return met
        return Met(target.frame(now, named))

    def _joined(
        self, sources: Sources, source: DataFrame, met: DataFrame, found: Sequence[Clause]
    ) -> DataFrame:
        """Return source rows beside the target rows that they match."""
        target, on = self.target, self.tree.args["on"]
        kinds = {clause.when for clause in found}
        here = met.withColumn(_HERE, _yes()).alias(target.alias)
        there = source.withColumn(_THERE, _yes()).alias(self.source)
        how = "inner"
        if When.BY_SOURCE in kinds:
            how = "full"
        elif When.NOT_MATCHED in kinds:
            how = "left"
        return there.join(here, F.expr(sources.expression(target.statement, on)), how)

    def _action(self, sources: Sources, found: Sequence[Clause]) -> Column:
        """Return the number of the first clause that a row meets; null if it meets none."""
        here, there = F.col(_HERE).isNotNull(), F.col(_THERE).isNotNull()
        rows = {
            When.MATCHED: here & there,
            When.NOT_MATCHED: there & ~here,
            When.BY_SOURCE: here & ~there,
        }
        chosen = []
        for number, clause in enumerate(found):
            meets = rows[clause.when]
            if clause.condition is not None:
                text = sources.expression(self.target.statement, clause.condition)
                meets = meets & F.expr(text)
            chosen.append((meets, F.lit(number)))
        return _first_of(chosen)

    def _columns(self, sources: Sources, found: Sequence[Clause], kind: StructType) -> list[Column]:
        """Return the target's columns after the clauses, and what the checks need."""
        every = [self._values(sources, clause, kind) for clause in found]
        action = F.col(_ACTION)
        columns = []
        for name in kind.names:
            chosen = [(action == number, values[name]) for number, values in enumerate(every)]
            columns.append(fitted(_first_of(chosen), kind, name))
        columns += [self.target.of(name).alias(_BEFORE + name) for name in self.identity]
        deletes = [number for number, clause in enumerate(found) if clause.then is Then.DELETE]
        return [*columns, F.col(_HERE), action.isin(deletes).alias(TOMBSTONE)]

    def _values(self, sources: Sources, clause: Clause, kind: StructType) -> dict[str, Column]:
        target, statement = self.target, self.target.statement
        match clause.then:
            case Then.DELETE:
                return {name: target.of(name) for name in kind.names}
            case Then.UPDATE:
                values = set_values(statement, sources, target, clause.values, kind)
                for name in target.keys:
                    if name in values:
                        values[name] = self._same_key(values[name], name)
                return {name: values.get(name, target.of(name)) for name in kind.names}
            case Then.INSERT:
                given = {
                    name: value_of(statement, sources, parts[0][1])
                    for name, parts in clause.values.items()
                }
                return {
                    name: given.get(name, F.lit(None)).cast(kind[name].dataType)
                    for name in kind.names
                }

    def _same_key(self, value: Column, name: str) -> Column:
        message = (
            f"{REFUSED}MERGE would change {name}, which is part of the record key of"
            f" {self.target.entry.name}"
        )
        changed = ~value.eqNullSafe(self.target.of(name))
        return F.when(changed, F.raise_error(F.lit(message))).otherwise(value)

    def _checked(self, rows: DataFrame) -> int:
        """Return how many rows come out. Raises: `InvalidInput` if one was changed twice."""
        before = [F.col(quoted(_BEFORE + name)) for name in self.identity]
        changed = F.col(_HERE).isNotNull() & ~F.col(TOMBSTONE)
        each = rows.groupBy(*before).agg(
            F.count(_yes()).alias("n"), F.max(F.col(_HERE).isNotNull() & changed).alias("changed")
        )
        twice = F.when((F.col("n") > 1) & F.col("changed"), F.to_json(F.struct(*before)))
        found = each.agg(F.sum("n").alias("n"), F.max(twice).alias("twice"))
        (total,) = carried_out(self.target.spark, self.target.entry.name, found.collect)
        if total["twice"] is not None:
            raise self._twice(total["twice"].replace(_BEFORE, ""))
        return int(total["n"] or 0)

    def _checked_table(self, rows: pa.Table, kind: StructType) -> pa.Table | None:
        """Return the rows to write, of a few that were collected; None for none."""
        before = [_BEFORE + name for name in self.identity]
        met = rows.filter(rows.column(_HERE).is_valid())
        each = met.group_by(before).aggregate([(TOMBSTONE, "min"), ([], "count_all")])
        changed = pc.invert(each.column(f"{TOMBSTONE}_min"))
        twice = each.filter(pc.and_(changed, pc.greater(each.column("count_all"), 1)))
        if twice.num_rows:
            first = twice.select(before).slice(0, 1).to_pylist()[0]
            shown = {name.removeprefix(_BEFORE): value for name, value in first.items()}
            raise self._twice(json.dumps(shown, default=str, separators=(",", ":")))
        return rows.select([*kind.names, TOMBSTONE]) if rows.num_rows else None

    def _twice(self, shown: str) -> InvalidInput:
        return InvalidInput(
            f"several rows of {self.source} match one row of {self.target.entry.name}: {shown}",
            hint="let the source have one row for each, for example by GROUP BY",
        )

    def _moves(self, found: Sequence[Clause]) -> bool:
        """Tell whether a clause may send a row to another partition."""
        parts = set(self.target.partitions)
        return any(c.then is Then.UPDATE and parts & set(c.values) for c in found)

    def _with_moves(self, rows: DataFrame, found: Sequence[Clause], kind: StructType) -> DataFrame:
        """Return the rows to write, with a tombstone for each that leaves its partition."""
        written = rows.select(*(F.col(quoted(name)) for name in [*kind.names, TOMBSTONE]))
        parts = self.target.partitions
        if not self._moves(found):
            return written
        same = _yes()
        for name in parts:
            same = same & F.col(quoted(name)).eqNullSafe(F.col(quoted(_BEFORE + name)))
        moved = rows.where(F.col(_HERE).isNotNull() & ~F.col(TOMBSTONE) & ~same)
        columns = [
            F.col(quoted(_BEFORE + name if name in parts else name)).alias(name)
            for name in kind.names
        ]
        gone = moved.select(*columns, _yes().alias(TOMBSTONE))
        return gone.unionByName(written)


def merge(target: Target, tree: exp.Merge) -> DataFrame:
    """Carry out a MERGE INTO. Raises: `InvalidInput` and what reading and writing raise."""
    source = tree.args["using"].alias_or_name
    rows = _without_join(target, tree, source)
    if rows is not None:
        names = rows.column_names if isinstance(rows, pa.Table) else rows.columns
        keys = TOMBSTONE not in names
        some = None if isinstance(rows, pa.Table) and not rows.num_rows else rows
        operation = "delete" if keys else "upsert"
        return target.rewrite(lambda _: some, operation, tombstones=not keys, reads=False)
    merging = Merging(target, tree, source)
    return target.rewrite(merging.compute, "upsert", tombstones=True)


def _without_join(target: Target, tree: exp.Merge, source: str) -> DataFrame | pa.Table | None:
    """Return the rows of a MERGE that the source alone tells; None for any other."""
    with Sources(target.spark, target.catalog) as sources:
        if target.entry.uri in _read(target, sources, tree):
            return None
        found = source_frame(target.statement, sources, tree)
        kind = struct_of(target.table.schema)
        every = clauses(target, tree, source, kind.names, found.columns)
        keyed = keyed_merge(target, tree, source, every, kind.names)
        return None if keyed is None else keyed.rows(sources, found, kind)


def _read(target: Target, sources: Sources, tree: exp.Merge) -> set[str]:
    """Return the places of the tables of ours that a MERGE reads beside its target."""
    names = [each.parts for each in sources.ours(target.statement)]
    if isinstance(tree.args["using"], exp.Table):
        names.append(name_parts(tree.args["using"]))
    found = (target.catalog.find(parts) for parts in names)
    return {entry.uri for entry in found if entry is not None}


def _yes() -> Column:
    return F.lit(True)  # noqa: FBT003 - Spark's literal


def _first_of(chosen: Sequence[tuple[Column, Column]]) -> Column:
    """Return the value of the first condition that holds."""
    (condition, value), *others = chosen
    found = F.when(condition, value)
    for other, its in others:
        found = found.when(other, its)
    return found
