"""Go durations: `300ms`, `1.5h`, `1m30s`. Pure."""

from __future__ import annotations

import re
from fractions import Fraction

from tidelock.base.errors import InvalidInput

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
    """Return the whole milliseconds of a Go duration, rounded towards zero.

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
    return sign * int(total)


def go_duration(duration: int) -> str:
    """Return milliseconds as a Go duration."""
    return f"{duration // 1000}s" if duration % 1000 == 0 else f"{duration}ms"
