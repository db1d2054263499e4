"""Locks when their process forks or exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.lock.record import decode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.storage.local import LocalStore

FORK = """
import os, sys, threading, time
from pathlib import Path
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.local import LocalStore
from tidelock.core.errors import HoldingLost, InvalidInput
writes = []
store = LocalStore(Path(sys.argv[1]), fsync=False, observe=lambda verb: writes.append(verb))
lock = Lock(store, Lease(validity_ms=60_000, renew_ms=50), probe=False)
lock.acquire(0)
other = Lock(store, Lease(validity_ms=60_000, renew_ms=50), probe=False)
threading.Thread(target=other.acquire, args=(1,), daemon=True).start()
time.sleep(0.1)  # let the thread start to wait
pid = os.fork()
if pid == 0:
    writes.clear()
    problems = []
    if lock.state.value != "lost":
        problems.append(lock.state)
    for each in (lock, other):
        for verb in (lambda: each.acquire(0), each.try_acquire):
            try:
                verb()
                problems.append("acquired")
            except InvalidInput:
                pass
    try:
        lock.check()
        problems.append("checked")
    except HoldingLost as lost:
        if "fork" not in str(lost):
            problems.append(str(lost))
    lock.renew()
    lock.release()
    lock.close()
    time.sleep(0.2)  # several renewal intervals
    if writes:
        problems.append(writes)
    print(problems, flush=True)
    os._exit(1 if problems else 0)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert status == 0, status
assert lock.state.value == "held", lock.state
token = lock.check()
lock.release()
print("parent held", token)
"""


@pytest.mark.timeout(180)
def test_forked_child_holds_nothing_and_writes_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parent held" in done.stdout


EXIT = """
import sys
from pathlib import Path
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.local import LocalStore
lock = Lock(LocalStore(Path(sys.argv[1]), fsync=False), Lease(60_000, 6_000), probe=False)
lock.acquire(0)
if sys.argv[2] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 3)])
def test_process_exit_releases_the_lock(tmp_path: Path, how: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT, str(tmp_path), how], timeout=120, check=False
    )
    assert done.returncode == code
    found = LocalStore(tmp_path).get(LOCK_KEY)
    assert found is not None
    assert decode(found.body).expired
