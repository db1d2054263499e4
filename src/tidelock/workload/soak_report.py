"""The report of a soak: measurements, resource checks, and a self-contained HTML page."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelock.core.errors import MissingExtra
from tidelock.workload.journal import FleetRecord
from tidelock.workload.report import Check, RunReport
from tidelock.workload.table_program import WRITER_ROLES

if TYPE_CHECKING:
    from jinja2 import Template

Line = list[tuple[float, float]]
"""Times, in seconds, and values."""

REQUESTS_BIN_S: Final = 5
"""The interval over which requests are counted."""


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """The resources of one program at one time; `life` counts its starts."""

    at_s: float
    name: str
    life: int
    memory_mb: float
    cpu_s: float
    threads: int
    handles: int


class WriteSample(NamedTuple):
    """One write: when it was acknowledged, and how long it, its commits and its waits took."""

    at_s: float
    took_ms: float
    commit_ms: float = 0.0
    wait_ms: float = 0.0
    lock_ms: float = 0.0
    """The part of `wait_ms` spent waiting for the table's lock."""


@dataclass(slots=True)
class Measurements:
    """All measurements of a soak, in order of time."""

    samples: list[ResourceSample] = field(default_factory=list)
    writes: list[WriteSample] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    """Faults injected into programs: when, and what."""
    requests: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    """Requests by verb, for each interval and role."""

    def add_requests(self, at_s: float, role: str, sent: Mapping[str, int]) -> None:
        """Add requests by verb."""
        self.requests.setdefault((int(at_s // REQUESTS_BIN_S), role), Counter()).update(sent)

    def lives(self) -> Mapping[tuple[str, int], list[ResourceSample]]:
        """Return the samples of each process of each program."""
        found: dict[tuple[str, int], list[ResourceSample]] = {}
        for sample in self.samples:
            found.setdefault((sample.name, sample.life), []).append(sample)
        return found

    def commits_per_s(self, bin_s: float) -> Line:
        """Return the number of commits per second for each interval."""
        counted = Counter(int(write.at_s // bin_s) for write in self.writes)
        return [(n * bin_s, counted[n] / bin_s) for n in _bins(counted)]

    def times_ms(self, bin_s: float, quantile: float, of: Callable[[WriteSample], float]) -> Line:
        """Return a quantile of a duration for each interval."""
        binned: dict[int, list[float]] = {}
        for write in self.writes:
            binned.setdefault(int(write.at_s // bin_s), []).append(of(write))
        return [(n * bin_s, quantile_of(took, quantile)) for n, took in sorted(binned.items())]

    def requests_per_s(self, bin_s: float) -> dict[str, Line]:
        """Return the number of requests per second by verb."""
        size, counted = _rounded(bin_s), Counter[tuple[str, int]]()
        for (at, _), sent in self.requests.items():
            for verb, count in sent.items():
                counted[verb, at // (size // REQUESTS_BIN_S)] += count
        bins = _bins(n for _, n in counted)
        verbs = sorted({verb for verb, _ in counted})
        return {verb: [(n * size, counted[verb, n] / size) for n in bins] for verb in verbs}

    def requests_per_commit(self, bin_s: float, roles: frozenset[str]) -> Line:
        """Return the number of requests per commit that programs of these roles sent."""
        size = _rounded(bin_s)
        sent = Counter[int]()
        for (at, role), counts in self.requests.items():
            sent[at // (size // REQUESTS_BIN_S)] += counts.total() if role in roles else 0
        writes = Counter(int(write.at_s // size) for write in self.writes)
        return [(n * size, sent[n] / writes[n]) for n in _bins(writes) if writes[n] and sent[n]]

    def requests_of(self, roles: frozenset[str] | None = None) -> Counter[str]:
        """Return the total number of requests by verb that programs of these roles sent."""
        total = Counter[str]()
        for (_, role), sent in self.requests.items():
            if roles is None or role in roles:
                total.update(sent)
        return total


def quantile_of(values: Sequence[float], quantile: float) -> float:
    """Return a quantile of the values; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0


def _bins(numbers: Iterable[int]) -> range:
    return range(max(numbers, default=-1) + 1)


def _rounded(bin_s: float) -> int:
    """Return `bin_s` rounded up to a multiple of the request interval."""
    return max(1, math.ceil(bin_s / REQUESTS_BIN_S)) * REQUESTS_BIN_S


MEMORY_MB_PER_MINUTE_MAX: Final = 1.0
HANDLES_MORE_MAX: Final = 8
CHECKED_FROM_S: Final = 1_200.0
"""Memory is checked only for processes that ran this long: heaps grow for eight minutes first."""

_WARM_UP: Final = 0.4
"""The share of the lifetime of a process in which its caches fill."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources of one program over all its processes; None if none ran long enough."""

    name: str
    lives: int
    longest_s: float
    peak_mb: float
    mb_per_minute: float | None
    handles_more: int | None


def resource_use(measurements: Measurements) -> list[ResourceUse]:
    """Return the resources of each program; the worst of its processes counts."""
    lives: dict[str, list[list[ResourceSample]]] = {}
    for (name, _), life in measurements.lives().items():
        lives.setdefault(name, []).append(life)
    return [
        ResourceUse(
            name,
            max(life[-1].life for life in found),
            max(life[-1].at_s - life[0].at_s for life in found),
            max(sample.memory_mb for life in found for sample in life),
            max(
                (s for life in found if (s := slope_mb_per_minute(life)) is not None), default=None
            ),
            max((more for life in found if (more := handles_more(life)) is not None), default=None),
        )
        for name, found in lives.items()
    ]


def resource_checks(measurements: Measurements) -> list[Check]:
    """Check memory and handles of each process that ran long enough."""
    found = resource_use(measurements)
    slopes = {each.name: each.mb_per_minute for each in found if each.mb_per_minute is not None}
    handles = {each.name: each.handles_more for each in found if each.handles_more is not None}
    if not slopes or not handles:
        return [
            Check(None, f"memory and handles are checked after {CHECKED_FROM_S / 60:g} minutes")
        ]
    grew = ", ".join(f"{name} {slope:+.2f}" for name, slope in slopes.items())
    more = ", ".join(f"{name} {count:+d}" for name, count in handles.items())
    most_mb, most = max(slopes.values()), max(handles.values())
    return [
        Check(
            most_mb < MEMORY_MB_PER_MINUTE_MAX,
            f"memory grows by at most {most_mb:+.2f} MB per minute after the warm-up ({grew})",
        ),
        Check(most <= HANDLES_MORE_MAX, f"open handles grow by at most {most:+d} ({more})"),
    ]


def slope_mb_per_minute(samples: Sequence[ResourceSample]) -> float | None:
    """Return the memory growth of one process after its warm-up; None if it ran too short."""
    if not samples or samples[-1].at_s - samples[0].at_s < CHECKED_FROM_S:
        return None
    warm_s = samples[0].at_s + _WARM_UP * (samples[-1].at_s - samples[0].at_s)
    warm = [(sample.at_s / 60, sample.memory_mb) for sample in samples if sample.at_s >= warm_s]
    minutes, memory = zip(*warm, strict=True)
    return statistics.linear_regression(minutes, memory).slope


def handles_more(samples: Sequence[ResourceSample]) -> int | None:
    """Return the growth of open handles of one process after its warm-up."""
    if not samples or samples[-1].at_s - samples[0].at_s < CHECKED_FROM_S:
        return None
    third = len(samples) // 3
    early = statistics.median(sample.handles for sample in samples[third : 2 * third])
    late = statistics.median(sample.handles for sample in samples[2 * third :])
    return round(late - early)


Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, _WIDTH - 12, 12, _HEIGHT - 28
"""The edges of the area of a plot."""
_LONG_MS: Final = 5_000
"""From this value on, times are shown in seconds."""
_COLOURS: Final = (
    *("#2f6fde", "#d9730d", "#17803d", "#9333ea"),
    *("#0e9aa7", "#c11574", "#8a6d00", "#64748b"),
)


@cache
def template(name: str) -> Template:
    """Return a template of the page. Raises: `MissingExtra` without Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtra(
            "the report of a soak needs Jinja2", hint="pip install 'tidelock[soak]'"
        ) from error
    return Environment(
        loader=PackageLoader("tidelock.workload"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    ).get_template(name)


def plot(series: Mapping[str, Points], *, unit: str, marks: Sequence[float] = ()) -> str:
    """Return an SVG plot over minutes; `marks` are times, in seconds, shown as vertical lines.

    A line has a gap where a value is NaN.
    """
    shown = {name: points for name, points in series.items() if points}
    points = [point for line in shown.values() for point in line if not math.isnan(point[1])]
    last_s = max([1.0, *marks, *(x for x, _ in points)])
    most = round_up(max((y for _, y in points), default=0.0))
    share, unit = (1_000, "s") if unit == "ms" and most >= _LONG_MS else (1, unit)

    def x(at_s: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * at_s / last_s

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * value / most

    return template("plot.html").render(
        names=list(shown),
        colours=len(_COLOURS),
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
        unit=unit,
        marks=[x(at_s) for at_s in marks],
        quarters=[
            (x(last_s * part), last_s * part / 60, y(most * part), most * part / share)
            for part in (0, 0.25, 0.5, 0.75, 1)
        ],
        segments=[
            (n % len(_COLOURS), " ".join(f"{x(at):.1f},{y(v):.1f}" for at, v in downsample(piece)))
            for n, line in enumerate(shown.values())
            for piece in _segments(line)
        ],
    )


def _segments(line: Points) -> Iterator[Points]:
    """Yield the segments of a line between its gaps."""
    for is_gap, piece in groupby(line, key=lambda point: math.isnan(point[1])):
        if not is_gap:
            yield list(piece)


def round_up(most: float) -> float:
    """Return the next round number, for the top of an axis."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= most)


def downsample(points: Points, most: int = 400) -> Points:
    """Return at most `most` points: the largest of each interval, so that peaks remain."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    return [max(points[at : at + size], key=lambda p: p[1]) for at in range(0, len(points), size)]


_WRITERS: Final = frozenset(role.value for role in WRITER_ROLES)
QUANTILES: Final = {"median": 0.5, "95 %": 0.95, "99 %": 0.99}
TIMES: Final[Mapping[str, Callable[[WriteSample], float]]] = {
    "write": lambda write: write.took_ms,
    "commit": lambda write: write.commit_ms,
    "wait for others": lambda write: write.wait_ms,
    "wait for the lock": lambda write: write.lock_ms,
}
"""The durations of a write: total, in its commits, waiting for lock or queue, for the lock."""

_SUMMARY_QUANTILES: Final = (("median", 0.5), ("99 %", 0.99))
_SERVICE_LABELS: Final = {
    "archive": "archivings",
    "clean": "cleans",
    "cluster": "clusterings",
    "compact": "compactions",
}
_BINS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakReport(RunReport):
    """The result of a soak."""

    scenario: str
    description: str
    location: str
    version: str
    elapsed_s: float
    programs: Mapping[str, str]
    """The role of each program."""
    record: FleetRecord
    measurements: Measurements
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests that the server received, by method, if it counts them."""
    store_faults: Mapping[str, int] = field(default_factory=dict)
    """Faults injected into requests, by kind."""
    lock: str = ""
    """The provider of the table's lock; "" if commits take no lock."""

    @property
    def violations(self) -> int:
        """The number of wrong rows, reads, steps and objects."""
        return sum(check.violations for check in self.checks)

    @property
    def bin_s(self) -> float:
        """The length of the interval that one point of a curve covers."""
        return max(1.0, self.elapsed_s / _BINS)

    @property
    def durations(self) -> Mapping[str, Callable[[WriteSample], float]]:
        """The durations of a write that apply to this soak."""
        return {n: of for n, of in TIMES.items() if self.lock or n != "wait for the lock"}

    @property
    def requests_per_commit(self) -> float:
        """The number of requests of writers per commit."""
        sent = self.measurements.requests_of(_WRITERS).total()
        return sent / max(1, len(self.measurements.writes))

    @property
    def numbers(self) -> dict[str, str]:
        """The key figures by their name in JSON output."""
        record, sent = self.record, self.measurements.requests_of().total()
        found = {
            "minutes": f"{self.elapsed_s / 60:.1f}",
            "writes landed": f"{len(record.committed):,}",
            "violations": f"{self.violations:,}",
            "writes a second": f"{len(record.committed) / max(1.0, self.elapsed_s):.1f}",
        }
        for name, of in self.durations.items():
            took = [of(write) for write in self.measurements.writes]
            found |= {f"{name}, {at}": _time(quantile_of(took, q)) for at, q in _SUMMARY_QUANTILES}
        found |= {
            "requests a second": f"{sent / max(1.0, self.elapsed_s):.0f}",
            "requests of a write": f"{self.requests_per_commit:.1f}",
            "merged again": f"{record.rebases:,}",
            "tries failed": f"{len(record.failures):,}",
            "reads checked": f"{record.reads:,}",
            "programs harmed": f"{len(self.measurements.faults):,}",
        }
        found |= {
            _SERVICE_LABELS.get(name, name): f"{n:,}" for name, n in sorted(record.served.items())
        }
        if self.requests:
            found["requests that the server saw"] = f"{sum(self.requests.values()):,}"
            found["requests harmed"] = f"{sum(self.store_faults.values()):,}"
        return found

    def complete(self, line: Line) -> Line:
        """Return a curve without a last point that covers less time than the others."""
        last_s = self.elapsed_s - self.bin_s
        return [point for point in line if point[0] <= last_s] or line


def as_dict(report: SoakReport) -> dict[str, Any]:
    """Return the report for programs."""
    measured, size_s = report.measurements, report.bin_s
    return {
        "passed": report.passed,
        "violations": report.violations,
        "scenario": report.scenario,
        "place": report.location,
        "lock": report.lock,
        "version": report.version,
        "elapsed_s": round(report.elapsed_s, 1),
        "programs": dict(report.programs),
        "checks": [
            {"passed": each.passed, "says": each.message, "violations": each.violations}
            for each in report.checks
        ],
        "numbers": report.numbers,
        "resources": [asdict(each) for each in resource_use(measured)],
        "harms": [{"at_s": at, "what": what} for at, what in measured.faults],
        "requests": dict(report.requests),
        "requests_sent": {
            role: dict(measured.requests_of(frozenset({role})))
            for role in sorted(set(report.programs.values()))
        },
        "store_faults": dict(report.store_faults),
        "failures": [
            {"name": each.name, "says": each.facts.get("says", "")}
            for each in report.record.failures
        ],
        "commits_per_s": report.complete(measured.commits_per_s(size_s)),
        "times_ms": {
            name: {at: measured.times_ms(size_s, q, of) for at, q in QUANTILES.items()}
            for name, of in report.durations.items()
        },
        "requests_per_s": measured.requests_per_s(size_s),
        "requests_per_commit": measured.requests_per_commit(size_s, _WRITERS),
    }


_LABELS: Final = {
    "writes landed": "writes committed",
    "writes a second": "writes per second",
    "requests a second": "requests per second",
    "requests of a write": "requests per write",
    "merged again": "rebases",
    "tries failed": "failed attempts",
    "programs harmed": "program faults",
    "requests that the server saw": "requests at the server",
    "requests harmed": "request faults",
}
"""Labels of figures whose name in JSON output reads badly."""


def labeled_numbers(report: SoakReport) -> list[tuple[str, str]]:
    """Return label and value of each figure, for people."""
    return [(_LABELS.get(name, name), value) for name, value in report.numbers.items()]


def _time(took_ms: float) -> str:
    return f"{took_ms:.0f} ms" if took_ms < 10_000 else f"{took_ms / 1000:.1f} s"


_TITLES: Final = {
    "write": "Duration of a write",
    "commit": "Duration of its commits",
    "wait for others": "Time waiting for other writers",
    "wait for the lock": "Time waiting for the lock",
}
_FAULTS_SHOWN_MAX: Final = 1_000
_MARKS_MAX: Final = 100
_KINDS: Final = {
    "python": "Python writers",
    "spark": "Spark writers",
    "sql": "SQL programs",
    "services": "programs that run all table services",
    "reader": "readers",
}


def as_page(report: SoakReport) -> str:
    """Return the report as one HTML page with its style and plots inside."""
    faults = report.measurements.faults
    return template("soak.html").render(
        report=report,
        colours=_COLOURS,
        roles=Counter(report.programs.values()),
        kinds=_KINDS,
        numbers=labeled_numbers(report),
        plots=_plots(report),
        resources=resource_use(report.measurements),
        faults=faults,
        fault_counts=Counter(what.partition(" ")[0] for _, what in faults),
        faults_max=_FAULTS_SHOWN_MAX,
    )


def _plots(report: SoakReport) -> dict[str, str]:
    measured, size_s = report.measurements, report.bin_s
    # Too many marks would hide the curves.
    marks = [at for at, _ in measured.faults] if len(measured.faults) <= _MARKS_MAX else []
    found = {
        "Writes per second": plot(
            {"": report.complete(measured.commits_per_s(size_s))}, unit="/s", marks=marks
        )
    }
    for name, of in report.durations.items():
        # The median is drawn last, on top of the others.
        lines = {at: measured.times_ms(size_s, q, of) for at, q in reversed(QUANTILES.items())}
        found[_TITLES[name]] = plot(lines, unit="ms", marks=marks)
    sent = {verb: report.complete(line) for verb, line in measured.requests_per_s(size_s).items()}
    per_write = {"": report.complete(measured.requests_per_commit(size_s, _WRITERS))}
    return found | {
        "Storage requests per second": plot(sent, unit="/s", marks=marks),
        "Storage requests per write": plot(per_write, unit=""),
        "Memory": plot(_curve(measured, lambda sample: sample.memory_mb), unit="MB"),
        "Open handles": plot(_curve(measured, lambda sample: sample.handles), unit=""),
        "Threads": plot(_curve(measured, lambda sample: sample.threads), unit=""),
        "CPU": plot(
            _lines(measured, lambda life: [_cores(*two) for two in pairwise(life)]), unit="cores"
        ),
    }


def _curve(measured: Measurements, of: Callable[[ResourceSample], float]) -> dict[str, Line]:
    return _lines(measured, lambda life: [(sample.at_s, of(sample)) for sample in life])


def _lines(
    measured: Measurements, of: Callable[[Sequence[ResourceSample]], Line]
) -> dict[str, Line]:
    """Return a line for each program, with a gap between two of its processes."""
    found: dict[str, Line] = {}
    for (name, _), life in measured.lives().items():
        line = found.setdefault(name, [])
        line += [(life[0].at_s, math.nan)] if line else []
        line += of(life)
    return found


def _cores(before: ResourceSample, after: ResourceSample) -> tuple[float, float]:
    spent_s = max(0.1, after.at_s - before.at_s)
    return after.at_s, max(0.0, after.cpu_s - before.cpu_s) / spent_s
