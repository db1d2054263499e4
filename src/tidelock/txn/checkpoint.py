"""Codec of the checkpoint: the ledger state up to a position (C20-C23). Pure.

Instants are stored as the digits that differ from the previous one, since there may be many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelock.core.errors import DataCorrupt
from tidelock.hudi.timeline.instant import Action
from tidelock.txn.app_transactions import AppliedTransaction, applied_fields, applied_of
from tidelock.txn.footprint import Fields, JsonField, JsonRecord, encode_groups
from tidelock.txn.state import LedgerState, PendingPlan, PersistentSet, WaitingWriter

CHECKPOINT_KEY: Final = ".hoodie/.tidelock/checkpoint.json"
CHECKPOINT_FORMAT: Final = 5
"""The newest format. A checkpoint is written in the oldest format that can represent it, so that
older releases can read it."""

_WITHOUT_FORGOTTEN: Final = 4
_WITHOUT_IMPORTED_PLANS: Final = 3
_WITHOUT_SAVEPOINTS: Final = 2
_WITHOUT_APP_TRANSACTIONS: Final = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state whose commits are all on the timeline, with a nonce that identifies this write."""

    state: LedgerState
    nonce: str


def encode(checkpoint: Checkpoint) -> bytes:
    state = checkpoint.state
    record = {"format": _format(state), "nonce": checkpoint.nonce, **_STATE.encode(state)}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode_checkpoint(body: bytes, *, where: str) -> Checkpoint:
    """Return the checkpoint in `body`. Raises: `DataCorrupt` naming `where`."""
    fields = Fields.parse(body, where)
    if fields.integer("format") > CHECKPOINT_FORMAT:
        raise fields.newer_format(CHECKPOINT_FORMAT)
    return Checkpoint(_STATE.decode(fields), fields.text("nonce"))


def _format(state: LedgerState) -> int:
    if state.epoch or state.forgotten:
        return CHECKPOINT_FORMAT
    if any(plan.imported for plan in state.plans.values()):
        return _WITHOUT_FORGOTTEN
    if state.savepoints or any(plan.rolls_back for plan in state.plans.values()):
        return _WITHOUT_IMPORTED_PLANS
    return _WITHOUT_SAVEPOINTS if state.app_transactions else _WITHOUT_APP_TRANSACTIONS


def _forgotten(fields: Fields, name: str) -> tuple[str, str] | None:
    match fields.times(name):
        case ():
            return None
        case (first, end):
            return first, end
        case _:
            raise fields.invalid(f"{name}: expected a range of instants")


def _app_transactions(fields: Fields, name: str) -> dict[str, AppliedTransaction]:
    found = map(applied_of, fields.objects(name))
    return {applied.app_transaction.app_id: applied for applied in found}


def _savepoints(fields: Fields, name: str) -> dict[str, str]:
    held = fields.nested(name)
    return {instant: held.time(instant) for instant in held.values}


def _packed(instants: Iterable[str]) -> list[str]:
    """Return the sorted instants, each without the prefix it shares with its predecessor."""
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


def _unpacked(fields: Fields, name: str) -> PersistentSet:
    instants: list[str] = []
    before = ""
    for piece in fields.texts(name):
        integer = before[: len(before) - len(piece)] + piece if len(piece) < len(before) else piece
        if not (integer.isascii() and integer.isdecimal()):
            raise DataCorrupt(f"{fields.where}: {name}: expected an instant, got {piece[:40]!r}")
        instants.append(integer)
        before = integer
    return PersistentSet.of(instants)


def _action(fields: Fields, name: str) -> Action:
    action = fields.text(name)
    if action not in [each.value for each in Action]:
        raise DataCorrupt(
            f"{fields.where}: {name}: expected an action of the timeline, got {action!r}"
        )
    return Action(action)


def _plan_fields(plan: PendingPlan) -> dict[str, Any]:
    fields = _PLAN.encode(plan)
    if not plan.rolls_back:
        del fields["undoes"], fields["halts"]
    return fields


def _plans(fields: Fields, name: str) -> dict[str, PendingPlan]:
    return {plan.instant: plan for plan in map(_PLAN.decode, fields.objects(name))}


_PLAN: Final = JsonRecord(
    PendingPlan,
    JsonField("instant", Fields.time),
    JsonField("action", _action),
    JsonField("targets", Fields.groups, encode_groups),
    JsonField("removable", Fields.flag),
    JsonField("position", Fields.integer),
    JsonField("attempt", Fields.integer),
    JsonField("owner", Fields.text),
    JsonField("undoes", Fields.times, attribute="rolls_back"),
    JsonField("halts", Fields.is_true, attribute="blocks_commits"),
    JsonField("adopted", Fields.is_true, attribute="imported", optional=True),
)
_TICKET: Final = JsonRecord(
    WaitingWriter,
    JsonField("position", Fields.integer),
    JsonField("instant", Fields.time),
    JsonField("owner", Fields.text),
    JsonField("groups", Fields.groups, encode_groups),
    JsonField("partitions", Fields.text_set, sorted),
)
_STATE: Final = JsonRecord(
    LedgerState,
    JsonField("position", Fields.integer),
    JsonField("boundary", Fields.integer),
    JsonField("time", Fields.time),
    JsonField("last", Fields.text, attribute="nonce"),
    JsonField("archived", Fields.text),
    JsonField("schema", Fields.text, attribute="schema_id"),
    JsonField("foreign", Fields.flag, attribute="external"),
    JsonField("token", Fields.integer),
    JsonField("committed", _unpacked, _packed),
    JsonField("void", _unpacked, _packed, "aborted"),
    JsonField(
        "plans", _plans, lambda plans: [_plan_fields(plan) for _, plan in sorted(plans.items())]
    ),
    JsonField(
        "turns",
        lambda fields, name: tuple(map(_TICKET.decode, fields.objects(name))),
        lambda tickets: list(map(_TICKET.encode, tickets)),
        "tickets",
    ),
    JsonField("epoch", Fields.integer, optional=True),
    JsonField("forgotten", _forgotten, optional=True),
    JsonField(
        "marks",
        _app_transactions,
        lambda held: list(map(applied_fields, held.values())),
        "app_transactions",
        optional=True,
    ),
    JsonField("savepoints", _savepoints, lambda held: dict(sorted(held.items())), optional=True),
)
