"""What Spark says of a wrong statement, said again with the place in the user's own text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from tidelock.base.errors import InvalidInput
from tidelock.engine.spark.job import run_job
from tidelock.pipeline.sql.catalog import Catalog
from tidelock.pipeline.sql.references import name_parts
from tidelock.pipeline.sql.statement import Statement, place_of_word
from tidelock.pipeline.sql.text import mistake, nearest

T = TypeVar("T")

REFUSED: Final = "tidelock refuses: "
"""Begins what our own checks say inside a job of Spark's."""

_DATA_STATES: Final = ("22", "21", "23")
"""SQL states of values that cannot be computed: it is the statement's fault, and stays so."""

_OWN_VIEW: Final = re.compile(r"`?_tidelock_\d+`?\.?")


@contextmanager
def explained(statement: Statement, catalog: Catalog) -> Iterator[None]:
    """Turn Spark's complaints about a statement into ours. Raises: `InvalidInput`."""
    try:
        yield
    except PySparkException as error:
        raise _explained(error, statement, catalog) from error


def carried_out(spark: SparkSession, what: str, action: Callable[[], T]) -> T:
    """Run a job that computes rows of a statement.

    Raises: `InvalidInput` for values that cannot be, `Unavailable` if Spark could not finish.
    """

    def checked() -> T:
        try:
            return action()
        except PySparkException as error:
            said = _refusal(error)
            if said is not None:
                raise InvalidInput(said) from error
            if (error.getSqlState() or "")[:2] in _DATA_STATES:
                raise InvalidInput(f"{what}: {_message(error)}") from error
            raise

    return run_job(spark, what, checked, group=f"tidelock sql {what}")


def _explained(error: PySparkException, statement: Statement, catalog: Catalog) -> InvalidInput:
    said = _refusal(error)
    if said is not None:
        return InvalidInput(said)
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    named = parameters.get("objectName") or parameters.get("relationName")
    named = named or parameters.get("routineName") or parameters.get("fieldName") or ""
    place = place_of_word(statement, named.replace("`", "").rpartition(".")[2])
    short = named.replace("`", "")
    if condition.startswith("UNRESOLVED_COLUMN") or condition == "FIELD_NOT_FOUND":
        hint = nearest(short.rpartition(".")[2], _columns(error, statement, catalog))
        return mistake(statement.text, place, f"there is no column {short}", hint=hint)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        hint = nearest(short.rpartition(".")[2], catalog.names())
        return mistake(statement.text, place, f"there is no table or view {short}", hint=hint)
    return mistake(statement.text, place, _message(error))


def _columns(error: PySparkException, statement: Statement, catalog: Catalog) -> set[str]:
    """Return the columns that could have been meant: Spark sees only those that were read."""
    proposal = (error.getMessageParameters() or {}).get("proposal", "")
    found = {each.strip(" `").replace("`", "").rpartition(".")[2] for each in proposal.split(",")}
    for table in () if statement.tree is None else statement.tree.find_all(exp.Table):
        found.update(catalog.columns(name_parts(table)))
    return found - {""}


def _refusal(error: PySparkException) -> str | None:
    text = str(error)
    if REFUSED not in text:
        return None
    said = text.partition(REFUSED)[2].splitlines()[0]
    return said.partition(" SQLSTATE:")[0].strip()


def _message(error: PySparkException) -> str:
    """Return the first sentence of what Spark says, without its codes."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    plain = re.sub(r"^\[[\w.]+\] ", "", first).partition(" SQLSTATE:")[0]
    return _OWN_VIEW.sub("", plain)
