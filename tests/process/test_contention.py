"""RFC-91's test plan: hundreds of threads, and sixteen processes, contend for one lock."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testkit.contention import LEASE, contend_threads
from testkit.servers import AzureServer, GcsServer, S3Server
from tests.contract.stores import azure_settings, s3_settings
from tidelock.lock.client import Lock
from tidelock.storage.local import LocalStore
from tidelock.storage.memory import MemoryStore


class OverlapDetector:
    """A list that detects concurrent access, as Java's ArrayList would."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.overlaps = 0
        self._inside = False

    def append(self) -> None:
        self.overlaps += self._inside
        self._inside = True
        size = len(self.values)
        # Enough work for the interpreter to switch threads in between.
        sum(range(2_000))
        self.values.append(size)
        self._inside = False


def test_two_hundred_threads_never_overlap_in_memory() -> None:
    store, shared = MemoryStore("threads"), OverlapDetector()
    outcome = contend_threads(
        lambda: Lock(store, LEASE, probe=False), threads=200, rounds=3, inside=shared.append
    )
    assert outcome.failures == []
    assert outcome.violations == []
    assert shared.overlaps == 0
    assert shared.values == list(range(600))


def test_two_hundred_threads_never_overlap_in_a_folder(tmp_path: Path) -> None:
    shared = OverlapDetector()
    outcome = contend_threads(
        lambda: Lock(LocalStore(tmp_path, fsync=False), LEASE, probe=False),
        threads=200,
        rounds=1,
        inside=shared.append,
    )
    assert outcome.failures == []
    assert outcome.violations == []
    assert shared.overlaps == 0
    assert shared.values == list(range(200))


def assert_exclusive(
    uri: str, settings: Mapping[str, object], *, processes: int, sections: int
) -> dict[str, Any]:
    """Let processes contend; check that no sections overlap and none is missing."""
    numbers = ["--processes", str(processes), "--sections", str(sections)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "testkit.contention"),
            *("--store", uri, "--settings", *numbers),
        ],
        input=json.dumps(dict(settings)),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stdout, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    print(outcome)
    assert outcome["failures"] == []
    assert outcome["violations"] == []
    # No starvation: every process finished all its sections.
    assert outcome["sections"] == processes * sections
    return outcome


def test_sixteen_processes_never_overlap_in_a_folder(tmp_path: Path) -> None:
    assert_exclusive(str(tmp_path / "table"), {}, processes=16, sections=12)


def fresh(scheme: str) -> str:
    return f"{scheme}/{uuid.uuid4().hex}"


@pytest.mark.servers
def test_processes_never_overlap_on_seaweedfs(seaweedfs_server: S3Server) -> None:
    seaweedfs_server.create_bucket("contention")
    settings = s3_settings(seaweedfs_server)
    assert_exclusive(fresh("s3://contention"), settings, processes=6, sections=6)


@pytest.mark.servers
def test_processes_never_overlap_on_minio(minio_server: S3Server) -> None:
    minio_server.create_bucket("contention")
    settings = s3_settings(minio_server)
    assert_exclusive(fresh("s3://contention"), settings, processes=6, sections=6)


@pytest.mark.servers
def test_processes_never_overlap_on_azurite(azurite_server: AzureServer) -> None:
    azurite_server.create_container("contention")
    uri = fresh(f"abfss://contention@{azurite_server.account}.dfs.core.windows.net")
    assert_exclusive(uri, azure_settings(azurite_server), processes=6, sections=4)


@pytest.mark.servers
def test_processes_never_overlap_on_fake_gcs(fake_gcs_server: GcsServer) -> None:
    fake_gcs_server.create_bucket("contention")
    settings = {"tidelock.gcs.endpoint": fake_gcs_server.endpoint}
    assert_exclusive(fresh("gs://contention"), settings, processes=6, sections=6)
