"""The lock file: Hudi's content and expiry, and a safe unlock."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.unit.doubles import EPOCH_MS, ManualClock
from tidelock.core.errors import Unsupported
from tidelock.lock.providers.backend import (
    Attempt,
    BackendAcquired,
    GrantLost,
    GrantReleased,
    HeldByOther,
    RenewedLease,
)
from tidelock.lock.providers.filesystem import FileSystemBackend, local_folder
from tidelock.lock.providers.leased import LeasedProvider

A, B = Attempt("a"), Attempt("b")
JAVA = """{
  "lockCreateTime" : "2026-11-15 10:00:00.000",
  "lockThreadName" : "main",
  "lockStacksInfo" : [ "\\t java.lang.Thread.getStackTrace" ]
}"""


def backend(
    tmp_path: Path, clock: ManualClock, expire_ms: int | None = 60_000
) -> FileSystemBackend:
    return FileSystemBackend(tmp_path, expire_ms=expire_ms, clock=clock)


def age(path: Path, clock: ManualClock, age_ms: int) -> None:
    modified_ns = (clock.now().wall_epoch_ms - age_ms) * 1_000_000
    os.utime(path, ns=(modified_ns, modified_ns))


def test_content_is_hudis_plus_our_identity(tmp_path: Path) -> None:
    backend(tmp_path, ManualClock()).try_acquire(A)
    content = json.loads((tmp_path / "lock").read_text())
    assert set(content) == {"lockCreateTime", "lockThreadName", "lockStacksInfo", "tidelockAttempt"}
    assert len(content["lockCreateTime"]) == len("2026-11-15 10:00:00.000")
    assert content["lockThreadName"] == threading.current_thread().name
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_java_file_is_respected_until_it_expires(tmp_path: Path) -> None:
    clock = ManualClock()
    lock = tmp_path / "lock"
    lock.write_text(JAVA)
    contender = backend(tmp_path, clock)
    age(lock, clock, 60_000)
    assert isinstance(contender.try_acquire(A), HeldByOther)  # Hudi: strictly more than the minutes
    age(lock, clock, 60_001)
    assert isinstance(contender.try_acquire(A), BackendAcquired)


def test_file_without_an_expiry_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "lock").write_text(JAVA)
    age(tmp_path / "lock", clock, 10**9)
    assert isinstance(backend(tmp_path, clock, None).try_acquire(A), HeldByOther)


def test_renewal_keeps_the_file_fresh(tmp_path: Path) -> None:
    clock = ManualClock()
    holder = backend(tmp_path, clock)
    taken = holder.try_acquire(A)
    assert isinstance(taken, BackendAcquired)
    age(tmp_path / "lock", clock, 59_000)
    assert isinstance(holder.renew(taken.grant), RenewedLease)
    assert (tmp_path / "lock").stat().st_mtime_ns // 1_000_000 == EPOCH_MS + 1_000


def test_l4_only_the_owner_removes_the_file(tmp_path: Path) -> None:
    clock = ManualClock()
    holder, other = backend(tmp_path, clock), backend(tmp_path, clock)
    taken = holder.try_acquire(A)
    assert isinstance(taken, BackendAcquired)
    assert not other.cancel(B)
    (tmp_path / "lock").write_text(JAVA)
    assert holder.release(taken.grant) == GrantLost("a Java writer created the file")
    assert holder.renew(taken.grant) == GrantLost("a Java writer created the file")
    assert (tmp_path / "lock").read_text() == JAVA
    (tmp_path / "lock").unlink()
    assert holder.renew(taken.grant) == GrantLost("the file was removed")
    again = other.try_acquire(B)
    assert isinstance(again, BackendAcquired)
    assert other.release(again.grant) == GrantReleased()


def test_ended_thread_leaves_no_file_that_never_expires(tmp_path: Path) -> None:
    provider = LeasedProvider(FileSystemBackend(tmp_path, expire_ms=None))
    owner = threading.Thread(target=provider.try_lock, args=(0,))
    owner.start()
    owner.join()
    assert (tmp_path / "lock").exists()
    provider.renew()
    assert not (tmp_path / "lock").exists()
    provider.close()


@pytest.mark.parametrize("base_path", ["file:///data/t", "file:/data/t", "/data/t"])
def test_local_folders_are_identified_by_any_of_their_names(base_path: str) -> None:
    assert local_folder(base_path) == Path("/data/t")


@pytest.mark.parametrize("base_path", ["s3://lake/t", "hdfs://nn:8020/t", "gs://lake/t"])
def test_other_stores_are_refused(base_path: str) -> None:
    with pytest.raises(Unsupported, match="storage lock"):
        local_folder(base_path)
