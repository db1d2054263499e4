"""The checkpoint: the fold up to a position, for those who come later (C20-C23). Pure.

Instants are kept as differences of their digits, since there may be many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelock.base.errors import DataCorrupt, RecordFromFuture
from tidelock.table.timeline.instant import Action
from tidelock.txn.fields import Fields, encode_groups
from tidelock.txn.fold import Fold, Pending, Waiting
from tidelock.txn.grown import Grown
from tidelock.txn.mark import applied_fields, applied_of

CHECKPOINT_KEY: Final = ".hoodie/.tidelock/checkpoint.json"
CHECKPOINT_FORMAT: Final = 5
"""The newest format. A checkpoint has the oldest that can say it, for older releases."""

_WITHOUT_FORGOTTEN: Final = 4
_WITHOUT_ADOPTED: Final = 3
_WITHOUT_SAVEPOINTS: Final = 2
_WITHOUT_MARKS: Final = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A fold of which every commit is on the timeline, and a name for this very write."""

    fold: Fold
    nonce: str


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of a checkpoint."""
    fold = checkpoint.fold
    record = {
        "format": _format(fold),
        "nonce": checkpoint.nonce,
        "position": fold.position,
        "boundary": fold.boundary,
        "time": fold.time,
        "last": fold.nonce,
        "archived": fold.archived,
        "schema": fold.schema_id,
        "foreign": fold.foreign,
        "token": fold.token,
        "committed": _packed(fold.committed),
        "void": _packed(fold.void),
        "plans": [_plan_fields(plan) for _, plan in sorted(fold.plans.items())],
        "turns": [_turn_fields(turn) for turn in fold.turns],
    }
    if fold.epoch:
        record["epoch"] = fold.epoch
    if fold.forgotten:
        record["forgotten"] = list(fold.forgotten)
    if fold.marks:
        record["marks"] = [applied_fields(applied) for applied in fold.marks.values()]
    if fold.savepoints:
        record["savepoints"] = dict(sorted(fold.savepoints.items()))
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode(body: bytes, *, where: str) -> Checkpoint:
    """Return the checkpoint in `body`. Raises: `DataCorrupt` naming `where`."""
    fields = Fields.parse(body, where)
    if fields.whole("format") > CHECKPOINT_FORMAT:
        raise RecordFromFuture(
            f"{where} has format {fields.whole('format')}, which this release does not know",
            hint="upgrade tidelock on this machine",
        )
    plans = [_plan(each) for each in fields.objects("plans")]
    marks = (
        [applied_of(each) for each in fields.objects("marks")] if "marks" in fields.values else []
    )
    fold = Fold(
        position=fields.whole("position"),
        time=fields.time("time"),
        nonce=fields.text("last"),
        committed=_unpacked(fields, "committed"),
        void=_unpacked(fields, "void"),
        plans={plan.instant: plan for plan in plans},
        turns=tuple(_turn(each) for each in fields.objects("turns")),
        boundary=fields.whole("boundary"),
        archived=fields.text("archived"),
        schema_id=fields.text("schema"),
        foreign=fields.flag("foreign"),
        token=fields.whole("token"),
        epoch=fields.whole("epoch") if "epoch" in fields.values else 0,
        forgotten=_forgotten(fields),
        marks={applied.mark.application: applied for applied in marks},
        savepoints=_savepoints(fields),
    )
    return Checkpoint(fold, fields.text("nonce"))


def _format(fold: Fold) -> int:
    if fold.epoch or fold.forgotten:
        return CHECKPOINT_FORMAT
    if any(plan.adopted for plan in fold.plans.values()):
        return _WITHOUT_FORGOTTEN
    if fold.savepoints or any(plan.undoes for plan in fold.plans.values()):
        return _WITHOUT_ADOPTED
    return _WITHOUT_SAVEPOINTS if fold.marks else _WITHOUT_MARKS


def _forgotten(fields: Fields) -> tuple[str, str] | None:
    match fields.times("forgotten"):
        case []:
            return None
        case [first, end]:
            return first, end
        case _:
            raise fields.broken("forgotten is not a range of instants")


def _savepoints(fields: Fields) -> dict[str, str]:
    if "savepoints" not in fields.values:
        return {}
    held = fields.below("savepoints")
    return {instant: held.time(instant) for instant in held.values}


def _packed(instants: Iterable[str]) -> list[str]:
    """Return sorted instants, each without the beginning it shares with the one before."""
    packed: list[str] = []
    before = ""
    for instant in sorted(instants):
        shared = 0
        if len(instant) == len(before):
            while instant[shared] == before[shared]:
                shared += 1
        packed.append(instant[shared:])
        before = instant
    return packed


def _unpacked(fields: Fields, name: str) -> Grown:
    instants: list[str] = []
    before = ""
    for piece in fields.texts(name):
        whole = before[: len(before) - len(piece)] + piece if len(piece) < len(before) else piece
        if not (whole.isascii() and whole.isdecimal()):
            raise DataCorrupt(f"{fields.where}: {name} has {piece[:40]!r}, which is no instant")
        instants.append(whole)
        before = whole
    return Grown.of(instants)


def _plan_fields(plan: Pending) -> dict[str, Any]:
    return {
        "instant": plan.instant,
        "action": plan.action.value,
        "targets": encode_groups(plan.targets),
        "removable": plan.removable,
        "position": plan.position,
        "attempt": plan.attempt,
        "owner": plan.owner,
        **({"undoes": list(plan.undoes), "halts": plan.halts} if plan.undoes else {}),
        **({"adopted": True} if plan.adopted else {}),
    }


def _plan(fields: Fields) -> Pending:
    action = fields.text("action")
    if action not in [each.value for each in Action]:
        raise DataCorrupt(f"{fields.where}: {action!r} is not an action")
    return Pending(
        instant=fields.time("instant"),
        action=Action(action),
        targets=fields.groups("targets"),
        removable=fields.flag("removable"),
        position=fields.whole("position"),
        attempt=fields.whole("attempt"),
        owner=fields.text("owner"),
        undoes=tuple(fields.times("undoes")),
        halts=fields.raw("halts") is True,
        adopted=fields.raw("adopted") is True,
    )


def _turn_fields(turn: Waiting) -> dict[str, Any]:
    return {
        "position": turn.position,
        "instant": turn.instant,
        "owner": turn.owner,
        "groups": encode_groups(turn.groups),
        "partitions": sorted(turn.partitions),
    }


def _turn(fields: Fields) -> Waiting:
    return Waiting(
        position=fields.whole("position"),
        instant=fields.time("instant"),
        owner=fields.text("owner"),
        groups=fields.groups("groups"),
        partitions=frozenset(fields.texts("partitions")),
    )
