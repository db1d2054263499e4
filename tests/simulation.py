"""Helpers for the tests of simulators: recorded seeds, planted bugs, runs in a new process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Protocol

import pytest

_COLLECT_EVERY = 16


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A function that plants a bug, and the prefixes of the violations by which it is found.

    It must be found in the first `within` schedules. With `needs`, only schedules with these faults
    are run and counted.
    """

    bug: Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]
    within: int = 100
    needs: tuple[Enum, ...] = ()

    @property
    def name(self) -> str:
        """The bug in words."""
        return self.bug.__name__.replace("_", " ")

    def has_faults(self, faults: Iterable[Enum]) -> bool:
        """Return whether a schedule with `faults` has the required ones."""
        return set(self.needs) <= set(faults)


class SimulationOutcome(Protocol):
    """The result of one schedule."""

    @property
    def violations(self) -> tuple[str, ...]:
        """The violated properties."""
        ...


class RunSchedule(Protocol):
    """Runs the schedule of a seed."""

    def __call__(self, seed: int, /, *, trace: list[str] | None = None) -> SimulationOutcome:
        """Return the result; add the steps to `trace`."""
        ...


def check_found(
    plant: PlantedBug,
    patch: pytest.MonkeyPatch,
    seeds: Iterable[int],
    run: Callable[[int], SimulationOutcome],
) -> None:
    """Plant a bug and run `seeds`; fail unless the expected violation is found in time."""
    plant.bug(patch)
    for tries, seed in enumerate(islice(seeds, plant.within), 1):
        violations = run(seed).violations
        if violations:
            print(f"{plant.name:<60} {tries:>5}  {violations[0].split(':')[0]}")
            assert violations[0].startswith(plant.caught_by), violations[0]
            return
        if tries % _COLLECT_EVERY == 0:
            gc.collect()
    pytest.fail(f"not found in {plant.within} schedules")


def check_replay(
    failures: Sequence[str],
    module: str,
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check that the first failure starts with a command that replays it."""
    assert failures
    command, _, violation = failures[0].partition("  # ")
    found, *arguments = command.removeprefix("python -m ").split()
    assert found == module
    assert main(arguments) == 1
    assert f"VIOLATION  {violation}" in capsys.readouterr().out


def recorded_seeds(folder: Path) -> list[list[str]]:
    """Return the words of each line, without comments, of the files in `folder`."""
    lines = [
        line.partition("#")[0].split()
        for path in sorted(folder.glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [words for words in lines if words]


def check_trace_has_no_effect(seeds: Iterable[int], run: RunSchedule) -> None:
    """Check that schedules have the same result with and without a trace."""
    for seed in seeds:
        assert run(seed) == run(seed, trace=[])


def check_traces_differ(seeds: Sequence[int], run: RunSchedule) -> None:
    """Check that different seeds have different traces, apart from the first line, the plan."""
    traces = set()
    for seed in seeds:
        trace: list[str] = []
        run(seed, trace=trace)
        traces.add("\n".join(trace[1:]))
    assert len(traces) == len(seeds)


def hash_in_new_process(module: str, *, hash_seed: str) -> str:
    """Return `hash_of_traces()` of a test module, computed in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", f"from {module} import hash_of_traces; print(hash_of_traces())"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.strip()
