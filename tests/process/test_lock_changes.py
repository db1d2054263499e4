"""Lock tokens that restart: a lost lock, another lock, another process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from testkit.servers import RunningServer
from tidelock.cli.main import main
from tidelock.lock.config import PROVIDER

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
IN_PROCESS = {**OCC, PROVIDER.key: "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
STORAGE = {**OCC, PROVIDER.key: "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"}
LOCK_FILES = ".hoodie/.locks"
WRITES = 3

RUN = """
import sys, tidelock as tl
with tl.Table.open(sys.argv[1], options=dict(pair.split("=", 1) for pair in sys.argv[3:])) as table:
    for number in range(3):
        table.upsert([{"id": f"{sys.argv[2]}{number}", "v": number}])
"""


@pytest.fixture
def table_uri(tmp_path: Path) -> str:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    tl.Table.create(str(tmp_path / "t"), schema, key="id", name="t").close()
    return str(tmp_path / "t")


def write(table_uri: str, name: str, options: dict[str, str]) -> None:
    """Write three times in this process."""
    with tl.Table.open(table_uri, options=options) as table:
        for number in range(WRITES):
            table.upsert([{"id": f"{name}{number}", "v": number}])


def ids(table_uri: str) -> list[str]:
    with tl.Table.open(table_uri) as table:
        return sorted(table.read(["id"]).column("id").to_pylist())


def expected(*names: str) -> list[str]:
    return sorted(f"{name}{number}" for name in names for number in range(WRITES))


def test_in_process_lock_lets_the_next_process_write(table_uri: str) -> None:
    for name in "abc":
        given = [f"{key}={value}" for key, value in IN_PROCESS.items()]
        ran = subprocess.run(
            [sys.executable, "-c", RUN, table_uri, name, *given],
            check=False,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
    assert ids(table_uri) == expected("a", "b", "c")


def test_deleted_lock_files_do_not_block_writers(table_uri: str) -> None:
    write(table_uri, "a", STORAGE)
    shutil.rmtree(Path(table_uri) / LOCK_FILES)
    write(table_uri, "b", STORAGE)
    shutil.rmtree(Path(table_uri) / LOCK_FILES)
    write(table_uri, "c", STORAGE)
    assert ids(table_uri) == expected("a", "b", "c")


@pytest.mark.servers
def test_writers_switch_from_one_lock_to_another_and_back(
    table_uri: str, etcd_server: RunningServer, redis_server: RunningServer
) -> None:
    etcd = {
        **OCC,
        PROVIDER.key: "tidelock.lock.providers.etcd.EtcdLockProvider",
        "tidelock.etcd.url": f"http://{etcd_server.host}:{etcd_server.port}",
    }
    redis = {
        **OCC,
        PROVIDER.key: "tidelock.lock.providers.redis.RedisLockProvider",
        "tidelock.redis.url": f"redis://{redis_server.host}:{redis_server.port}/0",
    }
    for name, options in zip("abcdef", (etcd, STORAGE, redis, STORAGE, etcd, redis), strict=True):
        write(table_uri, name, options)
    assert ids(table_uri) == expected(*"abcdef")


def test_counter_lost_under_an_open_table_does_not_fail_its_next_write(
    table_uri: str,
) -> None:
    with (
        tl.Table.open(table_uri, options=STORAGE) as one,
        tl.Table.open(table_uri, options=STORAGE) as two,
    ):
        for number in range(WRITES):
            one.upsert([{"id": f"a{number}", "v": 1}])
        two.upsert([{"id": "b0", "v": 1}])
        shutil.rmtree(Path(table_uri) / LOCK_FILES)
        one.upsert([{"id": "b1", "v": 1}])
        two.upsert([{"id": "b2", "v": 1}])
    assert ids(table_uri) == expected("a", "b")


def test_doctor_reports_lock_tokens_that_restarted(
    table_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(table_uri, "a", STORAGE)
    main(["doctor", table_uri])
    assert "restarted" not in capsys.readouterr().out
    shutil.rmtree(Path(table_uri) / LOCK_FILES)
    write(table_uri, "b", STORAGE)
    main(["doctor", table_uri])
    assert "restarted" in capsys.readouterr().out
