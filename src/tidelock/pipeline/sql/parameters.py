"""Parameters of statements, `:name` and `?`, as values in the tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from tidelock.base.errors import InvalidInput
from tidelock.pipeline.sql.statement import Statement
from tidelock.pipeline.sql.text import nearest


def filled(statement: Statement, args: Mapping[str, Any] | Sequence[Any] | None) -> Statement:
    """Return the statement with a value in place of each parameter.

    Raises: `InvalidInput` for a parameter without a value, or a value of a kind that SQL has not.
    """
    tree = statement.tree
    if tree is None or not tree.find(exp.Placeholder):
        return statement
    given = args if args is not None else {}
    copy = tree.copy()
    number = 0
    for node in list(copy.find_all(exp.Placeholder)):
        key: str | int = node.name
        if node.name in ("", "?"):
            key, number = number, number + 1
        node.replace(_value(given, key))
    # The tree has the values now. Queries go to Spark as text, with the values beside.
    return replace(statement, tree=copy, args=args)


def _value(given: Mapping[str, Any] | Sequence[Any], key: str | int) -> exp.Expr:
    try:
        value = given[key]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        named = [str(each) for each in given] if isinstance(given, Mapping) else []
        raise InvalidInput(
            f"the parameter {key!r} has no value", hint=nearest(str(key), named) or "give args"
        ) from None
    try:
        return exp.convert(value)
    except ValueError:
        raise InvalidInput(f"{value!r} cannot be the value of the parameter {key!r}") from None
