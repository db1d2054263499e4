"""Apache Hudi's Java writers and ours upsert overlapping keys into one table under one lock.

    python -m tidelock.testing.mixedfleet --minutes 10

Each writer is a process; a Java one has a JVM of its own. The table is in a folder, its lock is
Hudi's storage lock on an S3 server. Rows are not ordered by any column, so the last commit in the
timeline's order has the say: of each key, the row of the last acknowledged commit must be there.
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
from tidelock.base.errors import OutcomeUnknown, TidelockError
from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store
from tidelock.table.schema.avro import avro_schema, render_schema
from tidelock.testing.java import (
    JavaTables,
    hudi_fleet,
    hudi_tables,
    java_tables,
    s3_environment,
)
from tidelock.testing.judges import HudiJava, HudiRs, rows_of
from tidelock.testing.servers import S3Server, seaweedfs

PARTITIONS = 6
KEYS = 40
"""Keys of each partition; a batch has half of those of one partition."""

WRITERS = ("java-0", "java-1", "ours-0", "ours-1")
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("who", pa.string())])

_TURNS_MIN = 3
_REST_S = 1.5
_BUCKET = "tidelock-fleet"
_LOCK = f"s3://{_BUCKET}/fleet"
_HUDI = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_CONFLICTS = ("HoodieWriteConflictException", "ConcurrentModificationException", "acquire lock")

Upsert = Callable[[list[dict[str, str]]], tuple[str, str]]
"""Writes rows and returns the commit's request and completion time."""


@dataclass(frozen=True, slots=True)
class Refused(Exception):
    """A batch that was not committed, as its writer was told; it may be tried again."""

    cause: str


def batch(writer: str, turn: int, draw: random.Random) -> list[dict[str, str]]:
    """Return rows of one partition, half of its keys, named by the batch they belong to."""
    part = f"p{draw.randrange(PARTITIONS)}"
    chosen = draw.sample(range(KEYS), KEYS // 2)
    return [{"id": f"{part}-{n}", "part": part, "who": f"{writer}/{turn}"} for n in chosen]


def ours(place: str, lock: Mapping[str, object]) -> Upsert:
    """Return how a writer of ours upserts: the lock's place is the one thing that is unusual."""
    table = tl.Table.open(place, options={**_OPTIONS, **lock})

    def upsert(rows: list[dict[str, str]]) -> tuple[str, str]:
        try:
            done = table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        except OutcomeUnknown:
            raise
        except TidelockError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        return done.instant, done.completion

    return upsert


def java(place: str, tables: JavaTables) -> Upsert:
    """Return how Hudi's Java client upserts."""
    schema = render_schema(avro_schema(SCHEMA, table="fleet"))
    store = open_store(place)
    options = {
        **_OPTIONS,
        "hoodie.write.lock.provider": "FleetLock",
        "fleet.lock.base.path": _LOCK,
        # The services of the table are ours to run.
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    }

    def upsert(rows: list[dict[str, str]]) -> tuple[str, str]:
        try:
            instant = tables.write(place, "upsert", rows, schema, options)
        except AssertionError as error:
            if not any(known in str(error) for known in _CONFLICTS):
                raise
            raise Refused(str(error)[:200]) from error
        return instant, _completion(store, instant)

    return upsert


def _completion(store: ObjectStore, instant: str) -> str:
    """Return when a commit of Java's completed: the name of its file says it."""
    prefix = f".hoodie/timeline/{instant}_"
    for meta in store.list(prefix):
        return meta.key.removeprefix(prefix).partition(".")[0]
    raise AssertionError(f"{instant} was acknowledged by Java and is not on the timeline")


def write(name: str, upsert: Upsert, until_s: float, gate: Path) -> None:
    """Upsert until the time is over; print what came of each batch.

    The first batch is written before the others begin, for what a JVM has to load. Hudi looks at a
    lock once a second; pauses of ours let it come to its turn.
    """
    draw, turn, ends = random.Random(name), 0, time.monotonic() + until_s
    while time.monotonic() < ends or turn < _TURNS_MIN:
        if turn == 1:
            _say("ready")
            while not gate.exists():
                time.sleep(0.02)
            ends = time.monotonic() + until_s
        elif name.startswith("ours"):
            time.sleep(draw.uniform(0.0, _REST_S))
        rows = batch(name, turn, draw)
        told: dict[str, Any] = {"who": f"{name}/{turn}", "keys": [row["id"] for row in rows]}
        began = time.monotonic()
        try:
            told["instant"], told["completion"] = upsert(rows)
        except Refused as error:
            told["refused"] = error.cause
        except OutcomeUnknown as error:
            told["unknown"] = str(error)
        _say(json.dumps({**told, "s": time.monotonic() - began}))
        turn += 1


def run(minutes: float) -> dict[str, Any]:
    """Let the fleet write, then compare all readers with what was acknowledged."""
    with tempfile.TemporaryDirectory(prefix="tidelock-fleet-") as folder, seaweedfs() as server:
        server.create_bucket(_BUCKET)
        place, gate = str(Path(folder) / "table"), Path(folder) / "gate"
        with tl.Table.create(place, SCHEMA, key="id", partition_by="part") as table:
            first = [
                {"id": f"p{part}-{n}", "part": f"p{part}", "who": "first"}
                for part in range(PARTITIONS)
                for n in range(KEYS)
            ]
            table.bulk_insert(pa.Table.from_pylist(first, SCHEMA))
        runs = [_started(name, place, gate, minutes, server) for name in WRITERS]
        try:
            told = [json.loads(_until_ready(each)) for each in runs]
            gate.touch()
            for each in runs:
                told += map(json.loads, each.communicate()[0].splitlines())
        finally:
            for each in runs:
                each.kill()
                each.wait()
        assert all(each.returncode == 0 for each in runs), "a writer failed"
        return _judged(place, told)


def _started(
    name: str, place: str, gate: Path, minutes: float, server: S3Server
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
    command = [sys.executable, "-m", __spec__.name, "--as", name, "--place", place]
    command += ["--gate", str(gate), "--minutes", str(minutes), "--lock", json.dumps(lock)]
    environment = s3_environment(server, server.endpoint)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _until_ready(writer: subprocess.Popen[str]) -> str:
    """Return what a writer says of its first batch, once it waits for the others."""
    assert writer.stdout is not None
    first, ready = writer.stdout.readline(), writer.stdout.readline()
    assert ready.strip() == "ready", f"a writer ended before it began: {first}"
    return first


def _judged(place: str, told: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare what every reader sees with the last acknowledged commit of each key."""
    landed = sorted((each for each in told if "instant" in each), key=lambda e: e["completion"])
    expected = {f"p{part}-{n}": "first" for part in range(PARTITIONS) for n in range(KEYS)}
    for each in landed:
        expected.update(dict.fromkeys(each["keys"], each["who"]))
    with tl.Table.open(place) as table:
        seen = {"tidelock": rows_of(table.read(meta_columns=True))}
    with java_tables(hudi_tables()) as process:
        for judge in (HudiJava(process), HudiRs()):
            seen[judge.name] = judge.snapshot(place)
    found = {row["id"]: row["who"] for row in seen["tidelock"]}
    ours = seen["tidelock"]
    counts: dict[str, Any] = {
        f"{verb} {name}": sum(1 for e in told if e["who"].startswith(name) and key in e)
        for name in WRITERS
        for verb, key in (("landed", "instant"), ("refused", "refused"), ("unknown", "unknown"))
    }
    return {
        **counts,
        "keys": len(found),
        "keys twice": len(ours) - len(found),
        "keys wrong": sorted(key for key in expected if found.get(key) != expected[key]),
        "readers that differ": [name for name, rows in seen.items() if rows != ours],
        "refusals": sorted({each["refused"][:160] for each in told if "refused" in each})[:4],
    }


def is_clean(found: Mapping[str, Any]) -> bool:
    """Tell whether nothing was lost, doubled or seen differently, and everybody got something."""
    bad = ("keys twice", "keys wrong", "readers that differ")
    return not any(found[name] for name in bad) and all(found[f"landed {name}"] for name in WRITERS)


def _be(name: str, given: argparse.Namespace) -> None:
    seconds = 60 * given.minutes
    if name.startswith("java"):
        with java_tables(hudi_fleet()) as tables:
            write(name, java(given.place, tables), seconds, given.gate)
    else:
        write(name, ours(given.place, json.loads(given.lock)), seconds, given.gate)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


_OPTIONS = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
"""What both sides are told."""


def main() -> int:
    """Run the fleet, or be one writer of it; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    parser.add_argument("--gate", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--lock", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.name is not None:
        _be(given.name, given)
        return 0
    found = run(given.minutes)
    _say(json.dumps(found, indent=1))
    return 0 if is_clean(found) else 1


if __name__ == "__main__":
    sys.exit(main())
