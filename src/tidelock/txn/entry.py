"""Entries of the ledger and their bytes (C1-C6). Pure.

An entry is a header, the same for all, and a fact. The decoder accepts an entry or raises
`DataCorrupt`; a fact of a kind it does not know was written by a newer version and is never
skipped, since what it decides would be missing from the fold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, assert_never

from tidelock.base.errors import DataCorrupt, RecordFromFuture
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.instant import Action
from tidelock.txn.content import Content, content_fields, content_of
from tidelock.txn.fields import Fields, encode_footprint, encode_groups
from tidelock.txn.footprint import NO_GROUPS, Footprint
from tidelock.txn.mark import Applied, Mark, left_fields, left_of, mark_fields, mark_of

LEDGER_FOLDER: Final = ".hoodie/.tidelock/ledger"
ENTRY_FORMAT: Final = 4
"""The newest format. An entry has the oldest that can say it, so that older releases read it."""

_WITHOUT_EPOCHS: Final = 3
_WITHOUT_UNDONE: Final = 2
_WITHOUT_MARKS: Final = 1
POSITION_DIGITS: Final = 20

_NAME: Final = re.compile(r"(\d{20})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Plan:
    """A table-service plan; its request time is this entry's time, and `content` its request."""

    action: Action
    targets: frozenset[GroupId]
    content: Content
    removable: bool = False


@dataclass(frozen=True, slots=True)
class Adopt:
    """A plan that somebody who knows no ledger put on the timeline; from here on as any other."""

    instant: str
    action: Action
    targets: frozenset[GroupId]
    removable: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """This owner now executes the plan, as its attempt number `attempt`."""

    instant: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The instant is complete at this entry's time.

    `base` is the position up to which the writer had read the ledger when it read the table;
    `rebased` counts how often it was overtaken before; `token` is that of the table's lock, 0
    without one, and `epoch` how often the lock's tokens had begun anew by then; `mark` says which
    batch of which application it is, and `follows` which was the application's last one before it,
    None if there was none; it is empty where that is not known.
    """

    instant: str
    action: Action
    attempt: int
    footprint: Footprint
    content: Content
    schema_id: str = ""
    base: int = 0
    rebased: int = 0
    token: int = 0
    mark: Mark | None = None
    epoch: int = 0
    follows: Mapping[str, Applied | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollback:
    """The instant will never complete; its files may go.

    With `attempt` only that attempt at a plan is over, and the plan stays.
    """

    instant: str
    reason: str = ""
    attempt: int | None = None
    overtaken_by: tuple[str, ...] = ()
    groups: frozenset[GroupId] = NO_GROUPS


@dataclass(frozen=True, slots=True)
class Foreign:
    """A commit that somebody who knows no ledger completed, taken into the order.

    Of a rollback or restore, `undoes` are instants that are gone by it, and `ends` are plans that
    stay, of which it has removed what an executor wrote. `marks` are the last ones of applications
    whose batches it undid, None if there is none left.
    """

    instant: str
    action: Action
    completion: str
    footprint: Footprint
    schema_id: str = ""
    undoes: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    marks: Mapping[str, Applied | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Entries up to `position` are folded in the checkpoint and may be deleted.

    Instants requested before `archived` are decided for ever. Of those requested before `forgets`
    the roll-backs are not remembered one by one: whether such an instant is complete, the history
    tells.
    """

    position: int
    archived: str = ""
    forgets: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """An overtaken writer asks for the next turn on file groups. Courtesy: it decides nothing."""

    instant: str
    groups: frozenset[GroupId]
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Undo:
    """A plan to undo instants; from this entry on they are void, and `content` is its request.

    Its request time is this entry's time, as a plan's. `instants` are in the order in which they
    are removed. `complete` says that some had completed, so that readers have seen them; `forced`
    that a plan among them goes though it is one that stays. `marks` are the last ones that are left
    of applications whose last batch is among them; None where none is left.
    """

    action: Action
    instants: tuple[str, ...]
    content: Content
    complete: bool = False
    forced: bool = False
    reason: str = ""
    marks: Mapping[str, Applied | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """The savepoint of this instant is given up."""

    instant: str


Fact: TypeAlias = (
    Plan | Adopt | Claim | Commit | Rollback | Foreign | Boundary | Turn | Undo | Release
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its place, its time, who wrote it, and the fact it states.

    `nonce` is unlike that of any other write, `before` is the nonce of the entry below ("" for the
    first): together they make a chain that an entry written behind the boundary cannot join.
    `published` is a position up to which everything was on the timeline when this was written.
    """

    position: int
    time: str
    owner: str
    nonce: str
    before: str
    published: int
    fact: Fact


def entry_key(position: int) -> str:
    """Return the object of the entry at `position`."""
    return f"{LEDGER_FOLDER}/{position:0{POSITION_DIGITS}}.json"


def position_of(key: str) -> int | None:
    """Return the position of an entry's object; None if it is none."""
    found = _NAME.fullmatch(key.rpartition("/")[2])
    return None if found is None else int(found[1])


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry: one line of JSON."""
    kind, fields = _fact_fields(entry.fact)
    record = {
        "format": _format(entry.fact),
        "n": entry.position,
        "time": entry.time,
        "owner": entry.owner,
        "nonce": entry.nonce,
        "before": entry.before,
        "published": entry.published,
        "kind": kind,
        **fields,
    }
    return _ENCODER.encode(record).encode()


def decode(body: bytes, *, where: str) -> Entry:
    """Return the entry in `body`.

    Fields it does not know are left alone. Raises: `DataCorrupt` naming `where`,
    `RecordFromFuture` for a newer format or a kind of fact it does not know.
    """
    fields = Fields.parse(body, where)
    if fields.whole("format") > ENTRY_FORMAT:
        raise _from_future(where, f"has format {fields.whole('format')}")
    try:
        fact = _fact(fields)
    except ValueError as error:
        raise DataCorrupt(f"{where} is no ledger entry: {error}") from error
    return Entry(
        position=fields.whole("n"),
        time=fields.time("time"),
        owner=fields.text("owner"),
        nonce=fields.text("nonce"),
        before=fields.text("before"),
        published=fields.whole("published"),
        fact=fact,
    )


def _format(fact: Fact) -> int:
    match fact:
        case Commit(epoch=epoch) if epoch:
            return ENTRY_FORMAT
        case Undo(marks=marks) if marks:
            return ENTRY_FORMAT
        case Foreign(undoes=undoes, ends=ends) if undoes or ends:
            return _WITHOUT_EPOCHS
        case Commit(mark=Mark()):
            return _WITHOUT_UNDONE
        case _:
            return _WITHOUT_MARKS


def _from_future(where: str, what: str) -> RecordFromFuture:
    return RecordFromFuture(
        f"{where} {what}, which this release does not know",
        hint="upgrade tidelock on this machine",
    )


def _fact_fields(fact: Fact) -> tuple[str, dict[str, Any]]:
    match fact:
        case Plan(action, targets, content, removable):
            return "plan", {
                "action": action.value,
                "targets": encode_groups(targets),
                "content": content_fields(content),
                "removable": removable,
            }
        case Adopt(instant, action, targets, removable):
            return "adopt", {
                "instant": instant,
                "action": action.value,
                "targets": encode_groups(targets),
                "removable": removable,
            }
        case Claim(instant, attempt):
            return "claim", {"instant": instant, "attempt": attempt}
        case Commit():
            return "commit", _commit_fields(fact)
        case Rollback(instant, reason, attempt, overtaken_by, groups):
            return "rollback", {
                "instant": instant,
                "reason": reason,
                "attempt": attempt,
                "overtakenBy": list(overtaken_by),
                "groups": encode_groups(groups),
            }
        case Foreign():
            return "foreign", {
                "instant": fact.instant,
                "action": fact.action.value,
                "completion": fact.completion,
                "footprint": encode_footprint(fact.footprint),
                "schema": fact.schema_id,
                **({"undoes": list(fact.undoes)} if fact.undoes else {}),
                **({"ends": list(fact.ends)} if fact.ends else {}),
                **({"marks": left_fields(fact.marks)} if fact.marks else {}),
            }
        case Boundary(position, archived, forgets):
            return "boundary", {
                "position": position,
                "archived": archived,
                **({"forgets": forgets} if forgets else {}),
            }
        case Turn(instant, groups, partitions):
            return "turn", {
                "instant": instant,
                "groups": encode_groups(groups),
                "partitions": sorted(partitions),
            }
        case Undo():
            return "undo", {
                "action": fact.action.value,
                "instants": list(fact.instants),
                "content": content_fields(fact.content),
                "complete": fact.complete,
                "forced": fact.forced,
                "reason": fact.reason,
                **({"marks": left_fields(fact.marks)} if fact.marks else {}),
            }
        case Release(instant):
            return "release", {"instant": instant}
        case _:
            assert_never(fact)


def _commit_fields(fact: Commit) -> dict[str, Any]:
    return {
        "instant": fact.instant,
        "action": fact.action.value,
        "attempt": fact.attempt,
        "footprint": encode_footprint(fact.footprint),
        "content": content_fields(fact.content),
        "schema": fact.schema_id,
        "base": fact.base,
        "rebased": fact.rebased,
        **({"token": fact.token} if fact.token else {}),
        **({"epoch": fact.epoch} if fact.epoch else {}),
        **({} if fact.mark is None else {"mark": mark_fields(fact.mark)}),
        **({"follows": left_fields(fact.follows)} if fact.follows else {}),
    }


def _fact(fields: Fields) -> Fact:
    kind = fields.text("kind")
    match kind:
        case "plan":
            return Plan(
                _action(fields),
                fields.groups("targets"),
                content_of(fields.below("content")),
                fields.flag("removable"),
            )
        case "adopt":
            return Adopt(
                fields.time("instant"),
                _action(fields),
                fields.groups("targets"),
                fields.flag("removable"),
            )
        case "claim":
            return Claim(fields.time("instant"), fields.whole("attempt"))
        case "commit":
            return _commit(fields)
        case "rollback":
            attempt = fields.raw("attempt")
            return Rollback(
                fields.time("instant"),
                fields.text("reason"),
                None if attempt is None else fields.whole("attempt"),
                tuple(fields.texts("overtakenBy")),
                fields.groups("groups"),
            )
        case "foreign":
            return Foreign(
                fields.time("instant"),
                _action(fields),
                fields.time("completion"),
                fields.footprint("footprint"),
                fields.text("schema"),
                tuple(fields.times("undoes")),
                tuple(fields.times("ends")),
                left_of(fields.objects("marks")) if "marks" in fields.values else {},
            )
        case "boundary":
            forgets = fields.text("forgets") if "forgets" in fields.values else ""
            return Boundary(fields.whole("position"), fields.text("archived"), forgets)
        case "turn":
            return Turn(
                fields.time("instant"),
                fields.groups("groups"),
                frozenset(fields.texts("partitions")),
            )
        case "undo":
            return Undo(
                _action(fields),
                tuple(fields.times("instants")),
                content_of(fields.below("content")),
                complete=fields.flag("complete"),
                forced=fields.flag("forced"),
                reason=fields.text("reason"),
                marks=left_of(fields.objects("marks")) if "marks" in fields.values else {},
            )
        case "release":
            return Release(fields.time("instant"))
        case _:
            raise _from_future(fields.where, f"is of kind {kind!r}")


def _commit(fields: Fields) -> Commit:
    return Commit(
        instant=fields.time("instant"),
        action=_action(fields),
        attempt=fields.whole("attempt"),
        footprint=fields.footprint("footprint"),
        content=content_of(fields.below("content")),
        schema_id=fields.text("schema"),
        base=fields.whole("base"),
        rebased=fields.whole("rebased"),
        token=fields.whole("token") if "token" in fields.values else 0,
        mark=mark_of(fields.below("mark")) if "mark" in fields.values else None,
        epoch=fields.whole("epoch") if "epoch" in fields.values else 0,
        follows=left_of(fields.objects("follows")) if "follows" in fields.values else {},
    )


def _action(fields: Fields) -> Action:
    name = fields.text("action")
    if name not in _ACTIONS:
        raise _from_future(fields.where, f"has the action {name!r}")
    return _ACTIONS[name]


_ACTIONS: Final[Mapping[str, Action]] = {action.value: action for action in Action}
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
