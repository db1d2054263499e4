"""Parses and formats Go durations: `300ms`, `1.5h`, `1m30s`. Pure."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from tidelock.core.errors import InvalidInput
from tidelock.core.limits import TTL_MS_MAX, TTL_MS_MIN

_UNIT_MS = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1_000),
    "µs": Fraction(1, 1_000),
    "μs": Fraction(1, 1_000),
    "ms": Fraction(1),
    "s": Fraction(1_000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_PART = re.compile(r"([0-9]{1,19}(?:\.[0-9]{0,19})?|\.[0-9]{1,19})(ns|us|µs|μs|ms|s|m|h)")
_LENGTH_MAX = 64
_GO_MAX_MS = (2**63 - 1) // 1_000_000


def duration_ms(text: str) -> int:
    """Return a Go duration in milliseconds, rounded up.

    Only a duration of zero is 0: a fraction of a millisecond is 1.
    Raises: `InvalidInput` for text that Go's `time.ParseDuration` rejects.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, offset = Fraction(0), 0
    while offset < len(rest) <= _LENGTH_MAX:
        found = _PART.match(rest, offset)
        if found is None:
            break
        total += Fraction(found[1]) * _UNIT_MS[found[2]]
        offset = found.end()
    if not rest or offset != len(rest) or total > _GO_MAX_MS:
        raise InvalidInput(
            f"expected a duration, got {text[:_LENGTH_MAX]!r}",
            hint="write a Go duration such as 30s, 1m30s or 500ms",
        )
    return sign * math.ceil(total)


def duration_field(name: str, text: str) -> int:
    """Return a duration of 0 or more in ms. Raises: `InvalidInput` with the field and its value."""
    try:
        found = duration_ms(text)
    except InvalidInput as error:
        raise InvalidInput(f"field {name!r}: {error.message}", hint=error.hint) from error
    if found < 0:
        raise InvalidInput(
            f"field {name!r}: expected a duration of 0 or more, got {text!r}",
            hint="write a Go duration such as 30s, 1m30s or 500ms, or omit the field",
        )
    return found


def ttl_field(name: str, text: str) -> int:
    """Return a TTL in ms; 0 is the default. Raises: `InvalidInput` with the field and its value."""
    found = duration_field(name, text)
    if found and not TTL_MS_MIN <= found <= TTL_MS_MAX:
        raise InvalidInput(
            f"field {name!r}: expected {go_duration(TTL_MS_MIN)} to {go_duration(TTL_MS_MAX)},"
            f" got {text!r}",
            hint="renew the lock to hold it for longer",
        )
    return found


def go_duration(duration: int) -> str:
    """Return milliseconds as a Go duration."""
    return f"{duration // 1000}s" if duration % 1000 == 0 else f"{duration}ms"
