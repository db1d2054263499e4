"""Hudi's Java writers and ours on one table concurrently; the long run is `make mixed-fleet`."""

from __future__ import annotations

import pytest

from testkit import mixedfleet
from testkit.java import Hudi, JavaTables

pytestmark = pytest.mark.timeout(600)


def test_no_update_is_lost_among_java_writers_and_ours(
    hudi_java: Hudi, hudi_java_tables: JavaTables
) -> None:
    del hudi_java, hudi_java_tables  # skips if Hudi's code is unavailable
    found = mixedfleet.run(minutes=0.1)
    assert mixedfleet.is_clean(found), found


def test_checker_detects_a_lost_update() -> None:
    clean = {
        **{f"landed {name}": 1 for name in mixedfleet.WRITERS},
        "keys twice": 0,
        "keys wrong": [],
        "readers that differ": [],
    }
    assert mixedfleet.is_clean(clean)
    assert not mixedfleet.is_clean({**clean, "keys wrong": ["p1-3"]})
    assert not mixedfleet.is_clean({**clean, "readers that differ": ["Hudi"]})
    assert not mixedfleet.is_clean({**clean, "landed java-1": 0})
