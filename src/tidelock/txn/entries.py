"""Ledger entries and their encoding (C1-C6). Pure.

An entry is a common header and a fact. The decoder returns an entry or raises `DataCorrupt`. A fact
of an unknown kind was written by a newer release and is never skipped, since the state would be
wrong without it.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidelock.core.errors import DataCorrupt
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.timeline.instant import Action
from tidelock.txn.app_transactions import (
    AppliedTransaction,
    AppTransaction,
    app_transaction_fields,
    app_transaction_of,
    previous_fields,
    previous_of,
)
from tidelock.txn.footprint import (
    NO_GROUPS,
    Fields,
    Footprint,
    JsonField,
    JsonRecord,
    encode_footprint,
    encode_groups,
)

INLINE_BYTES_MAX: Final = 256 * 1024
"""Metadata up to this size is stored in the entry, so that publishing needs no further read."""


class InlineContent:
    """The bytes of a completed instant, stored in the entry itself.

    They stay packed until they are used: every writer reads every entry, but few publish one.
    """

    __slots__ = ("_data", "_text")
    __match_args__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self._text = ""

    @classmethod
    def packed(cls, text: str) -> InlineContent:
        """Wrap bytes in their encoded form."""
        held = cls(b"")
        held._data, held._text = None, text
        return held

    @property
    def data(self) -> bytes:
        """The decoded bytes. Raises: `DataCorrupt` if they cannot be unpacked."""
        if self._data is None:
            try:
                packed = b64decode(self._text, validate=True)
                self._data = zlib.decompressobj().decompress(packed, INLINE_BYTES_MAX + 1)
            except (ValueError, zlib.error) as error:
                raise DataCorrupt(f"the content of a ledger entry is corrupt: {error}") from error
            if len(self._data) > INLINE_BYTES_MAX:
                raise DataCorrupt(f"the content of a ledger entry exceeds {INLINE_BYTES_MAX} bytes")
        return self._data

    @property
    def text(self) -> str:
        """The encoded bytes, as stored in an entry."""
        if not self._text:
            # Every instant contains the same Avro schema, so the fastest compression level is
            # enough.
            self._text = b64encode(zlib.compress(self.data, 1)).decode("ascii")
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InlineContent) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"InlineContent({len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class StoredContent:
    """The bytes of a completed instant in a separate object, with their size and checksum."""

    key: str
    sha256: str
    size_bytes: int


Content: TypeAlias = InlineContent | StoredContent


LEDGER_FOLDER: Final = ".hoodie/.tidelock/ledger"
ENTRY_FORMAT: Final = 4
"""The newest format. An entry is written in the oldest format that can represent it, so that older
releases can read it."""

_WITHOUT_EPOCHS: Final = 3
_WITHOUT_ROLLED_BACK: Final = 2
_WITHOUT_APP_TRANSACTIONS: Final = 1
POSITION_DIGITS: Final = 20

_NAME: Final = re.compile(r"(\d{20})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Plan:
    """A table-service plan, requested at the entry's time; `content` is the requested instant."""

    action: Action
    targets: frozenset[GroupId]
    content: Content
    removable: bool = False


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """A plan that an external writer put on the timeline, imported into the ledger."""

    instant: str
    action: Action
    targets: frozenset[GroupId]
    removable: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """This owner executes the plan as attempt number `attempt`."""

    instant: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The instant is complete at this entry's time.

    `base` is the ledger position at which the writer read the table. `rebased` counts earlier
    conflicts of the write. `token` is the fencing token of the table's lock, 0 without a lock, and
    `epoch` how often the lock's counter was reset. `app_transaction` is the application's batch;
    `follows` is the batch before it, None if there was none, empty if not known.
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
    app_transaction: AppTransaction | None = None
    epoch: int = 0
    follows: Mapping[str, AppliedTransaction | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollback:
    """The instant will never complete, and its files may be deleted.

    With `attempt`, only that attempt of a plan ends and the plan stays.
    """

    instant: str
    reason: str = ""
    attempt: int | None = None
    conflicts_with: tuple[str, ...] = ()
    groups: frozenset[GroupId] = NO_GROUPS


@dataclass(frozen=True, slots=True)
class ExternalCommit:
    """A commit of an external writer, imported into the ledger's order.

    For a rollback or restore, `rolls_back` are the removed instants, and `ends` are plans that stay
    but lost the files of an executor. `app_transactions` are the remaining transactions of
    applications whose batches were rolled back, None if none remains.
    """

    instant: str
    action: Action
    completion: str
    footprint: Footprint
    schema_id: str = ""
    rolls_back: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    app_transactions: Mapping[str, AppliedTransaction | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Entries up to `position` are contained in the checkpoint and may be deleted.

    Instants requested before `archived` are resolved for good. Rollbacks requested before `forgets`
    are no longer recorded one by one: the archived history shows whether such an instant is
    complete.
    """

    position: int
    archived: str = ""
    forgets: str = ""


@dataclass(frozen=True, slots=True)
class PriorityTicket:
    """A writer that conflicted asks for priority on file groups. Advisory: it decides nothing."""

    instant: str
    groups: frozenset[GroupId]
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanRollback:
    """A plan to roll back instants, which are aborted from this entry on.

    Its request time is the entry's time; `content` is the requested instant. `instants` are in
    removal order. `complete` says that some had completed, so readers may have seen them. `forced`
    removes a plan that otherwise stays. `app_transactions` are the remaining transactions of
    applications whose last batch is rolled back, None where none remains.
    """

    action: Action
    instants: tuple[str, ...]
    content: Content
    complete: bool = False
    forced: bool = False
    reason: str = ""
    app_transactions: Mapping[str, AppliedTransaction | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint:
    """The savepoint of this instant is released."""

    instant: str


Fact: TypeAlias = (
    Plan
    | ImportPlan
    | Claim
    | Commit
    | Rollback
    | ExternalCommit
    | Boundary
    | PriorityTicket
    | PlanRollback
    | ReleaseSavepoint
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry of the ledger: position, time, owner, and the fact it records.

    `nonce` is unique to this write, `before` is the nonce of the entry below ("" for the first).
    They form a chain that an entry written below the boundary cannot join. `published` is a
    position up to which everything was on the timeline when the entry was written.
    """

    position: int
    time: str
    owner: str
    nonce: str
    before: str
    published: int
    fact: Fact


def entry_key(position: int) -> str:
    return f"{LEDGER_FOLDER}/{position:0{POSITION_DIGITS}}.json"


def position_of(key: str) -> int | None:
    """Return the position in an entry's key, None for any other key."""
    found = _NAME.fullmatch(key.rpartition("/")[2])
    return None if found is None else int(found[1])


def kind_name(fact: Fact) -> str:
    """Return the name of a kind of fact, as stored in the ledger."""
    return _KINDS[type(fact)]


def encode(entry: LedgerEntry) -> bytes:
    """Return the encoded entry: one line of JSON."""
    kind = kind_name(entry.fact)
    record = {
        "format": _format(entry.fact),
        **_ENTRY.encode(entry),
        "kind": kind,
        **_FACTS[kind].encode(entry.fact),
    }
    return _ENCODER.encode(record).encode()


def decode(body: bytes, *, where: str) -> LedgerEntry:
    """Return the entry in `body`.

    Unknown fields are ignored. Raises: `DataCorrupt` naming `where`, `RecordFromFuture` for a newer
    format or an unknown kind of fact.
    """
    fields = Fields.parse(body, where)
    if fields.integer("format") > ENTRY_FORMAT:
        raise fields.newer_format(ENTRY_FORMAT)
    kind = fields.text("kind")
    if kind not in _FACTS:
        raise fields.from_future(f"the kind {kind!r} is not supported yet")
    return _ENTRY.decode(fields, fact=_FACTS[kind].decode(fields))


def _format(fact: Fact) -> int:
    match fact:
        case Commit(epoch=epoch) if epoch:
            return ENTRY_FORMAT
        case PlanRollback(app_transactions=app_transactions) if app_transactions:
            return ENTRY_FORMAT
        case ExternalCommit(rolls_back=rolls_back, ends=ends) if rolls_back or ends:
            return _WITHOUT_EPOCHS
        case Commit(app_transaction=AppTransaction()):
            return _WITHOUT_ROLLED_BACK
        case _:
            return _WITHOUT_APP_TRANSACTIONS


def _content_fields(content: Content) -> dict[str, Any]:
    match content:
        case InlineContent():
            return {"packed": content.text}
        case StoredContent():
            return _STORED.encode(content)


def _content(fields: Fields, name: str) -> Content:
    held = fields.nested(name)
    if held.raw("packed") is not None:
        return InlineContent.packed(held.text("packed"))
    return _STORED.decode(held)


def _action(fields: Fields, name: str) -> Action:
    action = fields.text(name)
    if action not in _ACTIONS:
        raise fields.from_future(f"the action {action!r} is not supported yet")
    return _ACTIONS[action]


def _attempt(fields: Fields, name: str) -> int | None:
    return None if fields.raw(name) is None else fields.integer(name)


_ACTIONS: Final[Mapping[str, Action]] = {action.value: action for action in Action}
_STORED: Final = JsonRecord(
    StoredContent,
    JsonField("key", Fields.text),
    JsonField("sha256", Fields.text),
    JsonField("size", Fields.integer, attribute="size_bytes"),
)
_ENTRY: Final = JsonRecord(
    LedgerEntry,
    JsonField("n", Fields.integer, attribute="position"),
    JsonField("time", Fields.time),
    JsonField("owner", Fields.text),
    JsonField("nonce", Fields.text),
    JsonField("before", Fields.text),
    JsonField("published", Fields.integer),
)
_INSTANT: Final = JsonField("instant", Fields.time)
_ACTION: Final = JsonField("action", _action)
_TARGETS: Final = JsonField("targets", Fields.groups, encode_groups)
_GROUPS: Final = JsonField("groups", Fields.groups, encode_groups)
_CONTENT: Final = JsonField("content", _content, _content_fields)
_REMOVABLE: Final = JsonField("removable", Fields.flag)
_FOOTPRINT: Final = JsonField("footprint", Fields.footprint, encode_footprint)
_SCHEMA: Final = JsonField("schema", Fields.text, attribute="schema_id")
_REASON: Final = JsonField("reason", Fields.text)
_APP_TRANSACTIONS: Final = JsonField(
    "marks", previous_of, previous_fields, "app_transactions", optional=True
)

_FACTS: Final[Mapping[str, JsonRecord[Any]]] = {
    "plan": JsonRecord(Plan, _ACTION, _TARGETS, _CONTENT, _REMOVABLE),
    "adopt": JsonRecord(ImportPlan, _INSTANT, _ACTION, _TARGETS, _REMOVABLE),
    "claim": JsonRecord(Claim, _INSTANT, JsonField("attempt", Fields.integer)),
    "commit": JsonRecord(
        Commit,
        _INSTANT,
        _ACTION,
        JsonField("attempt", Fields.integer),
        _FOOTPRINT,
        _CONTENT,
        _SCHEMA,
        JsonField("base", Fields.integer),
        JsonField("rebased", Fields.integer),
        JsonField("token", Fields.integer, optional=True),
        JsonField("epoch", Fields.integer, optional=True),
        JsonField(
            "mark", app_transaction_of, app_transaction_fields, "app_transaction", optional=True
        ),
        JsonField("follows", previous_of, previous_fields, optional=True),
    ),
    "rollback": JsonRecord(
        Rollback,
        _INSTANT,
        _REASON,
        JsonField("attempt", _attempt),
        JsonField("overtakenBy", Fields.texts, attribute="conflicts_with"),
        _GROUPS,
    ),
    "foreign": JsonRecord(
        ExternalCommit,
        _INSTANT,
        _ACTION,
        JsonField("completion", Fields.time),
        _FOOTPRINT,
        _SCHEMA,
        JsonField("undoes", Fields.times, attribute="rolls_back", optional=True),
        JsonField("ends", Fields.times, optional=True),
        _APP_TRANSACTIONS,
    ),
    "boundary": JsonRecord(
        Boundary,
        JsonField("position", Fields.integer),
        JsonField("archived", Fields.text),
        JsonField("forgets", Fields.text, optional=True),
    ),
    "turn": JsonRecord(
        PriorityTicket, _INSTANT, _GROUPS, JsonField("partitions", Fields.text_set, sorted)
    ),
    "undo": JsonRecord(
        PlanRollback,
        _ACTION,
        JsonField("instants", Fields.times),
        _CONTENT,
        JsonField("complete", Fields.flag),
        JsonField("forced", Fields.flag),
        _REASON,
        _APP_TRANSACTIONS,
    ),
    "release": JsonRecord(ReleaseSavepoint, _INSTANT),
}
"""The kinds of facts by the names that the ledger stores."""

_KINDS: Final = {record.kind: name for name, record in _FACTS.items()}
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
