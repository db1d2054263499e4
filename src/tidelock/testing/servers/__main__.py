"""Install the servers ahead of the tests: `python -m tidelock.testing.servers [name ...]`.

A test that waits for an installation would spend its own time limit on it. The exit code is 0 also
where a server cannot be had here: the tests that need it say so themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.unavailable import ServerUnavailable

NAMES = (
    "seaweedfs",
    "etcd",
    "redis",
    "zookeeper",
    "dynamodb",
    "hive",
    "azurite",
    "fake_gcs",
    "minio",
    "kafka",
    "chromium",
)
ON_REQUEST = ("kubernetes",)
"""Servers whose installation takes too long to be done for everybody."""


def main(names: Sequence[str]) -> int:
    """Install each named server, or all, and print a line for each."""
    known = (*NAMES, *ON_REQUEST)
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.stdout.write(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}\n")
        return 2
    cache = ToolCache.default()
    for name in names or NAMES:
        started = time.monotonic()
        outcome = _install(name, cache)
        sys.stdout.write(f"{name:12} {time.monotonic() - started:6.1f} s  {outcome}\n")
        sys.stdout.flush()
    return 0


def _install(name: str, cache: ToolCache) -> str:
    module = import_module(f"tidelock.testing.servers.{name}")
    install = cast("Callable[[ToolCache], object]", module.install)
    try:
        install(cache)
    except ServerUnavailable as error:
        return str(error)
    return "ready"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
