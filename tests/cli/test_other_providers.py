"""Commands with lock providers other than the storage lock, chosen by the settings."""

from __future__ import annotations

import sys
import uuid
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from testkit.servers import RunningServer
from tests.cli.program import Program
from tidelock.core.errors import LockHeld
from tidelock.lock.providers.registry import open_provider

OWN = "tests.unit.lock.providers.custom_provider:FolderLock"
NAME = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
HERE = ["--prop", f"hoodie.write.lock.provider={NAME}"]


def test_command_runs_under_the_lock_of_the_configured_provider(
    tidelock: Program, tmp_path: Path
) -> None:
    seen = "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())"
    lock_file = str(tmp_path / ".hoodie" / "lock")
    command = [sys.executable, "-c", seen, lock_file]
    ended = tidelock("lock", "run", str(tmp_path), *HERE, "--", *command)
    assert ended.code == 0
    assert not Path(lock_file).exists()
    assert not (tmp_path / ".hoodie" / ".locks").exists()  # the storage lock was not touched


def test_held_lock_is_shown_refused_and_force_released(tidelock: Program, tmp_path: Path) -> None:
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


def test_lock_is_held_in_the_foreground_and_released(tidelock: Program, tmp_path: Path) -> None:
    ended = tidelock("lock", "acquire", str(tmp_path), *HERE, "--for", "0")
    assert ended.code == 0
    assert "released" in ended.out
    assert not (tmp_path / ".hoodie" / "lock").exists()


def _table(path: Path, **options: object) -> tl.Table:
    schema = pa.schema([("id", pa.int64()), ("said", pa.string())])
    return tl.Table.create(str(path), schema, key="id", name="orders", options=options)


def test_custom_provider_locks_the_same_resource_for_tables_and_commands(
    tidelock: Program, tmp_path: Path
) -> None:
    path, locks = tmp_path / "table", tmp_path / "locks"
    options: dict[str, object] = {
        "hoodie.write.lock.provider": OWN,
        "tidelock.lock.provider.folder": str(locks),
        "hoodie.write.lock.client.num_retries": 0,
    }
    props = [part for key, value in options.items() for part in ("--prop", f"{key}={value}")]
    rows = pa.table({"id": [1], "said": ["x"]})
    with _table(path, **options) as table:
        table.upsert(rows)
        assert list(locks.iterdir()) == [], "the lock was given back"
        inside = "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())"
        seen = [sys.executable, "-c", inside, str(locks / "orders")]
        assert tidelock("lock", "run", str(path), *props, "--", *seen).code == 0
        (locks / "orders").mkdir(parents=True)
        (locks / "orders" / "owner").write_text("somebody")
        status = tidelock("lock", "status", str(path), *props, "--json")
        assert (status.facts["state"], status.facts["owner"]) == ("held", "somebody")
        assert tidelock("lock", "acquire", str(path), *props, "--no-wait").code == 4
        with pytest.raises(LockHeld):
            table.upsert(rows)
        doctor = tidelock("doctor", str(path), *props)
        assert "FolderLock" in doctor.out
        assert "somebody" in doctor.out
        forced = tidelock("lock", "force-release", str(path), *props, "--yes", "--json")
        assert forced.facts["changed"]
        table.upsert(rows)


def test_unknown_provider_is_refused_with_a_hint_about_custom_providers(
    tidelock: Program, tmp_path: Path
) -> None:
    for name in ("no.such.Provider", "no.such.module:Provider"):
        prop = ["--prop", f"hoodie.write.lock.provider={name}"]
        ended = tidelock("lock", "status", str(tmp_path), *prop)
        assert ended.code == 2
        assert name in ended.err


@pytest.mark.servers
@pytest.mark.xdist_group("lock-redis")
def test_table_lock_has_the_table_name_for_writers_and_commands(
    tidelock: Program, tmp_path: Path, redis_server: RunningServer
) -> None:
    import redis

    name = f"orders_{uuid.uuid4().hex}"
    options: dict[str, object] = {
        "hoodie.write.lock.provider": "tidelock.lock.providers.redis.RedisLockProvider",
        "tidelock.redis.url": f"redis://{redis_server.endpoint}/0",
        "hoodie.write.lock.wait_time_ms": 1,
        "hoodie.write.lock.client.num_retries": 0,
    }
    props = [part for key, value in options.items() for part in ("--prop", f"{key}={value}")]
    schema = pa.schema([("id", pa.int64())])
    path = str(tmp_path / "table")
    with (
        tl.Table.create(path, schema, key="id", name=name, options=options) as table,
        redis.Redis(host=redis_server.host, port=redis_server.port) as outside,
    ):
        table.upsert(pa.table({"id": [1]}))
        outside.set(f"lock||{name}", "somebody", px=600_000)
        with pytest.raises(LockHeld):
            table.upsert(pa.table({"id": [2]}))
        status = tidelock("lock", "status", path, *props, "--json")
        assert (status.facts["state"], status.facts["owner"]) == ("held", "somebody")
        outside.delete(f"lock||{name}")
        table.upsert(pa.table({"id": [2]}))


@pytest.mark.servers
@pytest.mark.xdist_group("lock-zookeeper")
def test_zookeeper_settings_alone_select_the_zookeeper_lock(
    tidelock: Program, tmp_path: Path, zookeeper_server: RunningServer
) -> None:
    from kazoo.client import KazooClient

    options: dict[str, object] = {
        "hoodie.write.lock.zookeeper.url": zookeeper_server.endpoint,
        "hoodie.write.lock.zookeeper.base_path": f"/{uuid.uuid4().hex}",
        "hoodie.write.lock.wait_time_ms": 1_000,
        "hoodie.write.lock.client.num_retries": 0,
    }
    base = options["hoodie.write.lock.zookeeper.base_path"]
    props = [part for key, value in options.items() for part in ("--prop", f"{key}={value}")]
    path = tmp_path / "table"
    client = KazooClient(zookeeper_server.endpoint)
    client.start()
    with _table(path, **options) as table:
        table.upsert(pa.table({"id": [1], "said": ["x"]}))
        assert client.exists(f"{base}/orders"), "the lock key is the table's name"
        client.create(f"{base}/orders/_c_somebody-lock-", sequence=True)
        with pytest.raises(LockHeld):
            table.upsert(pa.table({"id": [2], "said": ["x"]}))
        status = tidelock("lock", "status", str(path), *props, "--json")
        assert status.facts["state"] == "held"
    client.stop()
    client.close()
