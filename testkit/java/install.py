"""Downloads and compiles the Java programs of the tests: `python -m testkit.servers hudi`."""

from __future__ import annotations

from testkit.java.configs import install_configs
from testkit.java.hudi import install_hudi
from testkit.java.peers import lock_peers
from testkit.java.tables import hudi_fleet, hudi_tables
from testkit.servers.cache import ToolCache
from testkit.servers.unavailable import ServerUnavailable

_PROGRAMS = (install_hudi, hudi_tables, hudi_fleet, lock_peers, install_configs)


def install(cache: ToolCache) -> None:
    """Install all that are available. Raises: `ServerUnavailable` for the first that is not."""
    missing = []
    for program in _PROGRAMS:
        try:
            program(cache)
        except ServerUnavailable as error:
            missing.append(error)
    if missing:
        raise missing[0]
