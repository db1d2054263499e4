"""Identity and chance as parameters: the only file that draws random bits."""

from __future__ import annotations

import os
import random
import secrets
import socket
import uuid
from typing import Protocol


class IdSource(Protocol):
    """Where unique names and jitter come from."""

    def uuid(self) -> str:
        """Return a name that no other process will ever draw."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1) for spreading retries; not for secrets."""
        ...

    def process(self) -> tuple[str, int]:
        """Return the host and the number by which an operator finds this process."""
        ...


class SystemIds:
    """Unpredictable names from the operating system."""

    def __init__(self) -> None:
        """Seed the jitter from the operating system."""
        self._random = random.Random(secrets.randbits(64))  # noqa: S311 - jitter, not secrets

    def uuid(self) -> str:
        """Return a random UUID in its canonical form, as Java writes owners."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def process(self) -> tuple[str, int]:
        """Return the host and the process id; a forked child has its own."""
        return socket.gethostname(), os.getpid()


class SeededIds:
    """The same names and the same jitter for the same seed."""

    def __init__(self, seed: int) -> None:
        """Draw everything from `seed`."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable by design

    def uuid(self) -> str:
        """Return the next UUID of this seed."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def jitter(self) -> float:
        """Return the next number in [0, 1) of this seed."""
        return self._random.random()

    def process(self) -> tuple[str, int]:
        """Return the same process everywhere: real numbers have more or fewer digits."""
        return "simulated", 1
