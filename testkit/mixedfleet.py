"""Hudi's Java writers and Tidelock writers upsert overlapping keys into one table with one lock.

    python -m testkit.mixedfleet --minutes 10

Each writer is a process; a Java writer has its own JVM. The table is in a local folder, its lock is
Hudi's storage lock on an S3 server. The table has no ordering field, so the last commit on the
timeline wins: each key must have the row of the last acknowledged commit.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelock as tl
from testkit.java import JavaTables, hudi_fleet, hudi_tables, java_tables, s3_environment
from testkit.judges import HudiJava, HudiRs, rows_of
from testkit.servers import S3Server, seaweedfs
from tidelock.core.errors import OutcomeUnknown, TidelockError
from tidelock.hudi.schema import avro_schema, render_schema
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

PARTITIONS = 6
KEYS = 40
"""Keys per partition; a batch has half of the keys of one partition."""

WRITERS = ("java-0", "java-1", "ours-0", "ours-1")
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("who", pa.string())])

_TURNS_MIN = 3
_REST_S = 1.5
_BUCKET = "tidelock-fleet"
_LOCK = f"s3://{_BUCKET}/fleet"
_HUDI = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_CONFLICTS = ("HoodieWriteConflictException", "ConcurrentModificationException", "acquire lock")

Upsert = Callable[[list[dict[str, str]]], tuple[str, str]]
"""Writes rows; returns the request and completion time of the commit."""


@dataclass(frozen=True, slots=True)
class BatchRejected(Exception):
    """A batch that was not committed; it may be retried."""

    cause: str


def batch(writer: str, turn: int, rng: random.Random) -> list[dict[str, str]]:
    """Return rows for half of the keys of one partition, labeled with the batch."""
    part = f"p{rng.randrange(PARTITIONS)}"
    chosen = rng.sample(range(KEYS), KEYS // 2)
    return [{"id": f"{part}-{n}", "part": part, "who": f"{writer}/{turn}"} for n in chosen]


def ours(uri: str, lock: Mapping[str, object]) -> Upsert:
    """Return the upsert function of a Tidelock writer."""
    table = tl.Table.open(uri, options={**_OPTIONS, **lock})

    def upsert(rows: list[dict[str, str]]) -> tuple[str, str]:
        try:
            done = table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        except OutcomeUnknown:
            raise
        except TidelockError as error:
            raise BatchRejected(f"{type(error).__name__}: {error}") from error
        return done.instant, done.completion

    return upsert


def java(uri: str, tables: JavaTables) -> Upsert:
    """Return the upsert function of Hudi's Java client."""
    schema = render_schema(avro_schema(SCHEMA, table="fleet"))
    store = open_store(uri)
    options = {
        **_OPTIONS,
        "hoodie.write.lock.provider": "FleetLock",
        "fleet.lock.base.path": _LOCK,
        # Tidelock runs the table services.
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    }

    def upsert(rows: list[dict[str, str]]) -> tuple[str, str]:
        try:
            instant = tables.write(uri, "upsert", rows, schema, options)
        except AssertionError as error:
            if not any(known in str(error) for known in _CONFLICTS):
                raise
            raise BatchRejected(str(error)[:200]) from error
        return instant, _completion(store, instant)

    return upsert


def _completion(store: ObjectStore, instant: str) -> str:
    """Return the completion time of a Java commit, from the name of its file."""
    prefix = f".hoodie/timeline/{instant}_"
    for meta in store.list(prefix):
        return meta.key.removeprefix(prefix).partition(".")[0]
    raise AssertionError(f"{instant} was acknowledged by Java and is not on the timeline")


def write(name: str, upsert: Upsert, until_s: float, start_file: Path) -> None:
    """Upsert until the deadline, and until a batch is committed; print the outcome of each batch.

    The first batch is a warm-up, written before the start file exists. Hudi polls the lock once per
    second, so Tidelock writers pause to give it a chance.
    """
    rng, turn, ends = random.Random(name), 0, time.monotonic() + until_s
    has_landed = False
    # On a slow machine every batch up to the deadline may have lost against a faster writer.
    while time.monotonic() < ends or turn < _TURNS_MIN or not has_landed:
        if turn == 1:
            _print("ready")
            while not start_file.exists():
                time.sleep(0.02)
            ends = time.monotonic() + until_s
        elif name.startswith("ours"):
            time.sleep(rng.uniform(0.0, _REST_S))
        rows = batch(name, turn, rng)
        outcomes: dict[str, Any] = {"who": f"{name}/{turn}", "keys": [row["id"] for row in rows]}
        started = time.monotonic()
        try:
            outcomes["instant"], outcomes["completion"] = upsert(rows)
            has_landed = True
        except BatchRejected as error:
            outcomes["refused"] = error.cause
        except OutcomeUnknown as error:
            outcomes["unknown"] = str(error)
        _print(json.dumps({**outcomes, "s": time.monotonic() - started}))
        turn += 1


def run(minutes: float) -> dict[str, Any]:
    """Run the writers, then compare all readers with the acknowledged commits."""
    with tempfile.TemporaryDirectory(prefix="tidelock-fleet-") as folder, seaweedfs() as server:
        server.create_bucket(_BUCKET)
        uri, start_file = str(Path(folder) / "table"), Path(folder) / "start"
        with tl.Table.create(uri, SCHEMA, key="id", partition_by="part") as table:
            first = [
                {"id": f"p{part}-{n}", "part": f"p{part}", "who": "first"}
                for part in range(PARTITIONS)
                for n in range(KEYS)
            ]
            table.bulk_insert(pa.Table.from_pylist(first, SCHEMA))
        runs = [_start_writer(name, uri, start_file, minutes, server) for name in WRITERS]
        try:
            outcomes = [json.loads(_until_ready(each)) for each in runs]
            start_file.touch()
            for each in runs:
                outcomes += map(json.loads, each.communicate()[0].splitlines())
        finally:
            for each in runs:
                each.kill()
                each.wait()
        assert all(each.returncode == 0 for each in runs), "a writer failed"
        return _compare(uri, outcomes)


def _start_writer(
    name: str, uri: str, start_file: Path, minutes: float, server: S3Server
) -> subprocess.Popen[str]:
    lock = {
        "hoodie.base.path": _LOCK,
        "hoodie.write.lock.provider": _HUDI,
        "hoodie.write.lock.storage.validity.timeout.secs": 10,
        "hoodie.write.lock.storage.renew.interval.secs": 1,
        "tidelock.s3.endpoint": server.endpoint,
        "tidelock.s3.region": server.region,
        "hoodie.aws.access.key": server.access_key,
        "hoodie.aws.secret.key": server.secret_key,
        "tidelock.write.mixed": True,
    }
    command = [sys.executable, "-m", __spec__.name, "--as", name, "--uri", uri]
    command += [
        "--start-file",
        str(start_file),
        "--minutes",
        str(minutes),
        "--lock",
        json.dumps(lock),
    ]
    environment = s3_environment(server, server.endpoint)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _until_ready(writer: subprocess.Popen[str]) -> str:
    """Return the outcome of a writer's first batch, once it waits for the start file."""
    assert writer.stdout is not None
    first, ready = writer.stdout.readline(), writer.stdout.readline()
    assert ready.strip() == "ready", f"a writer exited before it was ready: {first}"
    return first


def _compare(uri: str, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the rows of every reader with the last acknowledged commit of each key."""
    landed = sorted((each for each in outcomes if "instant" in each), key=lambda e: e["completion"])
    expected = {f"p{part}-{n}": "first" for part in range(PARTITIONS) for n in range(KEYS)}
    for each in landed:
        expected.update(dict.fromkeys(each["keys"], each["who"]))
    with tl.Table.open(uri) as table:
        seen = {"tidelock": rows_of(table.read(meta_columns=True))}
    with java_tables(hudi_tables()) as process:
        for judge in (HudiJava(process), HudiRs()):
            seen[judge.name] = judge.snapshot(uri)
    found = {row["id"]: row["who"] for row in seen["tidelock"]}
    ours = seen["tidelock"]
    counts: dict[str, Any] = {
        f"{verb} {name}": sum(1 for e in outcomes if e["who"].startswith(name) and key in e)
        for name in WRITERS
        for verb, key in (("landed", "instant"), ("refused", "refused"), ("unknown", "unknown"))
    }
    return {
        **counts,
        "keys": len(found),
        "keys twice": len(ours) - len(found),
        "keys wrong": sorted(key for key in expected if found.get(key) != expected[key]),
        "readers that differ": [name for name, rows in seen.items() if rows != ours],
        "refusals": sorted({each["refused"][:160] for each in outcomes if "refused" in each})[:4],
    }


def is_clean(found: Mapping[str, Any]) -> bool:
    """Return whether all readers have the expected rows, and every writer has committed."""
    bad = ("keys twice", "keys wrong", "readers that differ")
    return not any(found[name] for name in bad) and all(found[f"landed {name}"] for name in WRITERS)


def _run_writer(name: str, args: argparse.Namespace) -> None:
    seconds = 60 * args.minutes
    if name.startswith("java"):
        with java_tables(hudi_fleet()) as tables:
            write(name, java(args.uri, tables), seconds, args.start_file)
    else:
        write(name, ours(args.uri, json.loads(args.lock)), seconds, args.start_file)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


_OPTIONS = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
"""The options of all writers."""


def main() -> int:
    """Run the fleet, or one writer in a child process; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    parser.add_argument("--start-file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--lock", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.name is not None:
        _run_writer(args.name, args)
        return 0
    found = run(args.minutes)
    _print(json.dumps(found, indent=1))
    return 0 if is_clean(found) else 1


if __name__ == "__main__":
    sys.exit(main())
