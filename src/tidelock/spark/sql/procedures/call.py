"""CALL: binds the arguments of a procedure and runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from tidelock.core.errors import InvalidInput
from tidelock.spark.frames import frame_of_rows
from tidelock.spark.sql.catalog import Catalog
from tidelock.spark.sql.procedures import inspect, services
from tidelock.spark.sql.procedures.procedure import MISSING, Argument, Call, Procedure, Row
from tidelock.spark.sql.statement import Span, Statement, suggestion, to_sql


def call(spark: SparkSession, catalog: Catalog, statement: Statement) -> DataFrame:
    """Run a procedure and return its rows.

    Raises: `InvalidInput` for an unknown procedure or invalid arguments, `NotFound` for a missing
    table, and the errors of the procedure.
    """
    named = statement.tree
    if isinstance(named, exp.Dot):
        named = named.expression  # CALL system.run_clean(...) is also valid in Hudi
    if not isinstance(named, exp.Anonymous):
        raise statement.invalid(
            None,
            "CALL: expected a procedure with arguments",
            hint="CALL help() lists the procedures",
        )
    procedure = PROCEDURES.get(named.name.lower())
    if procedure is None:
        start = statement.text.lower().find(named.name.lower())
        raise statement.invalid(
            Span(start, start + len(named.name)),
            f"procedure {named.name} not found",
            hint=suggestion(named.name, PROCEDURES),
        )
    values = _values(statement, procedure, named.expressions)
    return frame_of_rows(spark, procedure.run(Call(spark, catalog, values)), procedure.columns)


def _values(
    statement: Statement, procedure: Procedure, nodes: Iterable[exp.Expr]
) -> Mapping[str, Any]:
    known = {argument.name: argument for argument in procedure.arguments}
    found: dict[str, Any] = {}
    for number, node in enumerate(nodes):
        if isinstance(node, exp.Kwarg | exp.PropertyEQ):
            name, value = node.this.name.lower(), node.expression
        elif number < len(procedure.arguments):
            name, value = procedure.arguments[number].name, node
        else:
            raise statement.invalid(
                node,
                f"{procedure.name}: expected at most {len(known)} arguments",
                hint=_usage(procedure),
            )
        if name not in known or name in found:
            problem = "duplicate" if name in found else "unknown"
            raise statement.invalid(
                node, f"{procedure.name}: {problem} argument {name}", hint=suggestion(name, known)
            )
        found[name] = _value(statement, known[name], value)
    for argument in procedure.arguments:
        if argument.name not in found:
            if argument.default is MISSING:
                raise InvalidInput(
                    f"{procedure.name}: missing argument {argument.name}", hint=_usage(procedure)
                )
            found[argument.name] = argument.default
    return found


def _value(statement: Statement, argument: Argument, node: exp.Expr) -> Any:
    value: object = None
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            value = bool(node.this)
        case exp.Literal() if node.is_string:
            value = node.name
        case exp.Literal() | exp.Neg() if node.is_int:
            value = int(node.to_py())
    if argument.type is str and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # instant times are often written as numbers
    if type(value) is not argument.type:
        raise statement.invalid(
            node,
            f"expected {argument.signature()}, got {to_sql(node)}",
            hint="CALL help() lists the procedures",
        )
    return value


def _usage(procedure: Procedure) -> str:
    arguments = ", ".join(argument.signature() for argument in procedure.arguments)
    return f"{procedure.name}({arguments})"


def _help(call: Call) -> Iterable[Row]:
    requested = call["cmd"]
    if requested is not None and requested.lower() not in PROCEDURES:
        raise InvalidInput(
            f"procedure {requested} not found", hint=suggestion(requested, PROCEDURES)
        )
    for name, procedure in sorted(PROCEDURES.items()):
        if requested is None or name == requested.lower():
            yield name, _usage(procedure), procedure.description


_HELP: Final = Procedure(
    "help",
    "lists the procedures",
    (Argument("cmd", str, None),),
    "procedure string, usage string, description string",
    _help,
)

PROCEDURES: Final = {
    each.name: each
    for each in (_HELP, *vars(inspect).values(), *vars(services).values())
    if isinstance(each, Procedure)
}
"""All procedures by name."""
