"""Procedures that take back what was done, and keep states to come back to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelock.base.errors import NotFound
from tidelock.pipeline.sql.procedures.procedure import (
    TABLE,
    Argument,
    Call,
    Procedure,
    Row,
)
from tidelock.pipeline.sql.text import nearest


def _rollback(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        table.rollback(call["instant_time"])
    return [(True,)]


def _create_savepoint(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        saved = table.savepoint(call["commit_time"], by=call["user"], comment=call["comments"])
    return [(True, saved.instant)]


def _show_savepoints(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        return [
            (saved.instant, saved.completion, saved.by, saved.comment, saved.files)
            for saved in reversed(table.savepoints())
        ]


def _delete_savepoint(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        table.delete_savepoint(call["instant_time"])
    return [(True,)]


def _restore(call: Call) -> Iterable[Row]:
    instant = call["instant_time"]
    with call.opened() as table:
        kept = [saved.instant for saved in table.savepoints()]
        if instant not in kept:
            raise NotFound(
                f"{call.entry.name} has no savepoint {instant}", hint=nearest(instant, kept)
            )
        table.restore(instant)
    return [(True,)]


_INSTANT: Final = Argument("instant_time", str)

UNDOING: Final = (
    Procedure(
        "rollback_to_instant",
        "takes back the last commit, or what a dead writer left",
        (TABLE, _INSTANT),
        "rollback_result boolean",
        _rollback,
    ),
    Procedure(
        "create_savepoint",
        "keeps the state as of a commit (the last one if none is named) until it is given up",
        (
            TABLE,
            Argument("commit_time", str, None),
            Argument("user", str, ""),
            Argument("comments", str, ""),
        ),
        "create_savepoint_result boolean, savepoint_time string",
        _create_savepoint,
    ),
    Procedure(
        "show_savepoints",
        "the states that are kept, newest first",
        (TABLE,),
        "savepoint_time string, created_time string, user string, comments string, files bigint",
        _show_savepoints,
    ),
    Procedure(
        "delete_savepoint",
        "gives up what a savepoint keeps",
        (TABLE, _INSTANT),
        "delete_savepoint_result boolean",
        _delete_savepoint,
    ),
    Procedure(
        "rollback_to_savepoint",
        "brings the table back to what it was at a savepoint",
        (TABLE, _INSTANT),
        "rollback_savepoint_result boolean",
        _restore,
    ),
)
