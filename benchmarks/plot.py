"""Bar charts as SVG with text and rectangles, without external resources. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH = 860
_LABEL = 300
_ROW = 22
_TOP = 44
_BAR = 14
_OURS, _OTHERS, _FLOOR = "#1f6f8b", "#b9c4cc", "#e3c26b"

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" font-family="sans-serif" font-size="13">
<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>"""
_TITLE = """\
<text x="16" y="27" font-size="15" font-weight="bold" fill="#222222">{title}\
<tspan font-weight="normal" fill="#666666"> ({unit})</tspan></text>"""
_ROW_OF = """\
<text x="{before}" y="{base}" text-anchor="end" fill="#222222"{weight}>{label}</text>
<rect x="{left}" y="{top}" width="{long}" height="{high}" fill="{colour}"/>
<text x="{behind}" y="{base}" fill="#444444">{value}</text>"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. `kind` is ours, other or limit."""

    label: str
    value: float
    kind: str = "other"


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Return a chart of horizontal bars in the given order; the longest one fills the width."""
    most = max((row.value for row in rows), default=1.0) or 1.0
    room = _WIDTH - _LABEL - 80
    height = _TOP + _ROW * len(rows) + 12
    parts = [
        _SVG.format(width=_WIDTH, height=height),
        _TITLE.format(title=escape(title), unit=escape(unit)),
    ]
    for number, row in enumerate(rows):
        top = _TOP + number * _ROW
        long = max(1.0, row.value / most * room)
        parts.append(
            _ROW_OF.format(
                label=escape(row.label),
                weight=' font-weight="bold"' if row.kind == "ours" else "",
                colour={"ours": _OURS, "limit": _FLOOR}.get(row.kind, _OTHERS),
                value=f"{row.value:.3g}",
                left=_LABEL,
                before=_LABEL - 8,
                behind=f"{_LABEL + long + 6:.1f}",
                long=f"{long:.1f}",
                high=_BAR,
                top=top,
                base=top + 12,
            )
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
