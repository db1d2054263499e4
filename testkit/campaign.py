"""Campaigns of a simulator: many seeds in several processes, with progress and added results."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Protocol, Self, TypeVar

_PROGRESS_EVERY_S = 10


@dataclass(frozen=True, slots=True)
class SeedRange:
    """The seeds `start` to `start + schedules - 1`; a simulator adds its own options."""

    start: int
    schedules: int

    def split(self, size: int) -> Iterator[Self]:
        """Yield the same campaign in parts of at most `size` seeds."""
        end = self.start + self.schedules
        for start in range(self.start, end, size):
            yield replace(self, start=start, schedules=min(size, end - start))


K = TypeVar("K")
S = TypeVar("S", bound=SeedRange)


@dataclass(slots=True)
class SimulationResult(Generic[K]):
    """The counts and failures of some seeds; `fired` counts faults by their kind.

    A simulator adds further counts as fields.
    """

    schedules: int = 0
    events: int = 0
    took_s: float = 0.0
    fired: Counter[K] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Add the counts and failures of other seeds; the duration stays."""
        for each in fields(self):
            if each.name != "took_s":
                total = getattr(self, each.name) + getattr(other, each.name)
                setattr(self, each.name, total)

    @property
    def duration(self) -> str:
        """The duration and the rate, for a summary."""
        rate = self.schedules / self.took_s if self.took_s else 0.0
        return f"{self.took_s:.1f} s ({rate:.0f} schedules/s)"


class Report(Protocol):
    """What a command prints of a result."""

    failures: list[str]

    def table(self) -> str:
        """Return how often each fault occurred, one line per fault."""
        ...

    def summary(self) -> str:
        """Return the result as one line."""
        ...


R = TypeVar("R", bound=SimulationResult[Any])


@contextmanager
def _manual_collection() -> Iterator[None]:
    """Disable the garbage collector; the caller collects between seeds.

    Simulated worlds have many reference cycles. Collecting them in batches, without a scan of older
    objects, is much faster.
    """
    collecting = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()


def run_seeds(
    result: R, seeds: SeedRange, run_seed: Callable[[int], R], *, collect_every: int
) -> R:
    """Run all seeds in this process and add their results to `result`."""
    with _manual_collection():
        for seed in range(seeds.start, seeds.start + seeds.schedules):
            result.add(run_seed(seed))
            if seed % collect_every == 0:
                gc.collect()
    return result


def run_campaign(
    result: R,
    campaign: S,
    parts: Iterator[S],
    run_part: Callable[[S], R],
    *,
    processes: int,
) -> R:
    """Run `parts` in several processes and add them to `result`; print failures and progress."""
    started = reported = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap(run_part, parts):
            result.add(part)
            result.took_s = time.monotonic() - started
            for failure in part.failures:
                print_line(failure)
            if time.monotonic() - reported > _PROGRESS_EVERY_S:
                reported = time.monotonic()
                next_seed = campaign.start + result.schedules
                print_line(
                    f"{result.schedules} of {campaign.schedules}, {len(result.failures)} failures,"
                    f" {result.schedules / result.took_s:.0f}/s (continue with --start {next_seed})"
                )
    return result


def add_seed_arguments(parser: argparse.ArgumentParser, *, schedules: int) -> None:
    """Add the options that choose the seeds; `schedules` is the default number."""
    parser.add_argument("--seed", type=int, help="replay one schedule and print its trace")
    parser.add_argument(
        "--schedules", type=int, default=schedules, help="number of schedules (default %(default)s)"
    )
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")


def print_line(line: str) -> None:
    """Print a line of a command's output at once."""
    print(line, flush=True)  # noqa: T201 - the command's output


def print_report(report: Report) -> int:
    """Print the result of a campaign; return 1 if a schedule failed."""
    print_line(report.table())
    print_line(report.summary())
    return 1 if report.failures else 0


def print_replay(trace: list[str], violations: tuple[str, ...]) -> int:
    """Print the trace of one schedule and its violations; return 1 if there are any."""
    for line in trace:
        print_line(line)
    for violation in violations:
        print_line(f"VIOLATION  {violation}")
    return 1 if violations else 0
