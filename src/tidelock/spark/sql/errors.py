"""Translates errors of Spark into errors with positions in the user's statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from tidelock.core.errors import InvalidInput
from tidelock.execution.spark.job import run_job
from tidelock.spark.sql.catalog import Catalog
from tidelock.spark.sql.sources import name_parts
from tidelock.spark.sql.statement import Statement, span_of_word, suggestion

T = TypeVar("T")

REJECTED: Final = "tidelock rejects: "
"""Prefix of the errors that our own checks raise within a Spark job."""

_DATA_STATES: Final = ("22", "21", "23")
"""SQL state classes of invalid values: the statement is at fault, and a retry does not help."""

_OWN_VIEW: Final = re.compile(r"`?_tidelock_\d+`?\.?")


@contextmanager
def translated_errors(statement: Statement, catalog: Catalog) -> Iterator[None]:
    """Translate Spark's errors about a statement. Raises: `InvalidInput`."""
    try:
        yield
    except PySparkException as error:
        raise _translated(error, statement, catalog) from error


def run_statement_job(spark: SparkSession, what: str, action: Callable[[], T]) -> T:
    """Run a Spark job that computes rows of a statement.

    Raises: `InvalidInput` for values that cannot be computed, `Unavailable` if the job fails.
    """

    def checked() -> T:
        try:
            return action()
        except PySparkException as error:
            rejection = _rejection(error)
            if rejection is not None:
                raise InvalidInput(rejection) from error
            if (error.getSqlState() or "")[:2] in _DATA_STATES:
                raise InvalidInput(f"{what}: {_message(error)}") from error
            raise

    return run_job(spark, what, checked, group=f"tidelock sql {what}")


def _translated(error: PySparkException, statement: Statement, catalog: Catalog) -> InvalidInput:
    rejection = _rejection(error)
    if rejection is not None:
        return InvalidInput(rejection)
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    named = parameters.get("objectName") or parameters.get("relationName")
    named = named or parameters.get("routineName") or parameters.get("fieldName") or ""
    span = span_of_word(statement, named.replace("`", "").rpartition(".")[2])
    short = named.replace("`", "")
    if condition.startswith("UNRESOLVED_COLUMN") or condition == "FIELD_NOT_FOUND":
        hint = suggestion(short.rpartition(".")[2], _columns(error, statement, catalog))
        return statement.invalid(span, f"column {short} not found", hint=hint)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        hint = suggestion(short.rpartition(".")[2], catalog.names())
        return statement.invalid(span, f"table or view {short} not found", hint=hint)
    return statement.invalid(span, _message(error))


def _columns(error: PySparkException, statement: Statement, catalog: Catalog) -> set[str]:
    """Return the candidate columns: Spark proposes only those that were read."""
    proposal = (error.getMessageParameters() or {}).get("proposal", "")
    found = {each.strip(" `").replace("`", "").rpartition(".")[2] for each in proposal.split(",")}
    for table in () if statement.tree is None else statement.tree.find_all(exp.Table):
        found.update(catalog.columns(name_parts(table)))
    return found - {""}


def _rejection(error: PySparkException) -> str | None:
    text = str(error)
    if REJECTED not in text:
        return None
    message = text.partition(REJECTED)[2].splitlines()[0]
    return message.partition(" SQLSTATE:")[0].strip()


def _message(error: PySparkException) -> str:
    """Return the first line of Spark's message, without error codes."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    plain = re.sub(r"^\[[\w.]+\] ", "", first).partition(" SQLSTATE:")[0]
    return _OWN_VIEW.sub("", plain)
