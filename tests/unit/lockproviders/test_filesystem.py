"""The lock file: Hudi's content and expiry, our own unlock."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.unit.doubles import EPOCH_MS, ManualClock
from tidelock.base.errors import Unsupported
from tidelock.lockproviders.backend import Attempt, Freed, Gone, Held, Kept, Taken
from tidelock.lockproviders.filesystem import FileSystemBackend, local_folder
from tidelock.lockproviders.leased import LeasedProvider

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


def test_the_content_is_hudi_s_with_who_we_are(tmp_path: Path) -> None:
    backend(tmp_path, ManualClock()).take(A)
    said = json.loads((tmp_path / "lock").read_text())
    assert set(said) == {"lockCreateTime", "lockThreadName", "lockStacksInfo", "tidelockAttempt"}
    assert len(said["lockCreateTime"]) == len("2026-11-15 10:00:00.000")
    assert said["lockThreadName"] == threading.current_thread().name
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_java_file_is_respected_until_it_expires(tmp_path: Path) -> None:
    clock = ManualClock()
    lock = tmp_path / "lock"
    lock.write_text(JAVA)
    taker = backend(tmp_path, clock)
    age(lock, clock, 60_000)
    assert isinstance(taker.take(A), Held)  # Hudi: more than the minutes, not as much
    age(lock, clock, 60_001)
    assert isinstance(taker.take(A), Taken)


def test_without_an_expiry_a_file_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "lock").write_text(JAVA)
    age(tmp_path / "lock", clock, 10**9)
    assert isinstance(backend(tmp_path, clock, None).take(A), Held)


def test_a_renewal_keeps_the_file_young(tmp_path: Path) -> None:
    clock = ManualClock()
    holder = backend(tmp_path, clock)
    taken = holder.take(A)
    assert isinstance(taken, Taken)
    age(tmp_path / "lock", clock, 59_000)
    assert isinstance(holder.renew(taken.grant), Kept)
    assert (tmp_path / "lock").stat().st_mtime_ns // 1_000_000 == EPOCH_MS + 1_000


def test_l4_only_its_maker_removes_the_file(tmp_path: Path) -> None:
    clock = ManualClock()
    holder, other = backend(tmp_path, clock), backend(tmp_path, clock)
    taken = holder.take(A)
    assert isinstance(taken, Taken)
    assert not other.leave(B)
    (tmp_path / "lock").write_text(JAVA)
    assert holder.release(taken.grant) == Gone("the file is a Java writer's")
    assert holder.renew(taken.grant) == Gone("the file is a Java writer's")
    assert (tmp_path / "lock").read_text() == JAVA
    (tmp_path / "lock").unlink()
    assert holder.renew(taken.grant) == Gone("the file was removed")
    again = other.take(B)
    assert isinstance(again, Taken)
    assert other.release(again.grant) == Freed()


def test_a_thread_that_ends_leaves_no_file_that_never_expires(tmp_path: Path) -> None:
    provider = LeasedProvider(FileSystemBackend(tmp_path, expire_ms=None))
    owner = threading.Thread(target=provider.try_lock, args=(0,))
    owner.start()
    owner.join()
    assert (tmp_path / "lock").exists()
    provider.renew()
    assert not (tmp_path / "lock").exists()
    provider.close()


@pytest.mark.parametrize("place", ["file:///data/t", "file:/data/t", "/data/t"])
def test_local_folders_are_known_by_any_of_their_names(place: str) -> None:
    assert local_folder(place) == Path("/data/t")


@pytest.mark.parametrize("place", ["s3://lake/t", "hdfs://nn:8020/t", "gs://lake/t"])
def test_other_stores_are_refused(place: str) -> None:
    with pytest.raises(Unsupported, match="storage lock"):
        local_folder(place)
