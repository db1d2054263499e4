"""For all tests: server fixtures, Hypothesis profiles, and a summary by kind of test."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

pytest_plugins = ["testkit.plugin", "testkit.spark"]

# `repeatable` draws the same examples in every run, so a failure is always caused by the change
# under test. `long` (pytest --hypothesis-profile=long) draws new ones, and many more.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    print_blob=True,
    # Drawing is slow on a loaded machine, which is not a fault of the code under test.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", settings.get_profile("repeatable"), derandomize=False, max_examples=10_000
)
settings.load_profile("repeatable")

# Hypothesis collects constants from the modules that are loaded, so its examples would depend on
# the tests that ran before in the same worker. `test_repeatable.py` fails if a name changes.
_constants_of_loaded_modules = getattr(providers, "_get_local_constants", None)


def _repeatable_constants() -> Any:
    """Return no constants of our modules if examples are to be the same in every run."""
    assert _constants_of_loaded_modules is not None
    if settings.get_profile(settings.get_current_profile_name()).derandomize:
        return providers._local_constants
    return _constants_of_loaded_modules()


if _constants_of_loaded_modules is not None:
    providers._get_local_constants = _repeatable_constants

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")


TERMINAL_SETTINGS = ("CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS")
"""Variables with which a command colours its output, or breaks its lines, without a terminal."""


def pytest_configure() -> None:
    """Restore what the programs under test inherit, whoever started the tests.

    Signals that a shell in the background, or nohup, has set to be ignored: a shell cannot trap
    them. Settings of a terminal, or of a service for builds: the output is compared as text.
    A proxy for the network: the servers of the tests are on this machine.
    """
    for name in TERMINAL_SETTINGS:
        os.environ.pop(name, None)
    for name in ("no_proxy", "NO_PROXY"):
        excluded = [*filter(None, [os.environ.get(name)]), "127.0.0.1", "localhost"]
        os.environ[name] = ",".join(excluded)
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _restored_logger() -> Iterator[None]:
    """Restore the logger: a command that ran in this process has added handlers to it."""
    ours = logging.getLogger("tidelock")
    handlers, level, propagate = list(ours.handlers), ours.level, ours.propagate
    yield
    ours.handlers[:] = handlers
    ours.setLevel(level)
    ours.propagate = propagate


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one `xdist_group` in one worker, so that their servers start once.

    pytest-xdist writes the group into a test's `_nodeid`, which pytest 9.2 no longer reads.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        ending = f"@{'_'.join(groups)}"
        if groups and not item.nodeid.endswith(ending):
            item._id = type(item.id).parse(item.nodeid + ending)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests by outcome and their duration, for each folder of tests."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    worked_s: defaultdict[str, float] = defaultdict(float)
    # pytest lists successful setups and teardowns, in which servers start, under "".
    for outcome in (*OUTCOMES, ""):
        for report in terminalreporter.stats.get(outcome, []):
            if isinstance(report, pytest.TestReport):
                folder = Path(report.nodeid.partition("::")[0]).parent.name
                counts[folder][outcome] += 1
                worked_s[folder] += report.duration
    if len(counts) < 2:
        return
    terminalreporter.section("by kind of test")
    for folder, ended in sorted(counts.items()):
        counted = ", ".join(f"{ended[outcome]} {outcome}" for outcome in OUTCOMES if ended[outcome])
        terminalreporter.write_line(f"{folder:<14} {counted} ({worked_s[folder]:.1f} s of work)")
