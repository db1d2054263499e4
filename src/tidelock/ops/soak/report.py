"""The report of a soak: everything it tells, and its form for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.verdict import Check
from tidelock.ops.soak.curves import Curves, Line, Written, quantile_of
from tidelock.ops.soak.lean import leanness

WRITERS: Final = frozenset({Role.PYTHON.value, Role.SPARK.value, Role.SQL.value})
QUANTILES: Final = {"median": 0.5, "95 %": 0.95, "99 %": 0.99}
TIMES: Final[Mapping[str, Callable[[Written], float]]] = {
    "write": lambda write: write.took_ms,
    "commit": lambda write: write.commit_ms,
    "wait for others": lambda write: write.wait_ms,
    "wait for the lock": lambda write: write.lock_ms,
}
"""What a write spends its time with: all of it, its commits, waiting for lock or line, for both."""

_SUMS: Final = (("median", 0.5), ("99 %", 0.99))
_DONE: Final = {
    "archive": "archivings",
    "clean": "cleans",
    "cluster": "clusterings",
    "compact": "compactions",
}
_BINS: Final = 120


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
    lock: str = ""
    """The provider of the table's lock; "" if none was taken."""

    @property
    def passed(self) -> bool:
        """Tell whether every check that could be made passed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def violations(self) -> int:
        """How many rows, reads, steps and objects are not as they must be."""
        return sum(check.violations for check in self.checks)

    @property
    def bin_s(self) -> float:
        """How long a stretch of time is of which curves tell one value."""
        return max(1.0, self.elapsed_s / _BINS)

    @property
    def times(self) -> dict[str, list[float]]:
        """How long each write took, in ms, by what it spent the time with."""
        writes = self.curves.writes
        return {name: [of(write) for write in writes] for name, of in self.spent.items()}

    @property
    def spent(self) -> Mapping[str, Callable[[Written], float]]:
        """What writes could spend their time with."""
        return {n: of for n, of in TIMES.items() if self.lock or n != "wait for the lock"}

    @property
    def requests_per_commit(self) -> float:
        """How many requests writers sent for each write that landed."""
        sent = self.curves.requests_of(WRITERS).total()
        return sent / max(1, len(self.curves.writes))

    @property
    def numbers(self) -> dict[str, str]:
        """The figures that sum it up, by what they are."""
        record = self.record
        found = {
            "minutes": f"{self.elapsed_s / 60:.1f}",
            "writes landed": f"{len(record.landed):,}",
            "violations": f"{self.violations:,}",
            "writes a second": f"{len(record.landed) / max(1.0, self.elapsed_s):.1f}",
        }
        for name, took in self.times.items():
            found |= {f"{name}, {at}": _time(quantile_of(took, q)) for at, q in _SUMS}
        found |= {
            "requests a second": f"{self._sent / max(1.0, self.elapsed_s):.0f}",
            "requests of a write": f"{self.requests_per_commit:.1f}",
            "merged again": f"{record.rebases:,}",
            "tries failed": f"{len(record.failures):,}",
            "reads checked": f"{record.reads:,}",
            "programs harmed": f"{len(self.curves.harms):,}",
        }
        found |= {_DONE.get(name, name): f"{n:,}" for name, n in sorted(record.served.items())}
        if self.requests:
            found["requests that the server saw"] = f"{sum(self.requests.values()):,}"
            found["requests harmed"] = f"{sum(self.store_faults.values()):,}"
        return found

    @property
    def _sent(self) -> int:
        return self.curves.requests_of().total()

    def whole(self, line: Line) -> Line:
        """Return a curve without its last point, if that stands for less time than the others."""
        last_s = self.elapsed_s - self.bin_s
        return [point for point in line if point[0] <= last_s] or line


def as_facts(told: Told) -> dict[str, Any]:
    """Return the report for programs."""
    curves, size_s = told.curves, told.bin_s
    return {
        "passed": told.passed,
        "violations": told.violations,
        "scenario": told.scenario,
        "place": told.place,
        "lock": told.lock,
        "version": told.version,
        "elapsed_s": round(told.elapsed_s, 1),
        "programs": dict(told.programs),
        "checks": [asdict(check) for check in told.checks],
        "numbers": told.numbers,
        "resources": [asdict(each) for each in leanness(curves)],
        "harms": [{"at_s": at, "what": what} for at, what in curves.harms],
        "requests": dict(told.requests),
        "requests_sent": {
            role: dict(curves.requests_of(frozenset({role}))) for role in _roles(told)
        },
        "store_faults": dict(told.store_faults),
        "failures": [
            {"name": each.name, "says": each.facts.get("says", "")} for each in told.record.failures
        ],
        "commits_per_s": told.whole(curves.commits_per_s(size_s)),
        "times_ms": {
            name: {at: curves.times_ms(size_s, q, of) for at, q in QUANTILES.items()}
            for name, of in told.spent.items()
        },
        "requests_per_s": curves.requests_per_s(size_s),
        "requests_per_commit": curves.requests_per_commit(size_s, WRITERS),
    }


def _time(took_ms: float) -> str:
    return f"{took_ms:.0f} ms" if took_ms < 10_000 else f"{took_ms / 1000:.1f} s"


def _roles(told: Told) -> list[str]:
    return sorted(set(told.programs.values()))
