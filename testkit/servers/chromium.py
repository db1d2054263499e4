"""Headless Chromium from Debian's package, for tests of web pages."""

from __future__ import annotations

from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.debian import unpacked_packages

PROGRAM = "usr/lib/chromium/chromium-headless-shell"


def install(cache: ToolCache) -> Path:
    """Return the directory with Chromium, a font, and the libraries they need."""
    return unpacked_packages(
        cache,
        name="chromium",
        packages=["chromium-headless-shell", "fonts-dejavu-core"],
        with_dependencies=True,
    )
