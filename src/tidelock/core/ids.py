"""Unique ids and jitter: the only module that draws random bits."""

from __future__ import annotations

import os
import random
import secrets
import socket
import uuid
from typing import Protocol


class IdSource(Protocol):
    """A source of unique ids and jitter."""

    def uuid(self) -> str:
        """Return an id that no other process will ever draw."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1) for spreading retries; not for secrets."""
        ...

    def process(self) -> tuple[str, int]:
        """Return the host and process id by which an operator finds this process."""
        ...


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
