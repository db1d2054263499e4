"""Hudi's Java reader and writer: its jars, and a process that reads and writes tables with them.

The timeline, the file system view, the file group reader and the write client are Apache Hudi's,
unmodified. Our Java program only executes commands.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import fastavro

from testkit.java.hudi import VERSION, compiled, hudi_artifact
from testkit.java.hudi import hudi as hudi_lock
from testkit.java.process import JVM_OPTIONS, CommandProcess
from testkit.servers.cache import ToolCache
from testkit.servers.maven import Coordinates, fetch_jars

Row = dict[str, Any]

_SOURCES = tuple(
    Path(__file__).parent / name for name in ("HudiTables.java", "HudiRows.java", "HudiWrites.java")
)
# Hudi's artifacts depend on some that not every mirror has, and on many that are not needed to read
# and write Parquet. So the required ones are listed here, in the versions of Hudi's own build.
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

_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"

WRITER_OPTIONS: Mapping[str, str] = {
    "hoodie.index.type": "SIMPLE",
    # With several writers, none may roll back a write that may still be running.
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
    # Tables of version 8 are not upgraded.
    "hoodie.write.auto.upgrade": "false",
    "hoodie.metadata.enable": "false",
    # Hudi's Java client adds rows to small base files without reading their log files, so changes
    # in the log files are lost, in its own tables as well. Its Spark writer reads them.
    "hoodie.parquet.small.file.limit": "0",
}
"""The options of a Java writer that shares a table with Tidelock; a call may override them."""


@dataclass(frozen=True, slots=True)
class HudiTables:
    """The class path of a Java process that reads and writes Hudi tables."""

    class_path: tuple[Path, ...]
    version: str = VERSION


def hudi_fleet(cache: ToolCache | None = None) -> HudiTables:
    """Return the class path with Hudi's lock on S3, for several writers of one table.

    Raises: like `hudi_tables`.
    """
    tools = cache or ToolCache.default()
    tables, lock = hudi_tables(tools), hudi_lock(tools)
    path = (*tables.class_path, *lock.class_path)
    fleet = [Path(__file__).parent / name for name in ("FleetLock.java", "S3WarmUp.java")]
    return HudiTables((compiled("hudi-fleet", path, tuple(fleet), tools), *path))


def hudi_tables(cache: ToolCache | None = None) -> HudiTables:
    """Return the class path; download the jars and compile the program if necessary.

    Raises: `ServerUnavailable` without Java or Maven, or if an artifact cannot be downloaded.
    """
    tools = cache or ToolCache.default()
    jars = fetch_jars(_JARS, tools)
    return HudiTables((compiled("hudi-tables", jars, _SOURCES, tools), *jars))


class JavaTables(CommandProcess):
    """A running Java process. Rows are exchanged in an Avro file."""

    @property
    def _rows(self) -> Path:
        return self.folder / "rows.avro"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the current rows, or those of commits requested up to `as_of`."""
        return self._read({"do": "snapshot", "table": table, "as_of": as_of})

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files only."""
        return self._read({"do": "read_optimized", "table": table})

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows changed by commits completed in (since, until]."""
        return self._read({"do": "changes", "table": table, "since": since, "until": until})

    def timeline(self, table: str) -> list[tuple[str, str, str, str]]:
        """Return each instant as request time, action, state and completion time."""
        found = cast("list[list[str]]", self.command({"do": "timeline", "table": table}))
        return [(requested, action, state, done) for requested, action, state, done in found]

    def write(
        self,
        table: str,
        operation: str,
        rows: Sequence[Row],
        schema: str,
        options: Mapping[str, str] | None = None,
    ) -> str:
        """Commit rows with an operation of Hudi's client; return the request time of the commit.

        `operation` is upsert, insert, bulk_insert or delete. `schema` is the Avro JSON of `rows`;
        it may have fewer columns than the table.
        """
        with self._rows.open("wb") as file:
            fastavro.writer(file, json.loads(schema), list(rows))
        given = {**WRITER_OPTIONS, **(options or {})}
        command = {"do": "write", "operation": operation, "table": table, "options": given}
        return cast("str", self.command({**command, "rows": str(self._rows)}))

    def compact(self, table: str, options: Mapping[str, str] | None = None) -> str:
        """Compact the table; return the request time, empty if there was nothing to compact."""
        given = {**WRITER_OPTIONS, **(options or {})}
        return cast("str", self.command({"do": "compact", "table": table, "options": given}))

    def schedule(self, service: str, table: str) -> str:
        """Schedule a compaction, log_compaction or clustering; return its request time.

        The result is empty if there was nothing to schedule.
        """
        command = {"do": f"schedule_{service}", "table": table, "options": dict(WRITER_OPTIONS)}
        return cast("str", self.command(command))

    def execute(self, service: str, table: str, instant: str) -> str:
        """Execute a scheduled plan; return its request time."""
        command = {"do": f"execute_{service}", "table": table, "options": dict(WRITER_OPTIONS)}
        return cast("str", self.command({**command, "instant": instant}))

    def purge_clustering(self, table: str, instant: str) -> bool:
        """Roll back a clustering plan; return whether it existed."""
        command = {"do": "purge_clustering", "table": table, "options": dict(WRITER_OPTIONS)}
        return cast("bool", self.command({**command, "instant": instant}))

    def heartbeat(self, table: str, instant: str, *, active: bool = True) -> None:
        """Start the heartbeat of an instant, like Java's executors, or stop it."""
        command = {"do": "beat", "table": table, "options": dict(WRITER_OPTIONS)}
        self.command({**command, "instant": instant, "beats": active})

    def roll_back(self, verb: str, table: str, instant: str) -> object:
        """Roll back a commit (`rollback`), or restore the table to one (`restore`)."""
        given = {"do": verb, "table": table, "instant": instant, "options": {**WRITER_OPTIONS}}
        return self.command(given)

    def clean(self, table: str, options: Mapping[str, str] | None = None) -> int:
        """Clean the table; return the number of deleted files."""
        given = {**WRITER_OPTIONS, **(options or {})}
        return cast("int", self.command({"do": "clean", "table": table, "options": given}))

    def command(self, command: Mapping[str, object]) -> object:
        """Send one command and return its result."""
        return self.call(json.dumps(command))

    def _read(self, command: Mapping[str, object]) -> list[Row]:
        self._rows.unlink(missing_ok=True)
        self.command({**command, "rows": str(self._rows)})
        if not self._rows.exists():
            return []
        with self._rows.open("rb") as file:
            return cast("list[Row]", list(fastavro.reader(file)))


@contextmanager
def java_tables(hudi: HudiTables, *, zone: str = "UTC") -> Iterator[JavaTables]:
    """Run a Java process that reads and writes tables, and wait until it is ready.

    `zone` is the time zone of its JVM.
    """
    path = ":".join(map(str, hudi.class_path))
    options = ["-Xmx768m", *JVM_OPTIONS, _LOG, f"-Dtidelock.zone={zone}"]
    with (
        tempfile.TemporaryDirectory(prefix="tidelock-java-") as folder,
        JavaTables.run(["java", *options, "-cp", path, "HudiTables"], Path(folder)) as tables,
    ):
        yield tables
