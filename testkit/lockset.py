"""Jepsen's lock-set test with real processes: paused holders must not lose elements of others.

Under the lock a worker reads a set, sleeps, and writes it back with one more element. A nemesis
pauses holders (SIGSTOP) for longer than their lease, and sometimes kills one. Workers that write
through a register with token checks must not lose acknowledged elements. A second group relies on
the lock alone, and must lose some; otherwise the nemesis had no effect.

`python -m testkit.lockset --seconds 60 --store URI --ttl-ms 2000`
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn

from testkit.servers import seaweedfs
from tidelock.core.errors import TidelockError
from tidelock.core.outcome import Landed
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.contract import Create, Match, ObjectStore, Overwrite
from tidelock.storage.uri import open_store

SET_KEY = "lockset/set.json"
_INSIDE_S = (0.0, 0.08)
_PAUSE_S = (2.5, 10.0)
_KILL_SHARE = 0.15
_PROCESSES = 5
_STEP_S = 0.01


class Register:
    """A set in one object that stores the largest token it has seen.

    `enter` comes before the read, so that an earlier holder that resumes between our read and our
    write is already fenced off.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Use the object under the root of `store`."""
        self._store = store

    def enter(self, token: int) -> list[str] | None:
        """Fence off smaller tokens and return the elements; None if a larger token has entered."""
        return self._replace(token, None)

    def write(self, token: int, elements: list[str]) -> bool:
        """Replace the elements unless a larger token has entered; return whether it was done."""
        return self._replace(token, elements) is not None

    def _replace(self, token: int, elements: list[str] | None) -> list[str] | None:
        while True:
            found = self._store.get(SET_KEY)
            held: dict[str, Any] = {"token": 0, "elements": []}
            if found is not None:
                held = json.loads(found.body)
            if held["token"] > token:
                return None
            written = held["elements"] if elements is None else elements
            body = json.dumps({"token": token, "elements": written, "nonce": _nonce()}).encode()
            mode = Match(found.version) if found else Create()
            if isinstance(self._store.put(SET_KEY, body, mode), Landed):
                return list(written)


class PlainSet:
    """The same set without token checks."""

    def __init__(self, store: ObjectStore) -> None:
        """Use the object under the root of `store`."""
        self._store = store

    def enter(self, token: int) -> list[str] | None:
        """Return the elements."""
        del token
        found = self._store.get(SET_KEY)
        return list(json.loads(found.body)["elements"]) if found else []

    def write(self, token: int, elements: list[str]) -> bool:
        """Overwrite the set."""
        body = json.dumps({"token": token, "elements": elements, "nonce": _nonce()}).encode()
        return isinstance(self._store.put(SET_KEY, body, Overwrite()), Landed)


def _nonce() -> str:
    return os.urandom(8).hex()


@dataclass(slots=True)
class GroupResult:
    """Counts of one group of workers, and of the faults injected."""

    tokens: list[int] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    rejected: int = 0
    pauses: int = 0
    kills: int = 0
    errors: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    longest_pause_s: float = 0.0

    @property
    def duplicate_tokens(self) -> int:
        """L1: number of tokens that were granted more than once."""
        return len(self.tokens) - len(set(self.tokens))

    def line(self, name: str) -> str:
        """Return one line of the report."""
        largest = max(self.tokens, default=0)
        return (
            f"{name:<16} grants {len(self.tokens):>6}  largest token {largest:>6}"
            f"  acknowledged {len(self.acknowledged):>6}  rejected {self.rejected:>4}"
            f"  pauses {self.pauses:>3} (up to {self.longest_pause_s:.1f} s)  kills {self.kills:>2}"
            f"  lost {len(self.lost):>5}"
        )


class Group:
    """Workers on one resource, and their nemesis. This process must have no other threads."""

    def __init__(
        self, uri: str, settings: Mapping[str, object], *, fenced: bool, ttl_ms: int, seed: int
    ) -> None:
        """Start the workers."""
        scheme = uri.partition("://")[0] if "://" in uri else "local"
        self.name = f"{'fenced' if fenced else 'unfenced'} {scheme}"
        self.result = GroupResult()
        self._uri = uri
        self._settings = settings
        self._fenced = fenced
        self._lease = Lease(validity_ms=ttl_ms, renew_ms=ttl_ms // 10)
        self._random = random.Random(seed)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._buffer = b""
        self._workers: dict[int, int] = {}
        self._started = 0
        self._inside: int | None = None
        self._paused: tuple[int, float] | None = None
        self._next_s = time.monotonic() + 1.0
        for _ in range(_PROCESSES):
            self._start()

    def _start(self) -> None:
        self._started += 1
        pid = os.fork()
        if pid == 0:
            os.close(self._reader)
            store = open_store(self._uri, self._settings)
            data: Register | PlainSet = Register(store) if self._fenced else PlainSet(store)
            _worker_process(Lock(store, self._lease), data, self._writer, self._started)
        self._workers[self._started] = pid

    def step(self) -> None:
        """Read the messages of the workers, and apply due faults."""
        self._listen()
        now_s = time.monotonic()
        if self._paused is not None:
            worker, until_s = self._paused
            if now_s >= until_s:
                os.kill(self._workers[worker], signal.SIGCONT)
                self._paused = None
                self._next_s = now_s + self._random.uniform(0.3, 1.0)
        elif now_s >= self._next_s and self._inside is not None:
            self._inject_fault(self._inside, now_s)
            self._inside = None

    def _inject_fault(self, worker: int, now_s: float) -> None:
        """Pause or kill the worker that holds the lock."""
        if self._random.random() < _KILL_SHARE and self.result.pauses:
            os.kill(self._workers[worker], signal.SIGKILL)
            os.waitpid(self._workers.pop(worker), 0)
            self.result.kills += 1
            self._next_s = now_s + 3.0
            self._start()
            return
        os.kill(self._workers[worker], signal.SIGSTOP)
        pause_s = min(_PAUSE_S[1], self._random.expovariate(1 / 2.5) + _PAUSE_S[0] + 1.0)
        self.result.pauses += 1
        self.result.longest_pause_s = max(self.result.longest_pause_s, pause_s)
        self._paused = (worker, now_s + pause_s)

    def _listen(self) -> None:
        try:
            while piece := os.read(self._reader, 65_536):
                self._buffer += piece
        except BlockingIOError:
            pass
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._handle(json.loads(line))

    def _handle(self, message: dict[str, Any]) -> None:
        match message:
            case {"who": who, "token": token}:
                self._inside = who
                self.result.tokens.append(token)
            case {"who": who, "added": element}:
                self.result.acknowledged.add(element)
                self._inside = None if self._inside == who else self._inside
            case {"rejected": _}:
                self.result.rejected += 1
            case {"error": text}:
                self.result.errors.append(text)
            case _:
                raise AssertionError(message)

    def finish(self) -> None:
        """Kill all workers and compare the acknowledged elements with the stored ones."""
        for pid in self._workers.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(self._writer)
        self._listen()
        os.close(self._reader)
        store = open_store(self._uri, self._settings)
        found = store.get(SET_KEY)
        stored = set(json.loads(found.body)["elements"]) if found else set()
        store.close()
        self.result.lost = sorted(self.result.acknowledged - stored)


def _worker_process(lock: Lock, data: Register | PlainSet, writer: int, who: int) -> NoReturn:
    """Add elements until killed; never returns."""

    def report(**message: object) -> None:
        os.write(writer, json.dumps({"who": who, **message}).encode() + b"\n")

    rng = random.Random(who)
    number = 0
    try:
        while True:
            number += 1
            try:
                _add(
                    lock,
                    data,
                    report,
                    element=f"{who}-{number}",
                    inside_s=rng.uniform(*_INSIDE_S),
                )
            except TidelockError:
                # Lost, or no answer: try again in the next round.
                time.sleep(0.01)
    except BaseException as error:
        report(error=repr(error))
    finally:
        os._exit(1)


def _add(
    lock: Lock,
    data: Register | PlainSet,
    report: Callable[..., None],
    *,
    element: str,
    inside_s: float,
) -> None:
    with lock:
        token = lock.token
        report(token=token)
        elements = data.enter(token)
        if elements is not None:
            time.sleep(inside_s)
        if elements is None or not data.write(token, [*elements, element]):
            report(rejected=element)
            return
        report(added=element)


def run(
    uris: Sequence[tuple[str, Mapping[str, object]]], *, seconds: float, ttl_ms: int, seed: int = 0
) -> list[Group]:
    """Run fenced and unfenced groups on every URI at the same time; return the groups."""
    groups = [
        Group(
            f"{uri}/{'fenced' if fenced else 'unfenced'}",
            settings,
            fenced=fenced,
            ttl_ms=ttl_ms,
            seed=2 * seed + fenced,
        )
        for uri, settings in uris
        for fenced in (True, False)
    ]
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            for group in groups:
                group.step()
            time.sleep(_STEP_S)
    finally:
        for group in groups:
            group.finish()
    return groups


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; return 1 if the fenced group lost elements or the canary lost none."""
    parser = argparse.ArgumentParser(prog="python -m testkit.lockset", description=__doc__)
    parser.add_argument(
        "--store", action="append", help="local, seaweedfs, a path, or a URI; repeatable"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="duration")
    parser.add_argument("--minutes", type=float, help="duration, instead of --seconds")
    parser.add_argument("--ttl-ms", type=int, default=2_000, help="validity of the lease")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        locations = [_store_location(name, stack) for name in options.store or ["local"]]
        seconds = options.minutes * 60 if options.minutes else options.seconds
        groups = run(locations, seconds=seconds, ttl_ms=options.ttl_ms, seed=options.seed)
    for group in groups:
        sys.stdout.write(group.result.line(group.name) + "\n")
    problems = list(_problems(groups))
    for problem in problems:
        sys.stdout.write(f"problem: {problem}\n")
    return 1 if problems else 0


def _problems(groups: Sequence[Group]) -> Sequence[str]:
    found = []
    for group in groups:
        result, fenced = group.result, group.name.startswith("fenced")
        if result.duplicate_tokens:
            found.append(f"{group.name}: L1: {result.duplicate_tokens} tokens were granted twice")
        if fenced and result.lost:
            found.append(f"{group.name}: lost {len(result.lost)}: {result.lost[:5]}")
        if not fenced and not result.lost:
            found.append(f"{group.name}: the canary lost nothing in {result.pauses} pauses")
        found += [f"{group.name}: a worker failed with {error}" for error in result.errors]
        if not result.acknowledged:
            found.append(f"{group.name}: no element was acknowledged")
    return found


def _store_location(name: str, stack: ExitStack) -> tuple[str, Mapping[str, object]]:
    if name == "local":
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelock-lockset-"))
        return folder, {}
    if name == "seaweedfs":
        server = stack.enter_context(seaweedfs())
        server.create_bucket("lockset")
        return "s3://lockset/soak", {
            "tidelock.s3.endpoint": server.endpoint,
            "hoodie.aws.access.key": server.access_key,
            "hoodie.aws.secret.key": server.secret_key,
        }
    return name.rstrip("/"), {}


if __name__ == "__main__":
    sys.exit(main())
