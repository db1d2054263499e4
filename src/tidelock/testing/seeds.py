"""Running many seeds of a simulator: parts over several processes, progress, and the collector."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Seeds(Protocol):
    """Seeds to run, in parts."""

    @property
    def start(self) -> int:
        """The first seed."""
        ...

    @property
    def schedules(self) -> int:
        """How many there are."""
        ...


class Found(Protocol):
    """What came of some seeds."""

    schedules: int
    failures: list[str]
    took_s: float


S = TypeVar("S", bound=Seeds)
F = TypeVar("F", bound=Found)


@contextmanager
def worlds_collected() -> Iterator[None]:
    """Leave the collection of worlds to the caller, who collects between seeds.

    Worlds are full of cycles. They are collected in batches, without a look at anything older.
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


def run_parts(
    whole: F,
    campaign: S,
    parts: Iterator[S],
    run_part: Callable[[S], F],
    *,
    add: Callable[[F, F], None],
    processes: int,
    say: Callable[[str], None],
) -> F:
    """Run parts over several processes into `whole`, telling `say` of failures and of progress."""
    began = said = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap(run_part, parts):
            add(whole, part)
            whole.took_s = time.monotonic() - began
            for failure in part.failures:
                say(failure)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                next_seed = campaign.start + whole.schedules
                say(
                    f"{whole.schedules} of {campaign.schedules}, {len(whole.failures)} failures,"
                    f" {whole.schedules / whole.took_s:.0f}/s (go on with --start {next_seed})"
                )
    return whole
