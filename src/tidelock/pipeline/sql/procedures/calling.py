"""CALL: the procedure that a statement names, with the arguments that it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from tidelock.base.errors import InvalidInput
from tidelock.pipeline.sql.catalog import Catalog
from tidelock.pipeline.sql.procedures.locks import LOCKS
from tidelock.pipeline.sql.procedures.procedure import MISSING, Argument, Call, Procedure, Row
from tidelock.pipeline.sql.procedures.services import SERVICES
from tidelock.pipeline.sql.procedures.timeline import TIMELINE
from tidelock.pipeline.sql.procedures.undoing import UNDOING
from tidelock.pipeline.sql.result import frame_of_rows
from tidelock.pipeline.sql.statement import Statement, place_of
from tidelock.pipeline.sql.text import Span, mistake, nearest


def call(spark: SparkSession, catalog: Catalog, statement: Statement) -> DataFrame:
    """Run a procedure and return its rows.

    Raises: `InvalidInput` for one that there is not, or for wrong arguments; `NotFound` for a table
    that there is not; and what the procedure raises.
    """
    named = statement.tree
    if isinstance(named, exp.Dot):
        named = named.expression  # CALL system.run_clean(...), as Hudi's users also write
    if not isinstance(named, exp.Anonymous):
        raise mistake(
            statement.text, None, "CALL takes a procedure and its arguments", hint="CALL help()"
        )
    procedure = PROCEDURES.get(named.name.lower())
    if procedure is None:
        place = statement.text.lower().find(named.name.lower())
        raise mistake(
            statement.text,
            Span(place, place + len(named.name)),
            f"there is no procedure {named.name}",
            hint=nearest(named.name, PROCEDURES),
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
            raise mistake(
                statement.text,
                place_of(node),
                f"{procedure.name} takes {len(known)} arguments",
                hint=_usage(procedure),
            )
        if name not in known or name in found:
            what = "is given twice" if name in found else "is no argument"
            raise mistake(
                statement.text,
                place_of(node),
                f"{procedure.name}: {name} {what}",
                hint=nearest(name, known),
            )
        found[name] = _value(statement, known[name], value)
    for argument in procedure.arguments:
        if argument.name not in found:
            if argument.default is MISSING:
                raise InvalidInput(
                    f"{procedure.name} needs {argument.name}", hint=_usage(procedure)
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
    if argument.kind is str and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # instants are often written as numbers
    if type(value) is not argument.kind:
        says = f"the argument is {argument.shown()}"
        raise mistake(statement.text, place_of(node), says, hint="CALL help()")
    return value


def _usage(procedure: Procedure) -> str:
    shown = ", ".join(argument.shown() for argument in procedure.arguments)
    return f"{procedure.name}({shown})"


def _help(call: Call) -> Iterable[Row]:
    wanted = call["cmd"]
    if wanted is not None and wanted.lower() not in PROCEDURES:
        raise InvalidInput(f"there is no procedure {wanted}", hint=nearest(wanted, PROCEDURES))
    for name, procedure in sorted(PROCEDURES.items()):
        if wanted is None or name == wanted.lower():
            yield name, _usage(procedure), procedure.says


_HELP: Final = Procedure(
    "help",
    "lists the procedures",
    (Argument("cmd", str, None),),
    "procedure string, usage string, description string",
    _help,
)

_EVERY: Final = (_HELP, *TIMELINE, *SERVICES, *UNDOING, *LOCKS)

PROCEDURES: Final = {each.name: each for each in _EVERY}
"""Every procedure by its name."""
