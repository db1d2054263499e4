"""Request bodies: JSON that is small, flat, unambiguous and of the right types. Pure."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tidelock.base.errors import InvalidInput
from tidelock.base.limits import SERVICE_BODY_BYTES_MAX, SERVICE_JSON_DEPTH_MAX


def json_object(body: bytes) -> dict[str, Any]:
    """Return the object in `body`; an empty body is an empty object.

    Raises: `InvalidInput` for anything else.
    """
    if len(body) > SERVICE_BODY_BYTES_MAX:
        raise InvalidInput(f"the body has more than {SERVICE_BODY_BYTES_MAX} bytes")
    if not body.strip():
        return {}
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"failed deserializing HTTP body: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("failed deserializing HTTP body: it is not a JSON object")
    if _depth(value) > SERVICE_JSON_DEPTH_MAX:
        raise InvalidInput("failed deserializing HTTP body: it is nested too deeply")
    return value


def text_field(fields: dict[str, Any], name: str) -> str:
    """Return a string field; absent or null is empty."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f"the field {name!r} must be a string")
    return value


def flag_field(fields: dict[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a boolean field."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidInput(f"the field {name!r} must be true or false")
    return value


def whole_field(fields: dict[str, Any], name: str) -> int:
    """Return a field of 32 bits; absent is 0. A string of digits is a number, as in protojson."""
    value = fields.get(name)
    if value is None:
        return 0
    if isinstance(value, str) and value.removeprefix("-").isascii():
        value = int(value) if value.removeprefix("-").isdigit() and len(value) < 12 else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise InvalidInput(f"the field {name!r} must be a whole number of 32 bits")
    return value


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return deepest


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field stands twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_twins, parse_constant=_no_constant)
