"""The lock record: Hudi's three fields, and ours beside them (P1, P3, P4).

Pure. The decoder accepts a record or raises `DataCorrupt`; it never guesses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from tidelock.base.errors import DataCorrupt, RecordFromFuture
from tidelock.base.limits import (
    RECORD_BYTES_MAX,
    RECORD_FORMAT,
    RECORD_TEXT_BYTES_MAX,
    TOKEN_MAX,
)


@dataclass(frozen=True, slots=True)
class Previous:
    """What a write replaced: enough to tell a release that was overtaken from a theft (P25)."""

    owner: str
    nonce: str
    token: int
    expired: bool


@dataclass(frozen=True, slots=True)
class Record:
    """One state of a lock. A record written by Java has no token, ceiling, nonce or previous."""

    expired: bool
    valid_until_epoch_ms: int
    owner: str
    token: int = 0
    token_ceiling: int = 0
    nonce: str = ""
    previous: Previous | None = None

    @property
    def is_ours(self) -> bool:
        """Tell whether this package wrote it, rather than a Java writer."""
        return self.nonce != ""

    def written_by(self, owner: str) -> bool:
        """Tell whether the client `owner` made this very write (P3)."""
        return self.nonce.startswith(f"{owner}:")

    def as_previous(self) -> Previous:
        """Return what the next record says of this one."""
        return Previous(self.owner, self.nonce, self.token, self.expired)


@dataclass(frozen=True, slots=True)
class Counter:
    """The durable ceiling of granted tokens (P5)."""

    ceiling: int
    nonce: str


def encode(record: Record) -> bytes:
    """Return the bytes of `record`: one line of JSON, Hudi's fields first."""
    fields: dict[str, object] = {
        "expired": record.expired,
        "validUntil": record.valid_until_epoch_ms,
        "owner": record.owner,
    }
    if record.is_ours:
        fields["token"] = record.token
        fields["tokenCeiling"] = record.token_ceiling
        fields["nonce"] = record.nonce
        if record.previous is not None:
            fields["previous"] = {
                "owner": record.previous.owner,
                "nonce": record.previous.nonce,
                "token": record.previous.token,
                "expired": record.previous.expired,
            }
        fields["format"] = RECORD_FORMAT
    return _ENCODER.encode(fields).encode()


def decode(body: bytes) -> Record:
    """Return the record in `body`, or raise `DataCorrupt` saying what the bytes are instead."""
    fields = _json_object(body, "lock record")
    for name in ("expired", "validUntil", "owner"):
        if name not in fields:
            raise DataCorrupt(f"the lock record has no field {name!r}")
    if _format(fields, "lock record") == 0:
        # Java, or another tool that knows Hudi's three fields. Whatever else it wrote is not ours.
        return Record(
            _flag(fields, "expired"), _whole(fields, "validUntil"), _text(fields, "owner")
        )
    return Record(
        expired=_flag(fields, "expired"),
        valid_until_epoch_ms=_whole(fields, "validUntil"),
        owner=_text(fields, "owner"),
        token=_whole(fields, "token"),
        token_ceiling=_whole(fields, "tokenCeiling"),
        nonce=_nonce(fields),
        previous=_previous(fields.get("previous")),
    )


def encode_counter(counter: Counter) -> bytes:
    """Return the bytes of the token counter."""
    fields = {"ceiling": counter.ceiling, "nonce": counter.nonce, "format": RECORD_FORMAT}
    return _ENCODER.encode(fields).encode()


def decode_counter(body: bytes) -> Counter:
    """Return the token counter in `body`, or raise `DataCorrupt`."""
    fields = _json_object(body, "token counter")
    _format(fields, "token counter")
    return Counter(_whole(fields, "ceiling"), _nonce(fields))


def _format(fields: dict[str, Any], what: str) -> int:
    form = _whole(fields, "format", default=0)
    if form > RECORD_FORMAT:
        raise RecordFromFuture(
            f"the {what} has format {form}; this version reads up to {RECORD_FORMAT}",
            hint="upgrade tidelock on this machine",
        )
    return form


def _previous(value: object) -> Previous | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DataCorrupt("the field 'previous' of the lock record is not an object")
    return Previous(
        _text(value, "owner"),
        _text(value, "nonce"),
        _whole(value, "token"),
        _flag(value, "expired"),
    )


def _json_object(body: bytes, what: str) -> dict[str, Any]:
    if len(body) > RECORD_BYTES_MAX:
        raise DataCorrupt(f"the {what} is larger than {RECORD_BYTES_MAX} bytes")
    if not body:
        raise DataCorrupt(f"the {what} is empty")
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"the {what} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        cut = error.pos >= len(body.decode("utf-8").rstrip()) or "Unterminated" in error.msg
        state = "ends too early" if cut else "is not JSON"
        raise DataCorrupt(f"the {what} {state}: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise DataCorrupt(f"the {what} is nested too deeply") from error
    except ValueError as error:
        # Python refuses integers of thousands of digits with a plain ValueError.
        raise DataCorrupt(f"the {what} is not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise DataCorrupt(f"the {what} is a JSON {_json_type(value)}, not an object")
    return value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise DataCorrupt(f"the field {twin!r} stands twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise DataCorrupt(f"{name} is not a JSON number")


# Made once: a coder costs more to make than a record costs to code.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(object_pairs_hook=_no_twins, parse_constant=_no_constant)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise DataCorrupt(f"the field {name!r} is a {_json_type(value)}, not a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        # JSON can spell half a character, and nobody can write it as UTF-8 again (P4).
        raise DataCorrupt(f"the field {name!r} holds half a character") from error
    if size > RECORD_TEXT_BYTES_MAX:
        raise DataCorrupt(f"the field {name!r} is longer than {RECORD_TEXT_BYTES_MAX} bytes")
    return value


def _nonce(fields: dict[str, Any]) -> str:
    nonce = _text(fields, "nonce")
    if not nonce:
        raise DataCorrupt("the field 'nonce' is empty")
    return nonce


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise DataCorrupt(f"the field {name!r} is a {_json_type(value)}, not true or false")
    return value


def _whole(fields: dict[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataCorrupt(f"the field {name!r} is a {_json_type(value)}, not a whole number")
    if not 0 <= value <= TOKEN_MAX:
        raise DataCorrupt(f"the field {name!r} is {value}, outside 0 to {TOKEN_MAX}")
    return value


def _json_type(value: object) -> str:
    names = {
        bool: "boolean",
        int: "number",
        float: "number",
        str: "string",
        list: "list",
        dict: "object",
    }
    return names.get(type(value), "null" if value is None else "missing value")
