"""MERGE INTO, taken apart: its clauses in their order, with names that say whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from tidelock.pipeline.sql.changing import Assigned, assignments
from tidelock.pipeline.sql.statement import place_of, rendered
from tidelock.pipeline.sql.target import Target
from tidelock.pipeline.sql.text import mistake, nearest


class When(Enum):
    """Which rows a clause is about."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    BY_SOURCE = "NOT MATCHED BY SOURCE"


class Then(Enum):
    """What a clause does with a row."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


@dataclass(frozen=True, slots=True)
class Clause:
    """One WHEN clause. `values` are those of the columns that it sets or inserts."""

    when: When
    then: Then
    condition: exp.Expr | None
    values: Assigned


def clauses(
    target: Target, tree: exp.Merge, source: str, known: Sequence[str], offered: Sequence[str]
) -> tuple[Clause, ...]:
    """Return the clauses of a MERGE.

    `source` is what the statement calls the source, `known` are the target's columns and `offered`
    those of the source. Raises: `InvalidInput` at the place of what is wrong.
    """
    reader = _Reader(target, source, known, offered)
    whens = tree.args.get("whens")
    found = tuple(reader.clause(node) for node in (whens.expressions if whens else ()))
    if not found:
        raise mistake(
            target.statement.text, None, "MERGE has no WHEN clause", hint="WHEN MATCHED THEN ..."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    target: Target
    source: str
    known: Sequence[str]
    offered: Sequence[str]

    def clause(self, node: exp.Expr) -> Clause:
        when = When.NOT_MATCHED
        if node.args.get("matched"):
            when = When.MATCHED
        elif node.args.get("source"):
            when = When.BY_SOURCE
        side = {When.NOT_MATCHED: self.source, When.BY_SOURCE: self.target.alias}.get(when)
        condition = node.args.get("condition")
        if condition is not None:
            condition = self._owned(condition, side)
        then = node.args.get("then")
        if isinstance(then, exp.Update) and when is not When.NOT_MATCHED:
            return Clause(when, Then.UPDATE, condition, self._updated(then, when, side))
        if isinstance(then, exp.Insert) and when is When.NOT_MATCHED:
            return Clause(when, Then.INSERT, condition, self._inserted(then, side))
        deletes = isinstance(then, exp.Var) and then.name.upper() == "DELETE"
        if deletes and when is not When.NOT_MATCHED:
            return Clause(when, Then.DELETE, condition, {})
        raise mistake(
            self.target.statement.text,
            place_of(node),
            f"WHEN {when.value} cannot THEN {_word(then)}",
            hint="a row that is matched is updated or deleted; one that is not is inserted",
        )

    def _updated(self, then: exp.Update, when: When, side: str | None) -> Assigned:
        if any(isinstance(each, exp.Star) for each in then.expressions):
            if when is When.BY_SOURCE:
                raise mistake(
                    self.target.statement.text,
                    None,
                    "WHEN NOT MATCHED BY SOURCE has no source row for UPDATE SET *",
                    hint="name the columns and their values",
                )
            return self._all()
        found = assignments(self.target, then.expressions, self.known)
        return {
            name: [(inner, self._owned(node, side)) for inner, node in parts]
            for name, parts in found.items()
        }

    def _inserted(self, then: exp.Insert, side: str | None) -> Assigned:
        if isinstance(then.this, exp.Star):
            return self._all()
        values = then.expression.expressions if then.expression is not None else []
        nodes = then.this.expressions if then.this is not None else []
        if not nodes:
            nodes = [exp.column(name) for name in self.known]
        if len(nodes) != len(values):
            raise mistake(
                self.target.statement.text,
                place_of(then),
                f"INSERT names {len(nodes)} columns and gives {len(values)} values",
            )
        found: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
        for node, value in zip(nodes, values, strict=True):
            name, _ = self.target.column(node, self.known)
            if name in found:
                raise mistake(
                    self.target.statement.text, place_of(node), f"{name} is inserted twice"
                )
            found[name] = [((), self._owned(value, side))]
        return found

    def _all(self) -> Assigned:
        """Return the values of `*`: each column of the target from the source's of that name."""
        by_name = {name.lower(): name for name in self.offered}
        found: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
        for name in self.known:
            if name.lower() not in by_name:
                raise mistake(
                    self.target.statement.text,
                    None,
                    f"the source has no column {name} for *",
                    hint=nearest(name, self.offered) or "name the columns and their values",
                )
            column = exp.column(by_name[name.lower()], table=self.source, quoted=True)
            found[name] = [((), column)]
        return found

    def _owned(self, node: exp.Expr, side: str | None) -> exp.Expr:
        """Return an expression whose bare names belong to one side, as they do in such a clause.

        The table's full name, which Spark does not know here, becomes what the statement calls it.
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
            elif side is not None and parts[0].name.lower() not in sides and not _default(column):
                parts = [exp.to_identifier(side, quoted=True), *parts]
            else:
                continue
            other = exp.Dot.build([part.copy() for part in parts])
            if column is copy:
                return other
            column.replace(other)
        return copy


def _default(column: exp.Column) -> bool:
    return rendered(column).upper() == "DEFAULT"


def _word(then: object) -> str:
    match then:
        case exp.Update():
            return "UPDATE"
        case exp.Insert():
            return "INSERT"
        case _:
            return "DELETE"
