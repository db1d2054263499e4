"""The clocks and the randomness of the machine: the only module that reads them.

Everything else takes a `Clock` or an `IdSource` as a parameter, so that simulations can replace it.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
import uuid

from tidelock.core.clock import Now


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> Now:
        monotonic_ms = time.monotonic_ns() // 1_000_000
        return Now(monotonic_ms=monotonic_ms, wall_epoch_ms=time.time_ns() // 1_000_000)

    def sleep_ms(self, duration_ms: float) -> None:
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)


class SystemIds:
    """Unpredictable ids from the operating system."""

    def __init__(self) -> None:
        self._random = random.Random(secrets.randbits(64))  # noqa: S311 - jitter, not secrets

    def uuid(self) -> str:
        """Return a random UUID in its canonical form, as Java writes owners."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        return self._random.random()

    def process(self) -> tuple[str, int]:
        """Return the host and the process id; a forked child has its own."""
        return socket.gethostname(), os.getpid()


class SeededIds:
    """The same ids and jitter for the same seed, for simulations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable by design

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def jitter(self) -> float:
        return self._random.random()

    def process(self) -> tuple[str, int]:
        """Return the same process everywhere: real ids differ in their number of digits."""
        return "simulated", 1
