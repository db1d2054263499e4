"""Runs one victim per crash point, and an inspector after each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from testkit.crash import inspector, victim
from testkit.crash.expected import MESSAGE_BYTES_MAX, ExpectedState, Reporter, ReportingStore
from testkit.crash.strace import Injection, Strace, allow_tracing
from tidelock.storage.contract import ObjectStore
from tidelock.storage.memory import MemoryStore

WRITE_CALLS = {
    "openat": "openat",
    "mkdir": "/^mkdir",
    "write": "write",
    "utimensat": "utimensat",
    "fsync": "fsync",
    "linkat": "linkat",
    "rename": "/^rename",
    "unlinkat": "unlinkat",
    "flock": "flock",
}
"""The system calls by which the local store writes or locks."""

DISK_FAULTS = {
    "openat": ("EROFS",),
    "mkdir": ("ENOSPC", "EROFS"),
    "write": ("ENOSPC", "EIO"),
    "fsync": ("EIO",),
    "linkat": ("EIO", "ENOSPC"),
    "rename": ("EIO", "EROFS"),
    "unlinkat": ("EIO",),
    "flock": ("ENOLCK",),
}
_POINTS_MAX = 400

OpenStore = Callable[[Path], ObjectStore]
VictimScript = Callable[[ObjectStore, Reporter], None]
Wrap = Callable[[ObjectStore, Reporter], ObjectStore]


@dataclass(slots=True)
class Report:
    """The number of crash points by kind, and the problems found."""

    points: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of crash points."""
        return self.points.total()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        for label, count in sorted(self.points.items()):
            yield f"{label:<24} {count:>5}"
        yield f"{'points':<24} {self.total:>5}"
        yield f"{'problems':<24} {len(self.problems):>5}"
        yield from self.problems


class Harness:
    """Runs victims, each forked from this process and with its own folder.

    This process must have no other threads; `python -m testkit.crash` has none.
    """

    def __init__(self, open_store: OpenStore, home: Path) -> None:
        """Open stores in folders under `home`."""
        self._open_store = open_store
        self._home = home
        self.report = Report()
        # Modules that are imported on first use must be loaded before the first victim.
        wire, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with wire, other:
            reporter = Reporter(wire)
            victim.run_lock_cycle(ReportingStore(MemoryStore("rehearsal"), reporter), reporter)

    def kill_at_requests(self) -> None:
        """Kill before and after every request to the store."""
        for after in (False, True):
            label = f"{'after' if after else 'before'} a request"
            for number in range(1, _POINTS_MAX):
                if not self._hit(
                    label, number, victim.run_lock_cycle, wrap=_killed_at(number, after=after)
                ):
                    break

    def kill_at_calls(self, strace: Strace, *, every: int = 1) -> None:
        """Kill at the entry of every write system call, or at every n-th (`every`)."""
        for name, pattern in WRITE_CALLS.items():
            for number in range(1, _POINTS_MAX, every):
                injection = Injection(strace, pattern, "signal=SIGKILL", number)
                if not self._hit(name, number, victim.run_lock_cycle, injection=injection):
                    break

    def fail_calls(self, strace: Strace) -> None:
        """Let every write system call fail once, and check the result."""
        for name, errors in DISK_FAULTS.items():
            for error in errors:
                for number in range(1, _POINTS_MAX):
                    injection = Injection(strace, WRITE_CALLS[name], f"error={error}", number)
                    label = f"{name} {error}"
                    if not self._hit(label, number, victim.write_objects, injection=injection):
                        break

    def _hit(
        self,
        label: str,
        number: int,
        script: VictimScript,
        *,
        wrap: Wrap = ReportingStore,
        injection: Injection | None = None,
    ) -> bool:
        """Run one victim and an inspector; return whether the crash point was reached."""
        root = Path(tempfile.mkdtemp(dir=self._home))
        try:
            store = self._open_store(root)
            expected = ExpectedState(victim.prepare(store))
            status = self._run_victim(store, expected, script, wrap, injection)
            hit = injection.happened if injection else os.WIFSIGNALED(status)
            if hit:
                self.report.points[label] += 1
            elif not expected.finished:
                self.report.problems.append(f"{label} {number}: the victim ended with {status}")
            found = self._run_inspector(root, expected)
            self.report.problems += [f"{label} {number}: {problem}" for problem in found]
            return hit
        finally:
            shutil.rmtree(root)

    def _run_victim(
        self,
        store: ObjectStore,
        expected: ExpectedState,
        script: VictimScript,
        wrap: Wrap,
        injection: Injection | None,
    ) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                pid = os.fork()
                if pid == 0:
                    ours.close()
                    _victim_process(theirs, store, script, wrap)
            with injection.into(pid) if injection else nullcontext():
                ours.send(b"go")
                while message := ours.recv(MESSAGE_BYTES_MAX):
                    expected.record(json.loads(message))
                _, status = os.waitpid(pid, 0)
        expected.close()
        return status

    def _run_inspector(self, root: Path, expected: ExpectedState) -> list[str]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _inspector_process(writer, self._open_store(root), expected)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            output = pipe.read()
        os.waitpid(pid, 0)
        problems: list[str] = json.loads(output) if output else ["the inspector died"]
        return problems


def _killed_at(number: int, *, after: bool) -> Wrap:
    def wrap(store: ObjectStore, reporter: Reporter) -> ObjectStore:
        return ReportingStore(store, reporter, kill_at=number, after=after)

    return wrap


def _victim_process(
    wire: socket.socket, store: ObjectStore, script: VictimScript, wrap: Wrap
) -> NoReturn:
    """Run the victim; never returns."""
    signal.alarm(30)
    allow_tracing()
    reporter = Reporter(wire)
    try:
        wire.recv(16)
        script(wrap(store, reporter), reporter)
        reporter.send(end="")
    except BaseException as error:
        reporter.send(bug=f"the victim raised {error!r}")
    finally:
        os._exit(0)


def _inspector_process(writer: int, store: ObjectStore, expected: ExpectedState) -> NoReturn:
    """Run the inspector; never returns."""
    signal.alarm(30)
    problems = ["the inspector did not finish"]
    try:
        problems = inspector.inspect(store, expected)
    except BaseException as error:
        problems = [f"the inspector raised {error!r}"]
    finally:
        os.write(writer, json.dumps(problems).encode())
        os._exit(0)
