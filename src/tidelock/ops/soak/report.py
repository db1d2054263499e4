"""The report of a soak: one page that needs nothing else, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any, Final

from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.verdict import Check
from tidelock.ops.soak.curves import Curves, Sample, quantile_of
from tidelock.ops.soak.plots import Points, plot

_HARMS_SHOWN_MAX: Final = 200

_STYLE: Final = """
:root{color-scheme:light dark;--back:#fff;--ink:#1c2430;--dim:#6b7685;--line:#e3e7ec;--card:#f7f8fa}
@media(prefers-color-scheme:dark){:root{--back:#12161c;--ink:#e4e8ee;--dim:#8b96a5;--line:#2a313b;
--card:#1a2028}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--back);color:var(--ink);max-width:860px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}
.verdict{font-weight:700;padding:.1rem .6rem;border-radius:.3rem;color:#fff}
.pass{background:#17803d}.fail{background:#b42318}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .75rem .25rem 0;
border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--dim);font-weight:500}
.ok{color:#17803d}.wrong{color:#d92d20;font-weight:700}.none,.sub{color:var(--dim)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:.75rem}
.facts div{background:var(--card);border-radius:.4rem;padding:.6rem .8rem}
.facts b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}.grid{stroke:var(--line)}
polyline{fill:none;stroke-width:1.5}.mark{stroke:#d92d20;stroke-opacity:.18}
.keys span{margin-right:1rem;color:var(--dim);font-size:.85rem}
.keys i{display:inline-block;width:.9rem;height:.2rem;margin-right:.35rem;vertical-align:middle}
""" + "".join(
    f"polyline.s{n}{{stroke:{colour}}}i.s{n}{{background:{colour}}}"
    for n, colour in enumerate(
        ("#2f6fde", "#d9730d", "#17803d", "#9333ea", "#0e9aa7", "#c11574", "#8a6d00", "#64748b")
    )
)


@dataclass(frozen=True, slots=True)
class Told:
    """Everything a report tells."""

    scenario: str
    says: str
    place: str
    version: str
    elapsed_s: float
    programs: Mapping[str, str]
    checks: Sequence[Check]
    record: Record
    curves: Curves
    requests: Mapping[str, int] = field(default_factory=dict)
    store_faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Tell whether every check that could be made passed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def numbers(self) -> dict[str, str]:
        """The figures that sum it up, by what they are."""
        took = [ms for _, ms in self.curves.latencies]
        record = self.record
        found = {
            "minutes": f"{self.elapsed_s / 60:.1f}",
            "writes landed": f"{len(record.landed):,}",
            "writes a second": f"{len(record.landed) / max(1.0, self.elapsed_s):.1f}",
            "write, median": f"{quantile_of(took, 0.5):.0f} ms",
            "write, 99 %": f"{quantile_of(took, 0.99):.0f} ms",
            "merged again": f"{record.rebases:,}",
            "tries failed": f"{len(record.failures):,}",
            "reads checked": f"{record.reads:,}",
            "programs harmed": f"{len(self.curves.harms):,}",
        }
        found |= {f"{name} done": f"{n:,}" for name, n in sorted(record.served.items())}
        if self.requests:
            found["requests"] = f"{sum(self.requests.values()):,}"
            found["requests harmed"] = f"{sum(self.store_faults.values()):,}"
        return found


def as_facts(told: Told) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "passed": told.passed,
        "scenario": told.scenario,
        "place": told.place,
        "version": told.version,
        "elapsed_s": round(told.elapsed_s, 1),
        "programs": dict(told.programs),
        "checks": [{"passed": check.passed, "says": check.says} for check in told.checks],
        "numbers": told.numbers,
        "harms": [{"at_s": at, "what": what} for at, what in told.curves.harms],
        "requests": dict(told.requests),
        "store_faults": dict(told.store_faults),
        "failures": [
            {"name": each.name, "says": each.facts.get("says", "")} for each in told.record.failures
        ],
        "commits_per_s": told.curves.commits_per_s(_bin_s(told)),
    }


def as_page(told: Told) -> str:
    """Return the report for people: HTML with its style and plots inside."""
    verdict = ("pass", "PASS") if told.passed else ("fail", "FAIL")
    programs = ", ".join(f"{name} ({role})" for name, role in told.programs.items())
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
        f" {escape(told.version)}<br>{escape(programs)}</p>"
        f'<div class="facts">{cards}</div>{sections}</html>\n'
    )


def _sections(told: Told) -> list[tuple[str, str]]:
    curves, size_s = told.curves, _bin_s(told)
    harms = [at for at, _ in curves.harms]
    found = [
        ("What was checked", _checks(told.checks)),
        ("Writes a second", plot({"": curves.commits_per_s(size_s)}, unit="/s", marks=harms)),
        (
            "How long a write took",
            plot(
                {
                    "median": curves.latency_ms(size_s, 0.5),
                    "99 %": curves.latency_ms(size_s, 0.99),
                },
                unit="ms",
                marks=harms,
            ),
        ),
        ("Memory", plot(_curve(curves, lambda s: s.memory_mb), unit="MB")),
        ("Open handles", plot(_curve(curves, lambda s: s.handles), unit="")),
        ("Threads", plot(_curve(curves, lambda s: s.threads), unit="")),
        ("CPU", plot(_cpu(curves), unit="cores")),
    ]
    if curves.harms:
        found.append(("What was done to the programs", _harms(curves.harms)))
    return found


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
    rows = "".join(f"<tr><td>{at:.1f} s</td><td>{escape(what)}</td></tr>" for at, what in shown)
    more = len(harms) - len(shown)
    rest = f'<p class="sub">and {more} more</p>' if more else ""
    return f"<table><tr><th>when</th><th>what</th></tr>{rows}</table>{rest}"


def _curve(curves: Curves, of: Any) -> dict[str, Points]:
    found: dict[str, list[tuple[float, float]]] = {}
    for sample in curves.samples:
        found.setdefault(sample.name, []).append((sample.at_s, float(of(sample))))
    return dict(found)


def _cpu(curves: Curves) -> dict[str, Points]:
    found: dict[str, list[tuple[float, float]]] = {}
    for (name, _), life in curves.lives().items():
        line = found.setdefault(name, [])
        line += [_cores(before, after) for before, after in pairwise(life)]
    return dict(found)


def _cores(before: Sample, after: Sample) -> tuple[float, float]:
    spent_s = max(0.1, after.at_s - before.at_s)
    return after.at_s, max(0.0, after.cpu_s - before.cpu_s) / spent_s


def _bin_s(told: Told) -> float:
    return max(1.0, told.elapsed_s / 120)
