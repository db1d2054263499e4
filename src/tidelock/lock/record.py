"""The lock record: Hudi's three fields and Tidelock's additions (P1, P3, P4).

Pure. The decoder returns a record or raises `DataCorrupt`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from tidelock.core.errors import DataCorrupt, RecordFromFuture
from tidelock.core.limits import RECORD_BYTES_MAX, RECORD_FORMAT, RECORD_TEXT_BYTES_MAX, TOKEN_MAX


@dataclass(frozen=True, slots=True)
class PreviousRecord:
    """The record that a write replaced; tells a later grant from a forced takeover (P25)."""

    owner: str
    nonce: str
    token: int
    expired: bool


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The lock record. Records written by Java have no token, ceiling, nonce or previous record."""

    expired: bool
    valid_until_epoch_ms: int
    owner: str
    token: int = 0
    token_ceiling: int = 0
    nonce: str = ""
    previous: PreviousRecord | None = None

    @property
    def is_ours(self) -> bool:
        """Whether Tidelock wrote the record, not a Java writer."""
        return self.nonce != ""

    def written_by(self, owner: str) -> bool:
        """Return whether the client `owner` made this write (P3)."""
        return self.nonce.startswith(f"{owner}:")

    def as_previous(self) -> PreviousRecord:
        """Return the reference to this record for the next one."""
        return PreviousRecord(self.owner, self.nonce, self.token, self.expired)


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """The durable upper bound of granted tokens (P5)."""

    ceiling: int
    nonce: str


def encode(record: LockRecord) -> bytes:
    """Return `record` as one line of JSON, Hudi's fields first."""
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


def decode(body: bytes) -> LockRecord:
    """Return the record in `body`; raise `DataCorrupt` if there is none."""
    fields = _json_object(body, "lock record")
    for name in ("expired", "validUntil", "owner"):
        if name not in fields:
            raise DataCorrupt(f"lock record: field {name!r} is missing")
    version = _format(fields, "lock record")
    expired, valid_until_ms = _boolean(fields, "expired"), _integer(fields, "validUntil")
    owner = _string(fields, "owner")
    if version == 0:
        # Written by Java or another tool: only Hudi's three fields count.
        return LockRecord(expired, valid_until_ms, owner)
    return LockRecord(
        expired,
        valid_until_ms,
        owner,
        token=_integer(fields, "token"),
        token_ceiling=_integer(fields, "tokenCeiling"),
        nonce=_nonce(fields),
        previous=_previous(fields.get("previous")),
    )


def encode_counter(counter: TokenCounter) -> bytes:
    fields = {"ceiling": counter.ceiling, "nonce": counter.nonce, "format": RECORD_FORMAT}
    return _ENCODER.encode(fields).encode()


def decode_counter(body: bytes) -> TokenCounter:
    """Return the token counter in `body`, or raise `DataCorrupt`."""
    fields = _json_object(body, "token counter")
    _format(fields, "token counter")
    return TokenCounter(_integer(fields, "ceiling"), _nonce(fields))


def _format(fields: dict[str, Any], what: str) -> int:
    version = _integer(fields, "format", default=0)
    if version > RECORD_FORMAT:
        raise RecordFromFuture(
            f"{what}: format {version} is newer than {RECORD_FORMAT}, the latest supported one",
            hint="upgrade tidelock on this machine",
        )
    return version


def _previous(value: object) -> PreviousRecord | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DataCorrupt("lock record: field 'previous': expected an object")
    return PreviousRecord(
        _string(value, "owner"),
        _string(value, "nonce"),
        _integer(value, "token"),
        _boolean(value, "expired"),
    )


def _json_object(body: bytes, what: str) -> dict[str, Any]:
    if len(body) > RECORD_BYTES_MAX:
        raise DataCorrupt(f"{what}: larger than {RECORD_BYTES_MAX} bytes")
    if not body:
        raise DataCorrupt(f"{what}: empty")
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"{what}: not UTF-8 text") from error
    except json.JSONDecodeError as error:
        cut = error.pos >= len(body.decode("utf-8").rstrip()) or "Unterminated" in error.msg
        problem = "truncated JSON" if cut else "not JSON"
        raise DataCorrupt(f"{what}: {problem}: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise DataCorrupt(f"{what}: nested too deeply") from error
    except ValueError as error:
        # Python raises a plain ValueError for integers with thousands of digits.
        raise DataCorrupt(f"{what}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataCorrupt(f"{what}: expected a JSON object, got a {_json_type(value)}")
    return value


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DataCorrupt(f"field {duplicate!r} occurs twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise DataCorrupt(f"{name} is not valid JSON")


# Created once: creating a coder takes longer than coding a record.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique_fields, parse_constant=_no_constant)


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise DataCorrupt(f"field {name!r}: expected a string, got a {_json_type(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        # P4: JSON can contain a lone surrogate, which cannot be encoded as UTF-8 again.
        raise DataCorrupt(f"field {name!r}: contains a lone surrogate") from error
    if size > RECORD_TEXT_BYTES_MAX:
        raise DataCorrupt(f"field {name!r}: longer than {RECORD_TEXT_BYTES_MAX} bytes")
    return value


def _nonce(fields: dict[str, Any]) -> str:
    nonce = _string(fields, "nonce")
    if not nonce:
        raise DataCorrupt("field 'nonce': empty")
    return nonce


def _boolean(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise DataCorrupt(f"field {name!r}: expected true or false, got a {_json_type(value)}")
    return value


def _integer(fields: dict[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataCorrupt(f"field {name!r}: expected an integer, got a {_json_type(value)}")
    if not 0 <= value <= TOKEN_MAX:
        raise DataCorrupt(f"field {name!r}: expected 0 to {TOKEN_MAX}, got {value}")
    return value


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "null" if value is None else "missing value")


_JSON_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "list",
    dict: "object",
}
