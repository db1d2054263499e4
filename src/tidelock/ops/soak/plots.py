"""Line plots as SVG, for a page that loads nothing from elsewhere. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Final

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 720, 220
_LONG_MS: Final = 5_000
"""Times are told in seconds from here on."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
COLOURS: Final = 8
"""Lines are told apart by so many colours of the page's style sheet, `s0` and on."""


def plot(series: Mapping[str, Points], *, unit: str, marks: Sequence[float] = ()) -> str:
    """Return lines over minutes; `marks` are moments, in seconds, shown as thin upright lines.

    A line has a gap where a value is not a number.
    """
    shown = {name: points for name, points in series.items() if points}
    if not shown:
        return '<p class="none">nothing was measured</p>'
    points = [point for line in shown.values() for point in line if not math.isnan(point[1])]
    last_s = max(*(x for x, _ in points), *marks, 1.0)
    top = nice(max(y for _, y in points))
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">', *_grid(last_s, top, unit)]
    upright = "".join(f"M{_x(at, last_s):.1f} {_TOP}V{_y(0, top)}" for at in marks)
    parts.append(f'<path class="mark" d="{upright}"/>')
    for number, line in enumerate(shown.values()):
        for piece in _pieces(line):
            drawn = " ".join(f"{_x(x, last_s):.1f},{_y(y, top):.1f}" for x, y in thinned(piece))
            parts.append(f'<polyline class="s{number % COLOURS}" points="{drawn}"/>')
    parts.append("</svg>")
    if len(shown) > 1 or next(iter(shown)):
        keys = "".join(
            f'<span><i class="s{n % COLOURS}"></i>{escape(name)}</span>'
            for n, name in enumerate(shown)
        )
        parts.append(f'<p class="keys">{keys}</p>')
    return "".join(parts)


def _pieces(line: Points) -> Iterator[Points]:
    """Yield the stretches of a line between its gaps."""
    for is_gap, piece in groupby(line, key=lambda point: math.isnan(point[1])):
        if not is_gap:
            yield list(piece)


def nice(most: float) -> float:
    """Return a round number that is not smaller."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= most)


def thinned(points: Points, most: int = 400) -> Points:
    """Return so many points at most: the largest of each stretch, for peaks are what matters."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    return [max(points[at : at + size], key=lambda p: p[1]) for at in range(0, len(points), size)]


def _x(at_s: float, last_s: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at_s / last_s


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _grid(last_s: float, top: float, unit: str) -> list[str]:
    parts = []
    share, unit = (1_000, "s") if unit == "ms" and top >= _LONG_MS else (1, unit)
    for quarter in range(5):
        y = _y(top * quarter / 4, top)
        value = top * quarter / 4 / share
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        says = f"{value:g} {unit}" if quarter == 4 else f"{value:g}"
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{says}</text>')
    for quarter in range(5):
        at_s = last_s * quarter / 4
        says = f"{at_s / 60:.1f} min" if quarter == 4 else f"{at_s / 60:.1f}"
        x, y = _x(at_s, last_s), _HEIGHT - 8
        anchor = "end" if quarter == 4 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{says}</text>')
    return parts
