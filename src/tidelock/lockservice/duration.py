"""Go durations: `300ms`, `1.5h`, `1m30s`. Pure."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from tidelock.base.errors import InvalidInput
from tidelock.base.limits import TTL_MS_MAX, TTL_MS_MIN

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
    """Return the whole milliseconds of a Go duration; a part of one counts as one.

    Only a duration of zero is 0: what is shorter than a millisecond is not mistaken for nothing.
    Raises: `InvalidInput` for what Go's `time.ParseDuration` refuses.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, place = Fraction(0), 0
    while place < len(rest) <= _LENGTH_MAX:
        found = _PART.match(rest, place)
        if found is None:
            break
        total += Fraction(found[1]) * _UNIT_MS[found[2]]
        place = found.end()
    if not rest or place != len(rest) or total > _GO_MAX_MS:
        raise InvalidInput(
            f"{text[:_LENGTH_MAX]!r} is not a duration",
            hint="write a Go duration such as 30s, 1m30s or 500ms",
        )
    return sign * math.ceil(total)


def duration_field(name: str, text: str) -> int:
    """Return the milliseconds of a request's or a component's field, which is not negative.

    Raises: `InvalidInput`, which names the field and its value.
    """
    try:
        found = duration_ms(text)
    except InvalidInput as error:
        raise InvalidInput(f"the field {name!r}: {error.message}", hint=error.hint) from error
    if found < 0:
        raise InvalidInput(
            f"the field {name!r} is {text!r}, and a duration cannot be negative",
            hint="write a Go duration such as 30s, 1m30s or 500ms, or leave it out",
        )
    return found


def ttl_field(name: str, text: str) -> int:
    """Return the milliseconds of a TTL; 0 stands for the default of the lock store.

    Raises: `InvalidInput`, which names the field and its value.
    """
    found = duration_field(name, text)
    if found and not TTL_MS_MIN <= found <= TTL_MS_MAX:
        raise InvalidInput(
            f"the field {name!r} is {text!r}, which is outside {go_duration(TTL_MS_MIN)} to"
            f" {go_duration(TTL_MS_MAX)}",
            hint="renewals, not a long TTL, make a holding last",
        )
    return found


def go_duration(duration: int) -> str:
    """Return milliseconds as a Go duration."""
    return f"{duration // 1000}s" if duration % 1000 == 0 else f"{duration}ms"
