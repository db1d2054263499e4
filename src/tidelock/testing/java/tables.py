"""Hudi's Java reader and writer: its jars, and one process that reads and writes tables by them.

Everything that decides what a row is comes from Apache Hudi, unmodified: the timeline, the file
system view, the file group reader, the write client. The program around it only takes orders.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import fastavro

from tidelock.testing.java.hudi import VERSION, compiled, hudi_artifact
from tidelock.testing.java.hudi import hudi as hudi_lock
from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars

Row = dict[str, Any]

_SOURCES = tuple(
    Path(__file__).parent / name for name in ("HudiTables.java", "HudiRows.java", "HudiWrites.java")
)
# Hudi's artefacts ask for some that not every mirror carries, and for much that is not needed to
# read and write Parquet, so what they do need is named here, in the versions of Hudi's own build.
_NEEDED = (
    "org.apache.parquet:parquet-avro:1.13.1",
    "org.apache.avro:avro:1.11.4",
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
    "com.fasterxml.jackson.core:jackson-core:2.15.2",
    "com.fasterxml.jackson.core:jackson-databind:2.15.2",
    "com.fasterxml.jackson.datatype:jackson-datatype-jsr310:2.15.2",
    "com.fasterxml.jackson.module:jackson-module-afterburner:2.15.2",
    "com.github.ben-manes.caffeine:caffeine:2.9.1",
    "org.roaringbitmap:RoaringBitmap:0.9.47",
    "com.esotericsoftware:kryo-shaded:4.0.2",
    "io.dropwizard.metrics:metrics-core:4.1.1",
    "com.google.protobuf:protobuf-java:3.25.5",
    "io.airlift:aircompressor:0.27",
    "com.lmax:disruptor:3.4.2",
    "org.openjdk.jol:jol-core:0.16",
    "org.lz4:lz4-java:1.8.0",
    "commons-io:commons-io:2.11.0",
    "joda-time:joda-time:2.9.9",
    "org.slf4j:slf4j-simple:1.7.36",
)
_JARS = (
    hudi_artifact("hudi-java-client"),
    hudi_artifact("hudi-client-common"),
    hudi_artifact("hudi-common"),
    hudi_artifact("hudi-hadoop-common"),
    hudi_artifact("hudi-io"),
    *map(Coordinates.parse, _NEEDED),
)

_JVM = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"

WRITER_OPTIONS: Mapping[str, str] = {
    "hoodie.index.type": "SIMPLE",
    # Among several writers nobody rolls back what may still be running.
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
    # A table of version 8 stays one.
    "hoodie.write.auto.upgrade": "false",
    "hoodie.metadata.enable": "false",
    # Hudi's Java client fills small base files without looking at their log files, whose changes
    # are then lost, also in tables of its own. Its Spark writer does look.
    "hoodie.parquet.small.file.limit": "0",
}
"""How a Java writer is set up that shares a table with ours. Options of a call come on top."""


@dataclass(frozen=True, slots=True)
class HudiTables:
    """What a Java process needs to read and write Hudi tables."""

    class_path: tuple[Path, ...]
    version: str = VERSION


def hudi_fleet(cache: ToolCache | None = None) -> HudiTables:
    """Return Hudi's reader and writer with its lock on S3, for several writers of one table.

    Raises: what `hudi_tables` raises.
    """
    kept = cache or ToolCache.default()
    tables, lock = hudi_tables(kept), hudi_lock(kept)
    path = (*tables.class_path, *lock.class_path)
    fleet = Path(__file__).parent / "FleetLock.java"
    return HudiTables((compiled("hudi-fleet", path, (fleet,), kept), *path))


def hudi_tables(cache: ToolCache | None = None) -> HudiTables:
    """Return Hudi's reader and writer, downloaded and compiled against if need be.

    Raises ServerUnavailable where there is no Java, no Maven, or no way to Hudi's artefacts.
    """
    kept = cache or ToolCache.default()
    jars = fetch_jars(_JARS, kept)
    return HudiTables((compiled("hudi-tables", jars, _SOURCES, kept), *jars))


class JavaTables:
    """A handle on the process. A command that Hudi answers with an exception raises here too."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        """Take over a process that was just started, and a folder for the rows that travel."""
        self._process = process
        self._rows = folder / "rows.avro"
        self._log = folder / "java.log"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the merged rows, now or of writes requested by `as_of`."""
        return self._read({"do": "snapshot", "table": table, "as_of": as_of})

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of the latest base files."""
        return self._read({"do": "read_optimized", "table": table})

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows that writes completed in (since, until] left behind."""
        return self._read({"do": "changes", "table": table, "since": since, "until": until})

    def timeline(self, table: str) -> list[tuple[str, str, str, str]]:
        """Return each instant as request time, action, state and completion time."""
        found = cast("list[list[str]]", self.ask({"do": "timeline", "table": table}))
        return [(requested, action, state, done) for requested, action, state, done in found]

    def write(
        self,
        table: str,
        operation: str,
        rows: Sequence[Row],
        schema: str,
        options: Mapping[str, str] | None = None,
    ) -> str:
        """Commit rows by an operation of Hudi's client; return the commit's request time.

        `operation` is upsert, insert, bulk_insert or delete. `schema` is the Avro JSON of `rows`;
        it may have fewer columns than the table.
        """
        with self._rows.open("wb") as file:
            fastavro.writer(file, json.loads(schema), list(rows))
        given = {**WRITER_OPTIONS, **(options or {})}
        command = {"do": "write", "operation": operation, "table": table, "options": given}
        return cast("str", self.ask({**command, "rows": str(self._rows)}))

    def compact(self, table: str, options: Mapping[str, str] | None = None) -> str:
        """Compact all there is; return the request time, empty if there was nothing."""
        given = {**WRITER_OPTIONS, **(options or {})}
        return cast("str", self.ask({"do": "compact", "table": table, "options": given}))

    def schedule(self, service: str, table: str) -> str:
        """Plan a compaction, log_compaction or clustering; return its request time.

        It is empty if there was nothing to plan.
        """
        command = {"do": f"schedule_{service}", "table": table, "options": dict(WRITER_OPTIONS)}
        return cast("str", self.ask(command))

    def execute(self, service: str, table: str, instant: str) -> str:
        """Carry out what somebody planned; return its request time."""
        command = {"do": f"execute_{service}", "table": table, "options": dict(WRITER_OPTIONS)}
        return cast("str", self.ask({**command, "instant": instant}))

    def purge_clustering(self, table: str, instant: str) -> bool:
        """Take a clustering plan off the timeline, by a roll-back; tell whether it was there."""
        command = {"do": "purge_clustering", "table": table, "options": dict(WRITER_OPTIONS)}
        return cast("bool", self.ask({**command, "instant": instant}))

    def beat(self, table: str, instant: str, *, beats: bool = True) -> None:
        """Start the heartbeat of an instant as Java's executors do, or stop it."""
        command = {"do": "beat", "table": table, "options": dict(WRITER_OPTIONS)}
        self.ask({**command, "instant": instant, "beats": beats})

    def take_back(self, verb: str, table: str, instant: str) -> object:
        """Roll back a commit (`rollback`), or restore the table to one (`restore`)."""
        given = {"do": verb, "table": table, "instant": instant, "options": {**WRITER_OPTIONS}}
        return self.ask(given)

    def clean(self, table: str, options: Mapping[str, str] | None = None) -> int:
        """Clean; return how many files went."""
        given = {**WRITER_OPTIONS, **(options or {})}
        return cast("int", self.ask({"do": "clean", "table": table, "options": given}))

    def ask(self, command: Mapping[str, object]) -> object:
        """Send one command and return Hudi's answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> object:
        """Wait for the answer to the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the Java process ended:\n{self._log.read_text()[-3_000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"Hudi refused: {answer['error']}\n{answer['trace'][:4_000]}")
        return answer["value"]

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _read(self, command: Mapping[str, object]) -> list[Row]:
        self._rows.unlink(missing_ok=True)
        self.ask({**command, "rows": str(self._rows)})
        if not self._rows.exists():
            return []
        with self._rows.open("rb") as file:
            return cast("list[Row]", list(fastavro.reader(file)))


@contextmanager
def java_tables(hudi: HudiTables, *, zone: str = "UTC") -> Iterator[JavaTables]:
    """Run a Java process that reads and writes tables; it is ready when this returns.

    `zone` is its time zone, as if it ran on a machine there.
    """
    path = ":".join(map(str, hudi.class_path))
    command = ["java", *_JVM, _LOG, f"-Dtidelock.zone={zone}", "-cp", path, "HudiTables"]
    with tempfile.TemporaryDirectory(prefix="tidelock-java-") as name:
        folder = Path(name)
        with (folder / "java.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        tables = JavaTables(process, folder)
        try:
            tables.answer()
            yield tables
        finally:
            tables.close()
