"""Pyright, the second type checker that users of the package run."""

from __future__ import annotations

from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.node import node_package

VERSION = "1.1.414"


def install(cache: ToolCache) -> tuple[Path, Path]:
    """Return `node` and the script of pyright's command."""
    node, package = node_package(cache, package="pyright", version=VERSION)
    return node, package / "index.js"
