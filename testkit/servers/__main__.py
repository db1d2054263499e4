"""Install servers and tools before the tests run: `python -m testkit.servers [name ...]`.

An installation within a test would count against its timeout. The exit status is 0 even if a server
is not available: the tests that need it report that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from testkit.servers.cache import ToolCache
from testkit.servers.unavailable import ServerUnavailable

NAMES = (
    "seaweedfs",
    "etcd",
    "redis",
    "zookeeper",
    "dynamodb",
    "hive",
    "azurite",
    "pyright",
    "fake_gcs",
    "minio",
    "kafka",
    "chromium",
    "strace",
    "hudi",
)
ON_REQUEST = ("kubernetes",)
"""Servers that are not installed by default, because that takes too long."""
_ELSEWHERE = {"hudi": "testkit.java.install", "strace": "testkit.crash.strace"}
"""The modules of tools that are no servers."""


def main(names: Sequence[str]) -> int:
    """Install the named servers, or all; print a line for each."""
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
    module = import_module(_ELSEWHERE.get(name, f"testkit.servers.{name}"))
    install = cast("Callable[[ToolCache], object]", module.install)
    try:
        install(cache)
    except ServerUnavailable as error:
        return str(error)
    return "ready"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
