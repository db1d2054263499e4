"""Runs one victim per crash point, and a newcomer after each."""

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

from tidelock.store.contract import ObjectStore
from tidelock.store.memory import MemoryStore
from tidelock.testing.crash import newcomer, victim
from tidelock.testing.crash.ledger import MESSAGE_BYTES_MAX, Ledger, NarratedStore, Narrator
from tidelock.testing.crash.strace import Injection, Strace, allow_tracing

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
"""Every system call by which the local store changes something, or takes its turn."""

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
Life = Callable[[ObjectStore, Narrator], None]
Wrap = Callable[[ObjectStore, Narrator], ObjectStore]


@dataclass(slots=True)
class Report:
    """How many victims were hit where, and what was wrong afterwards."""

    points: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Return the number of points."""
        return self.points.total()

    def lines(self) -> Iterator[str]:
        """Yield the report for a reader."""
        for place, count in sorted(self.points.items()):
            yield f"{place:<24} {count:>5}"
        yield f"{'points':<24} {self.total:>5}"
        yield f"{'problems':<24} {len(self.problems):>5}"
        yield from self.problems


class Harness:
    """Victims in folders of their own, forked from this process.

    This process must have no other threads: `python -m tidelock.testing.crash` is one.
    """

    def __init__(self, open_store: OpenStore, home: Path) -> None:
        """Open stores in folders below `home`."""
        self._open_store = open_store
        self._home = home
        self.report = Report()
        # Whatever loads on first use must not load under the knife.
        wire, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with wire, other:
            narrator = Narrator(wire)
            victim.live(NarratedStore(MemoryStore("rehearsal"), narrator), narrator)

    def kill_at_effects(self) -> None:
        """Kill before and after every request to the store."""
        for after in (False, True):
            place = f"{'after' if after else 'before'} a request"
            for number in range(1, _POINTS_MAX):
                if not self._hit(place, number, victim.live, wrap=_dying(number, after=after)):
                    break

    def kill_at_calls(self, strace: Strace, *, every: int = 1) -> None:
        """Kill on entering every write-class system call, or `every` second, third … of them."""
        for name, pattern in WRITE_CALLS.items():
            for number in range(1, _POINTS_MAX, every):
                injection = Injection(strace, pattern, "signal=SIGKILL", number)
                if not self._hit(name, number, victim.live, injection=injection):
                    break

    def fail_calls(self, strace: Strace) -> None:
        """Let every write-class system call fail once, and check what the store made of it."""
        for name, errors in DISK_FAULTS.items():
            for error in errors:
                for number in range(1, _POINTS_MAX):
                    injection = Injection(strace, WRITE_CALLS[name], f"error={error}", number)
                    place = f"{name} {error}"
                    if not self._hit(place, number, victim.write_objects, injection=injection):
                        break

    def _hit(
        self,
        place: str,
        number: int,
        life: Life,
        *,
        wrap: Wrap = NarratedStore,
        injection: Injection | None = None,
    ) -> bool:
        """Run one victim and a newcomer; return whether the victim was hit before its end."""
        root = Path(tempfile.mkdtemp(dir=self._home))
        try:
            store = self._open_store(root)
            ledger = Ledger(victim.prepare(store))
            status = self._run_victim(store, ledger, life, wrap, injection)
            hit = injection.happened if injection else os.WIFSIGNALED(status)
            if hit:
                self.report.points[place] += 1
            elif not ledger.finished:
                self.report.problems.append(f"{place} {number}: the victim ended with {status}")
            found = self._ask_newcomer(root, ledger)
            self.report.problems += [f"{place} {number}: {problem}" for problem in found]
            return hit
        finally:
            shutil.rmtree(root)

    def _run_victim(
        self,
        store: ObjectStore,
        ledger: Ledger,
        life: Life,
        wrap: Wrap,
        injection: Injection | None,
    ) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                pid = os.fork()
                if pid == 0:
                    ours.close()
                    _be_victim(theirs, store, life, wrap)
            with injection.into(pid) if injection else nullcontext():
                ours.send(b"go")
                while message := ours.recv(MESSAGE_BYTES_MAX):
                    ledger.hear(json.loads(message))
                _, status = os.waitpid(pid, 0)
        ledger.close()
        return status

    def _ask_newcomer(self, root: Path, ledger: Ledger) -> list[str]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _be_newcomer(writer, self._open_store(root), ledger)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        problems: list[str] = json.loads(said) if said else ["the newcomer died"]
        return problems


def _dying(number: int, *, after: bool) -> Wrap:
    def wrap(store: ObjectStore, narrator: Narrator) -> ObjectStore:
        return NarratedStore(store, narrator, kill_at=number, after=after)

    return wrap


def _be_victim(wire: socket.socket, store: ObjectStore, life: Life, wrap: Wrap) -> NoReturn:
    """Live; this process ends here, whatever happens."""
    signal.alarm(30)
    allow_tracing()
    narrator = Narrator(wire)
    try:
        wire.recv(16)
        life(wrap(store, narrator), narrator)
        narrator.say(end="")
    except BaseException as error:
        narrator.say(bug=f"the victim raised {error!r}")
    finally:
        os._exit(0)


def _be_newcomer(writer: int, store: ObjectStore, ledger: Ledger) -> NoReturn:
    """Look; this process ends here, whatever happens."""
    signal.alarm(30)
    problems = ["the newcomer did not come to an end"]
    try:
        problems = newcomer.inspect(store, ledger)
    except BaseException as error:
        problems = [f"the newcomer raised {error!r}"]
    finally:
        os.write(writer, json.dumps(problems).encode())
        os._exit(0)
