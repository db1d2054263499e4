"""Jepsen's lock-set with real processes: who is paused past its lease must lose nobody's element.

Under the lock a worker reads a set, sleeps a little, and writes it back with one element more. A
nemesis stops holders (SIGSTOP) for longer than their lease, and sometimes kills one. Workers whose
writes go through a register that checks tokens lose nothing that was acknowledged; workers that
trust the lock alone, beside them, must lose something, or the nemesis was asleep.

`python -m tidelock.testing.lockset --seconds 60 --store URI --ttl-ms 2000`
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

from tidelock.base.errors import TidelockError
from tidelock.base.outcome import Landed
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.store.contract import Create, Match, ObjectStore, Overwrite
from tidelock.store.uri import open_store
from tidelock.testing.servers import seaweedfs

SET_KEY = "lockset/set.json"
_INSIDE_S = (0.0, 0.08)
_PAUSE_S = (2.5, 10.0)
_KILL_SHARE = 0.15
_PROCESSES = 5
_STEP_S = 0.01


class Register:
    """A set in one object that remembers the largest token it has seen.

    `enter` comes before the read: only then is a holder before us, who wakes between our read and
    our write, already fenced off.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Use the object below the root of `store`."""
        self._store = store

    def enter(self, token: int) -> list[str] | None:
        """Fence off smaller tokens and return the elements; None if ours is the smaller one."""
        return self._replace(token, None)

    def write(self, token: int, elements: list[str]) -> bool:
        """Replace the elements unless a larger token has entered since; say whether it was done."""
        return self._replace(token, elements) is not None

    def _replace(self, token: int, elements: list[str] | None) -> list[str] | None:
        while True:
            found = self._store.get(SET_KEY)
            held: dict[str, Any] = {"token": 0, "elements": []}
            if found is not None:
                held = json.loads(found.body)
            if held["token"] > token:
                return None
            wanted = held["elements"] if elements is None else elements
            body = json.dumps({"token": token, "elements": wanted, "nonce": _nonce()}).encode()
            mode = Match(found.version) if found else Create()
            if isinstance(self._store.put(SET_KEY, body, mode), Landed):
                return list(wanted)


class PlainSet:
    """The same set for those who trust the lock: read, then write whatever is there."""

    def __init__(self, store: ObjectStore) -> None:
        """Use the object below the root of `store`."""
        self._store = store

    def enter(self, token: int) -> list[str] | None:
        """Return the elements."""
        del token
        found = self._store.get(SET_KEY)
        return list(json.loads(found.body)["elements"]) if found else []

    def write(self, token: int, elements: list[str]) -> bool:
        """Write, and believe."""
        body = json.dumps({"token": token, "elements": elements, "nonce": _nonce()}).encode()
        return isinstance(self._store.put(SET_KEY, body, Overwrite()), Landed)


def _nonce() -> str:
    return os.urandom(8).hex()


@dataclass(slots=True)
class Tally:
    """What one group of workers did, and what was done to it."""

    tokens: list[int] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    rejected: int = 0
    pauses: int = 0
    kills: int = 0
    errors: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    longest_pause_s: float = 0.0

    @property
    def twice(self) -> int:
        """L1: how many tokens were granted more than once."""
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
        self.tally = Tally()
        self._uri = uri
        self._settings = settings
        self._fenced = fenced
        self._lease = Lease(validity_ms=ttl_ms, renew_ms=ttl_ms // 10)
        self._random = random.Random(seed)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._heard = b""
        self._workers: dict[int, int] = {}
        self._born = 0
        self._inside: int | None = None
        self._paused: tuple[int, float] | None = None
        self._next_s = time.monotonic() + 1.0
        for _ in range(_PROCESSES):
            self._start()

    def _start(self) -> None:
        self._born += 1
        pid = os.fork()
        if pid == 0:
            os.close(self._reader)
            store = open_store(self._uri, self._settings)
            data: Register | PlainSet = Register(store) if self._fenced else PlainSet(store)
            _be_worker(Lock(store, self._lease), data, self._writer, self._born)
        self._workers[self._born] = pid

    def step(self) -> None:
        """Hear the workers, and let the nemesis do what is due."""
        self._listen()
        now_s = time.monotonic()
        if self._paused is not None:
            worker, until_s = self._paused
            if now_s >= until_s:
                os.kill(self._workers[worker], signal.SIGCONT)
                self._paused = None
                self._next_s = now_s + self._random.uniform(0.3, 1.0)
        elif now_s >= self._next_s and self._inside is not None:
            self._strike(self._inside, now_s)
            self._inside = None

    def _strike(self, worker: int, now_s: float) -> None:
        """Stop, or kill, the worker that is inside now."""
        if self._random.random() < _KILL_SHARE and self.tally.pauses:
            os.kill(self._workers[worker], signal.SIGKILL)
            os.waitpid(self._workers.pop(worker), 0)
            self.tally.kills += 1
            self._next_s = now_s + 3.0
            self._start()
            return
        os.kill(self._workers[worker], signal.SIGSTOP)
        pause_s = min(_PAUSE_S[1], self._random.expovariate(1 / 2.5) + _PAUSE_S[0] + 1.0)
        self.tally.pauses += 1
        self.tally.longest_pause_s = max(self.tally.longest_pause_s, pause_s)
        self._paused = (worker, now_s + pause_s)

    def _listen(self) -> None:
        try:
            while piece := os.read(self._reader, 65_536):
                self._heard += piece
        except BlockingIOError:
            pass
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        match said:
            case {"who": who, "token": token}:
                self._inside = who
                self.tally.tokens.append(token)
            case {"who": who, "added": element}:
                self.tally.acknowledged.add(element)
                self._inside = None if self._inside == who else self._inside
            case {"rejected": _}:
                self.tally.rejected += 1
            case {"error": text}:
                self.tally.errors.append(text)
            case _:
                raise AssertionError(said)

    def finish(self) -> None:
        """End every worker and compare what was acknowledged with what is there."""
        for pid in self._workers.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(self._writer)
        self._listen()
        os.close(self._reader)
        store = open_store(self._uri, self._settings)
        found = store.get(SET_KEY)
        there = set(json.loads(found.body)["elements"]) if found else set()
        store.close()
        self.tally.lost = sorted(self.tally.acknowledged - there)


def _be_worker(lock: Lock, data: Register | PlainSet, writer: int, who: int) -> NoReturn:
    """Add elements until killed; this process ends here."""

    def say(**said: object) -> None:
        os.write(writer, json.dumps({"who": who, **said}).encode() + b"\n")

    chance = random.Random(who)
    number = 0
    try:
        while True:
            number += 1
            try:
                _add(
                    lock, data, say, element=f"{who}-{number}", inside_s=chance.uniform(*_INSIDE_S)
                )
            except TidelockError:
                # Lost, or no answer: the next round asks again.
                time.sleep(0.01)
    except BaseException as error:
        say(error=repr(error))
    finally:
        os._exit(1)


def _add(
    lock: Lock,
    data: Register | PlainSet,
    say: Callable[..., None],
    *,
    element: str,
    inside_s: float,
) -> None:
    with lock:
        token = lock.token
        say(token=token)
        elements = data.enter(token)
        if elements is not None:
            time.sleep(inside_s)
        if elements is None or not data.write(token, [*elements, element]):
            say(rejected=element)
            return
        say(added=element)


def run(
    uris: Sequence[tuple[str, Mapping[str, object]]], *, seconds: float, ttl_ms: int, seed: int = 0
) -> list[Group]:
    """Fight on every URI, with tokens checked and without, side by side; return the groups."""
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
    """Fight, report, and return 1 if the fenced path lost something or the canary nothing."""
    parser = argparse.ArgumentParser(prog="python -m tidelock.testing.lockset")
    parser.add_argument(
        "--store", action="append", help="a path or URI, or `seaweedfs`; repeatable"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--ttl-ms", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with ExitStack() as stack:
        places = [_place(name, stack) for name in chosen.store or ["local"]]
        seconds = chosen.minutes * 60 if chosen.minutes else chosen.seconds
        groups = run(places, seconds=seconds, ttl_ms=chosen.ttl_ms, seed=chosen.seed)
    for group in groups:
        sys.stdout.write(group.tally.line(group.name) + "\n")
    problems = list(_problems(groups))
    for problem in problems:
        sys.stdout.write(f"problem: {problem}\n")
    return 1 if problems else 0


def _problems(groups: Sequence[Group]) -> Sequence[str]:
    found = []
    for group in groups:
        tally, fenced = group.tally, group.name.startswith("fenced")
        if tally.twice:
            found.append(f"{group.name}: L1: {tally.twice} tokens were granted twice")
        if fenced and tally.lost:
            found.append(f"{group.name}: lost {len(tally.lost)}: {tally.lost[:5]}")
        if not fenced and not tally.lost:
            found.append(f"{group.name}: the canary lost nothing in {tally.pauses} pauses")
        found += [f"{group.name}: a worker died of {error}" for error in tally.errors]
        if not tally.acknowledged:
            found.append(f"{group.name}: nothing was ever acknowledged")
    return found


def _place(name: str, stack: ExitStack) -> tuple[str, Mapping[str, object]]:
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
