"""A holder stopped past its lease: when it resumes, its callback runs before it continues."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.lockserver import ServiceProcess
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.providers.registry import open_provider
from tidelock.storage.local import LocalStore

LEASE = Lease(validity_ms=3_000, renew_ms=300)
STATES = "tidelock.lock.providers.statestore.StateStoreLockProvider"
TTL_MS = 3_000

# The callback is slow: code that does not wait for it is caught.
_HOLD = """
import sys, time
from pathlib import Path
from tidelock.core.errors import HoldingLost

told = []

def lost(cause):
    time.sleep(0.3)  # a slow callback
    told.append(cause)

def work(check, verb):
    print("holding", flush=True)
    while True:
        try:
            check()
        except HoldingLost:
            print(verb, "after" if told else "before", "its callback,", len(told), flush=True)
            return
"""

STORAGE = (
    _HOLD
    + """
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.local import LocalStore

lease = Lease(validity_ms=3_000, renew_ms=300)
lock = Lock(LocalStore(Path(sys.argv[1]), fsync=False), lease, probe=False)
lock.on_lost(lost)
lock.acquire(0)
work(lock.check, "stopped")
"""
)

PROVIDER = (
    _HOLD
    + """
from tidelock.lock.providers.registry import open_provider

lock = open_provider({
    "hoodie.write.lock.provider": "tidelock.lock.providers.statestore.StateStoreLockProvider",
    "tidelock.statestore.url": sys.argv[1],
    "tidelock.lock.resource": "r",
    "tidelock.lock.ttl.ms": 3_000,
})
lock.on_lost(lost)
assert lock.try_lock(0)
work(lock.check, "stopped")
"""
)

RELEASE = (
    _HOLD
    + """
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.local import LocalStore

lease = Lease(validity_ms=3_000, renew_ms=300)
lock = Lock(LocalStore(Path(sys.argv[1]), fsync=False), lease, probe=False)
lock.on_lost(lost)
lock.acquire(0)

def check_or_release():
    if lock.state.value == "lost":
        lock.release()

work(check_or_release, "stopped")
"""
)

SERVICE = (
    _HOLD
    + """
import asyncio
import tidelock as tl

async def main():
    async with tl.AsyncLockClient(sys.argv[1]) as client:
        lock = client.lock("r", ttl_ms=3_000)
        lock.on_lost(lost)
        await lock.acquire(0)
        print("holding", flush=True)
        while True:
            try:
                lock.check()
            except HoldingLost:
                print("stopped", "after" if told else "before", "its callback,", len(told))
                return
            await asyncio.sleep(0.01)

asyncio.run(main())
"""
)


@contextmanager
def holder(script: str, lock_uri: str) -> Iterator[subprocess.Popen[str]]:
    """Run a holder in its own process, until it holds the lock."""
    child = subprocess.Popen(
        [sys.executable, "-c", script, lock_uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line == "holding\n", child.communicate(timeout=60)
        yield child
    finally:
        child.kill()
        child.communicate()


def stopped_until(child: subprocess.Popen[str], taken: Callable[[], bool]) -> str:
    """Stop the holder until another holds its lock; return its output after it resumes."""
    child.send_signal(signal.SIGSTOP)
    assert taken(), "the lock of a stopped holder is free after its lease"
    child.send_signal(signal.SIGCONT)
    out, err = child.communicate(timeout=60)
    assert "Traceback" not in err, err
    return out


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", [STORAGE, RELEASE], ids=["check", "release"])
def test_resumed_holder_of_the_storage_lock_continues_after_its_callback(
    script: str, tmp_path: Path
) -> None:
    other = Lock(LocalStore(tmp_path, fsync=False), LEASE, probe=False)
    with holder(script, str(tmp_path)) as child:
        output = stopped_until(child, lambda: other.acquire(60) > 0)
    other.close()
    assert output == "stopped after its callback, 1\n"


@pytest.mark.timeout(300)
def test_resumed_holder_of_any_provider_continues_after_its_callback(tmp_path: Path) -> None:
    settings = {
        "hoodie.write.lock.provider": STATES,
        "tidelock.statestore.url": str(tmp_path),
        "tidelock.lock.resource": "r",
        "tidelock.lock.ttl.ms": TTL_MS,
    }
    other = open_provider(settings)
    with holder(PROVIDER, str(tmp_path)) as child:
        output = stopped_until(child, lambda: other.try_lock(60_000))
    other.close()
    assert output == "stopped after its callback, 1\n"


@pytest.mark.timeout(300)
def test_resumed_holder_of_a_service_lock_continues_after_its_callback(tmp_path: Path) -> None:
    with ServiceProcess(str(tmp_path / "store")) as service:
        settings = {
            "hoodie.write.lock.provider": "tidelock.lock.server.client.ServiceLockProvider",
            "tidelock.lockservice.url": service.url,
            "tidelock.lock.resource": "r",
        }
        other = open_provider(settings)
        with holder(SERVICE, service.grpc_address) as child:
            output = stopped_until(child, lambda: other.try_lock(60_000))
        other.close()
    assert output == "stopped after its callback, 1\n"
