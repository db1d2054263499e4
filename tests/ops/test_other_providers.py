"""Commands on a lock that is not the storage lock: the settings say whose."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from tests.ops.program import Program
from tidelock.lockproviders.registry import open_provider

NAME = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
HERE = ["--prop", f"hoodie.write.lock.provider={NAME}"]


def test_a_command_runs_under_the_lock_of_its_provider(tidelock: Program, tmp_path: Path) -> None:
    seen = "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())"
    lock_file = str(tmp_path / ".hoodie" / "lock")
    command = [sys.executable, "-c", seen, lock_file]
    ended = tidelock("lock", "run", str(tmp_path), *HERE, "--", *command)
    assert ended.code == 0
    assert not Path(lock_file).exists()
    assert not (tmp_path / ".hoodie" / ".locks").exists()  # the storage lock was not touched


def test_a_held_lock_is_shown_refused_and_released_by_force(
    tidelock: Program, tmp_path: Path
) -> None:
    settings = {"hoodie.write.lock.provider": NAME, "hoodie.base.path": str(tmp_path)}
    with closing(open_provider(settings)) as holder:
        assert holder.try_lock(0)
        status = tidelock("lock", "status", str(tmp_path), *HERE, "--json")
        assert status.facts["state"] == "held"
        assert status.facts["owner"]
        assert "held" in tidelock("lock", "status", str(tmp_path), *HERE).out
        refused = tidelock("lock", "acquire", str(tmp_path), *HERE, "--no-wait")
        assert refused.code == 4
        other = tidelock("lock", "force-release", str(tmp_path), *HERE, "--yes", "--if-token", "9")
        assert other.code == 4
        forced = tidelock("lock", "force-release", str(tmp_path), *HERE, "--yes", "--json")
        assert forced.facts["changed"]
        again = tidelock("lock", "force-release", str(tmp_path), *HERE, "--yes", "--json")
        assert not again.facts["changed"]
        assert tidelock("lock", "status", str(tmp_path), *HERE, "--json").facts["state"] == "free"


def test_a_lock_is_held_in_the_foreground_and_given_back(tidelock: Program, tmp_path: Path) -> None:
    ended = tidelock("lock", "acquire", str(tmp_path), *HERE, "--for", "0")
    assert ended.code == 0
    assert "released" in ended.out
    assert not (tmp_path / ".hoodie" / "lock").exists()
