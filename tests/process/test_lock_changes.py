"""Tokens of the table's lock that begin anew: a lost lock, another lock, another process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.lock.config import PROVIDER
from tidelock.ops.cli.main import main
from tidelock.testing.servers import RunningServer

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
def place(tmp_path: Path) -> str:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    tl.Table.create(str(tmp_path / "t"), schema, key="id", name="t").close()
    return str(tmp_path / "t")


def write(place: str, name: str, options: dict[str, str]) -> None:
    """Write three times in this process."""
    with tl.Table.open(place, options=options) as table:
        for number in range(WRITES):
            table.upsert([{"id": f"{name}{number}", "v": number}])


def ids(place: str) -> list[str]:
    with tl.Table.open(place) as table:
        return sorted(table.read(["id"]).column("id").to_pylist())


def expected(*names: str) -> list[str]:
    return sorted(f"{name}{number}" for name in names for number in range(WRITES))


def test_a_lock_within_a_process_lets_the_next_process_write(place: str) -> None:
    for name in "abc":
        given = [f"{key}={value}" for key, value in IN_PROCESS.items()]
        ran = subprocess.run(
            [sys.executable, "-c", RUN, place, name, *given],
            check=False,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
    assert ids(place) == expected("a", "b", "c")


def test_lock_files_that_were_deleted_do_not_keep_writers_out(place: str) -> None:
    write(place, "a", STORAGE)
    shutil.rmtree(Path(place) / LOCK_FILES)
    write(place, "b", STORAGE)
    shutil.rmtree(Path(place) / LOCK_FILES)
    write(place, "c", STORAGE)
    assert ids(place) == expected("a", "b", "c")


@pytest.mark.servers
def test_writers_move_from_one_lock_to_another_and_back(
    place: str, etcd_server: RunningServer, redis_server: RunningServer
) -> None:
    etcd = {
        **OCC,
        PROVIDER.key: "tidelock.lockproviders.etcd.EtcdLockProvider",
        "tidelock.etcd.url": f"http://{etcd_server.host}:{etcd_server.port}",
    }
    redis = {
        **OCC,
        PROVIDER.key: "tidelock.lockproviders.redis.RedisLockProvider",
        "tidelock.redis.url": f"redis://{redis_server.host}:{redis_server.port}/0",
    }
    for name, options in zip("abcdef", (etcd, STORAGE, redis, STORAGE, etcd, redis), strict=True):
        write(place, name, options)
    assert ids(place) == expected(*"abcdef")


def test_a_counter_that_is_lost_under_an_open_table_does_not_fail_its_next_write(
    place: str,
) -> None:
    with (
        tl.Table.open(place, options=STORAGE) as one,
        tl.Table.open(place, options=STORAGE) as two,
    ):
        for number in range(WRITES):
            one.upsert([{"id": f"a{number}", "v": 1}])
        two.upsert([{"id": "b0", "v": 1}])
        shutil.rmtree(Path(place) / LOCK_FILES)
        one.upsert([{"id": "b1", "v": 1}])
        two.upsert([{"id": "b2", "v": 1}])
    assert ids(place) == expected("a", "b")


def test_the_doctor_tells_that_tokens_began_anew(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, "a", STORAGE)
    main(["doctor", place])
    assert "began anew" not in capsys.readouterr().out
    shutil.rmtree(Path(place) / LOCK_FILES)
    write(place, "b", STORAGE)
    main(["doctor", place])
    assert "began anew" in capsys.readouterr().out
