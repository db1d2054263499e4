"""Hive's metastore from the jars of PySpark, on the installed Java."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.process import HOST, Launch, answers_tcp, start
from testkit.servers.server import RunningServer
from testkit.servers.unavailable import ServerUnavailable

TXN_TIMEOUT_S = 2
"""The timeout of its locks; the default is five minutes."""

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_OPENED = ("java.net", "java.lang", "java.util", "java.util.concurrent")


def install(cache: ToolCache) -> Path:
    """Return the folder with the jars."""
    del cache
    found = importlib.util.find_spec("pyspark")
    jars = Path(found.origin).parent / "jars" if found and found.origin else Path()
    if not any(jars.glob("hive-metastore-*.jar")):
        raise ServerUnavailable(
            "hive", reason="PySpark is not installed", how_to_install="run `pip install pyspark`"
        )
    return jars


@contextmanager
def hive(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run a metastore with an embedded database for the duration of the block."""
    java = shutil.which("java")
    if java is None:
        raise ServerUnavailable(
            "hive", reason="there is no `java` on PATH", how_to_install="install Java 17"
        )
    jars = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        (home / "hive-site.xml").write_text(_site(home))
        (home / "log4j2.properties").write_text(_LOG)
        small = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        places = [
            f"-Dderby.system.home={home}",
            f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
        ]
        command = [java, *small, *opened, *places, "-cp", f"{home}:{jars}/*", _MAIN]
        return Launch([*command, "-p", str(ports[0])], ready=lambda: answers_tcp(ports[0]))

    process, ports = start("hive", plan, ports=1)
    try:
        yield RunningServer("Hive metastore 2.3", f"thrift://{HOST}:{ports[0]}", process)
    finally:
        process.stop()


_LOG = """rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""


def _site(home: Path) -> str:
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "hikaricp",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(home / "warehouse"),
        "hive.exec.scratchdir": str(home / "scratch"),
        "hive.metastore.thrift.bind.host": HOST,
        # Creates the tables for transactions and locks, which normally scripts do.
        "hive.in.test": "true",
        "hive.async.log.enabled": "false",
        # Expired locks are removed every second.
        "hive.txn.timeout": f"{TXN_TIMEOUT_S}s",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.compactor.initiator.on": "true",
        "hive.timedout.txn.reaper.start": "1s",
        "hive.timedout.txn.reaper.interval": "1s",
    }
    rows = "\n".join(
        f"  <property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>\n{rows}\n</configuration>\n"
