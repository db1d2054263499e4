"""Chromium without a window, from Debian's package: the browser that pages are tested in."""

from __future__ import annotations

from pathlib import Path

from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.debian import unpacked_packages

PROGRAM = "usr/lib/chromium/chromium-headless-shell"


def install(cache: ToolCache) -> Path:
    """Return the directory that holds Chromium, a font, and the libraries they need."""
    return unpacked_packages(
        cache,
        name="chromium",
        packages=["chromium-headless-shell", "fonts-dejavu-core"],
        with_dependencies=True,
    )
