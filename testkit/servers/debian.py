"""Debian packages unpacked into the cache, without root and without changes to the system."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from testkit.servers.cache import Installer, ToolCache
from testkit.servers.unavailable import ServerUnavailable

_REPEAT = "-oAcquire::Retries=3"


def unpacked_packages(
    cache: ToolCache, *, name: str, packages: Sequence[str], with_dependencies: bool
) -> Path:
    """Return a directory with the files of these packages, laid out as under `/`.

    `with_dependencies` adds the dependencies that are not installed on this system.
    """
    how = f"use a Debian or Ubuntu system whose package sources offer {', '.join(packages)}"
    installer = Installer(name, how_to_install=how)

    def install(target: Path) -> None:
        apt = _Apt(installer, cache.root / "apt")
        for archive in apt.download(packages, target, with_dependencies=with_dependencies):
            installer.run(["dpkg-deb", "--extract", archive, target])
            archive.unlink()

    return cache.tool(name, "debian", install)


class _Apt:
    """`apt-get` with the system's package lists, or with separate ones if it has none."""

    def __init__(self, installer: Installer, state: Path) -> None:
        self._installer = installer
        self._state = state
        self._options = [_REPEAT]

    def download(
        self, packages: Sequence[str], target: Path, *, with_dependencies: bool
    ) -> list[Path]:
        """Download package archives into the directory and return them."""
        try:
            self._fetch(packages, target, with_dependencies=with_dependencies)
        except ServerUnavailable:
            # A new container has no package lists, and updating the system's needs root.
            self._use_own_lists()
            self._fetch(packages, target, with_dependencies=with_dependencies)
        return sorted(target.glob("*.deb"))

    def _fetch(self, packages: Sequence[str], target: Path, *, with_dependencies: bool) -> None:
        chosen = self._closure(packages) if with_dependencies else packages
        self._installer.run(["apt-get", *self._options, "download", *chosen], cwd=target)

    def _closure(self, packages: Sequence[str]) -> list[str]:
        simulated = [*self._options, "--simulate", "--no-install-recommends", "install"]
        printed = self._installer.run(["apt-get", *simulated, *packages])
        missing = re.findall(r"^Inst (\S+)", printed, flags=re.MULTILINE)
        # A package that is already installed is still unpacked with the others.
        return sorted({*missing, *packages})

    def _use_own_lists(self) -> None:
        for part in ("lists/partial", "archives/partial"):
            (self._state / part).mkdir(parents=True, exist_ok=True)
        self._options = [
            _REPEAT,
            f"-oDir::State::Lists={self._state / 'lists'}",
            f"-oDir::Cache={self._state}",
            f"-oDir::Cache::Archives={self._state / 'archives'}",
            "-oDebug::NoLocking=1",
            "-oAPT::Sandbox::User=",
        ]
        self._installer.download(["apt-get", *self._options, "update"])
