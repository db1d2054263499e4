"""The report of a soak for people: one page that needs nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from tidelock.ops.fleet.verdict import Check
from tidelock.ops.soak.curves import Curves, Line, Sample, Written
from tidelock.ops.soak.lean import leanness
from tidelock.ops.soak.plots import plot
from tidelock.ops.soak.report import QUANTILES, TIMES, WRITERS, Told

_HARMS_SHOWN_MAX: Final = 1_000
_MARKS_MAX: Final = 100
_KINDS: Final = {
    "python": "Python writers",
    "spark": "Spark writers",
    "sql": "SQL programs",
    "services": "programs with all table services",
    "reader": "readers",
}
_WAITS: Final = (
    '<p class="sub">For the table\'s lock where one is configured, and in line: on one machine'
    " those who would undo each other's work go one by one.</p>"
)

_STYLE: Final = """
:root{color-scheme:light dark;--back:#fff;--ink:#1c2430;--dim:#6b7685;--line:#e3e7ec;--card:#f7f8fa;
--good:#17803d;--bad:#d92d20}
@media(prefers-color-scheme:dark){:root{--back:#12161c;--ink:#e4e8ee;--dim:#8b96a5;--line:#2a313b;
--card:#1a2028;--good:#4cc07a;--bad:#ff6b5e}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--back);color:var(--ink);max-width:860px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}
.verdict{font-weight:700;padding:.1rem .6rem;border-radius:.3rem;color:#fff}
.pass{background:#17803d}.fail{background:#b42318}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .75rem .25rem 0;
border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--dim);font-weight:500}
.ok{color:var(--good)}.wrong{color:var(--bad);font-weight:700}.none,.sub{color:var(--dim)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:.75rem}
.facts div{background:var(--card);border-radius:.4rem;padding:.6rem .8rem}
.facts b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}.grid{stroke:var(--line)}
polyline{fill:none;stroke-width:1.5}.mark{stroke:var(--bad);stroke-opacity:.12}
summary{cursor:pointer;color:var(--dim);margin:.5rem 0}td{font-variant-numeric:tabular-nums}
.keys span{margin-right:1rem;color:var(--dim);font-size:.85rem}
.keys i{display:inline-block;width:.9rem;height:.2rem;margin-right:.35rem;vertical-align:middle}
""" + "".join(
    f"polyline.s{n}{{stroke:{colour}}}i.s{n}{{background:{colour}}}"
    for n, colour in enumerate(
        ("#2f6fde", "#d9730d", "#17803d", "#9333ea", "#0e9aa7", "#c11574", "#8a6d00", "#64748b")
    )
)


def as_page(told: Told) -> str:
    """Return the report for people: HTML with its style and plots inside."""
    verdict = ("pass", "PASS") if told.passed else ("fail", "FAIL")
    roles = Counter(told.programs.values())
    programs = ", ".join(f"{_KINDS.get(role, role)}: {count}" for role, count in roles.items())
    cards = "".join(
        f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in told.numbers.items()
    )
    sections = "".join(f"<h2>{escape(title)}</h2>{body}" for title, body in _sections(told))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Soak: {escape(told.scenario)}</title><style>{_STYLE}</style>"
        f'<h1>Soak: {escape(told.scenario)} <span class="verdict {verdict[0]}">{verdict[1]}</span>'
        f'</h1><p class="sub">{escape(told.says)}<br>{escape(told.place)}, tidelock'
        f" {escape(told.version)}<br>{escape(programs)}<br>{escape(_locking(told))}</p>"
        f'<div class="facts">{cards}</div>{sections}</html>\n'
    )


def _locking(told: Told) -> str:
    if not told.lock:
        return "no lock: the ledger decides"
    return f"with the table's lock around every commit: {told.lock}"


def _sections(told: Told) -> list[tuple[str, str]]:
    curves, size_s = told.curves, told.bin_s
    # Where something happens all the time, lines would only hide the curves.
    harms = [at for at, _ in curves.harms] if len(curves.harms) <= _MARKS_MAX else []
    commits = {"": told.whole(curves.commits_per_s(size_s))}
    asked = {verb: told.whole(line) for verb, line in curves.requests_per_s(size_s).items()}
    each = {"": told.whole(curves.requests_per_commit(size_s, WRITERS))}
    found = [
        ("What was checked", _checks(told.checks)),
        ("Writes a second", plot(commits, unit="/s", marks=harms)),
        ("How long a write took", _times(told, TIMES["write"], harms)),
        ("How long its commits took", _times(told, TIMES["commit"], harms)),
        ("How long it waited for others", _WAITS + _times(told, TIMES["wait for others"], harms)),
        *_for_the_lock(told, harms),
        ("Storage requests a second", plot(asked, unit="/s", marks=harms)),
        ("Storage requests of a write", plot(each, unit="")),
        ("Memory", plot(_curve(curves, lambda s: s.memory_mb), unit="MB") + _programs(told)),
        ("Open handles", plot(_curve(curves, lambda s: s.handles), unit="")),
        ("Threads", plot(_curve(curves, lambda s: s.threads), unit="")),
        ("CPU", plot(_cpu(curves), unit="cores")),
    ]
    if told.store_faults:
        found.append(("What was done to requests", _counts(told.store_faults)))
    if curves.harms:
        found.append(("What was done to the programs", _harms(curves.harms)))
    return found


def _for_the_lock(told: Told, marks: Sequence[float]) -> list[tuple[str, str]]:
    if not told.lock:
        return []
    waited = _times(told, TIMES["wait for the lock"], marks)
    return [("How much of that was for the lock", waited)]


def _times(told: Told, of: Callable[[Written], float], marks: Sequence[float]) -> str:
    # The median is drawn last, over the others.
    quantiles = reversed(QUANTILES.items())
    lines = {at: told.curves.times_ms(told.bin_s, q, of) for at, q in quantiles}
    return plot(lines, unit="ms", marks=marks)


def _programs(told: Told) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.name)}</td><td>{each.lives}</td><td>{each.longest_s / 60:.1f} min"
        f"</td><td>{each.peak_mb:.0f} MB</td><td>{_or_dash(each.mb_per_minute, '+.2f')}</td>"
        f"<td>{_or_dash(each.handles_more, '+d')}</td></tr>"
        for each in leanness(told.curves)
    )
    names = ("program", "lives", "longest", "most memory", "MB a minute", "handles more")
    heads = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{heads}</tr>{rows}</table>"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _counts(counted: Mapping[str, int]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{count:,}</td></tr>"
        for name, count in sorted(counted.items())
    )
    return f"<table>{rows}</table>"


def _checks(checks: Sequence[Check]) -> str:
    words = {True: ("ok", "ok"), False: ("wrong", "WRONG"), None: ("none", "-")}
    rows = "".join(
        f'<tr><td class="{words[check.passed][0]}">{words[check.passed][1]}</td>'
        f"<td>{escape(check.says)}</td></tr>"
        for check in checks
    )
    return f"<table>{rows}</table>"


def _harms(harms: Sequence[tuple[float, str]]) -> str:
    shown = harms[:_HARMS_SHOWN_MAX]
    rows = "".join(
        f"<tr><td>{at / 60:.2f} min</td><td>{escape(what)}</td></tr>" for at, what in shown
    )
    more = f", the first {len(shown):,} of them" if len(harms) > len(shown) else ""
    counted = Counter(what.partition(" ")[0] for _, what in harms)
    return (
        f"{_counts(counted)}<details><summary>When, and to whom{more}</summary>"
        f"<table>{rows}</table></details>"
    )


def _curve(curves: Curves, of: Callable[[Sample], float]) -> dict[str, Line]:
    return _lines(curves, lambda life: [(sample.at_s, of(sample)) for sample in life])


def _cpu(curves: Curves) -> dict[str, Line]:
    return _lines(curves, lambda life: [_cores(*two) for two in pairwise(life)])


def _lines(curves: Curves, of: Callable[[Sequence[Sample]], Line]) -> dict[str, Line]:
    """Return a line for each program, with a gap between two of its lives."""
    found: dict[str, Line] = {}
    for (name, _), life in curves.lives().items():
        line = found.setdefault(name, [])
        line += [(life[0].at_s, math.nan)] if line else []
        line += of(life)
    return found


def _cores(before: Sample, after: Sample) -> tuple[float, float]:
    spent_s = max(0.1, after.at_s - before.at_s)
    return after.at_s, max(0.0, after.cpu_s - before.cpu_s) / spent_s
