"""A Java process with one of Hudi's lock providers, controlled by commands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from testkit.java.hudi import Hudi
from testkit.java.process import JVM_OPTIONS, CommandProcess
from testkit.servers.s3 import S3Server

_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class HudiWriter(CommandProcess):
    """A running Java process with a lock provider."""

    def try_lock(self) -> bool:
        """Acquire the lock if it is free; do not wait."""
        return cast("bool", self.command("try"))

    def lock(self, timeout_s: float) -> bool:
        """Wait for the lock like Hudi's writers, with one attempt per second."""
        return cast("bool", self.command("lock", round(timeout_s * 1_000)))

    def unlock(self) -> None:
        """Release the lock."""
        self.command("unlock")

    @property
    def owner(self) -> str:
        """The owner in the lock record of this writer; empty if it does not hold the lock."""
        return cast("str", self.command("owner"))

    def clock_ns(self) -> int:
        """Return Java's monotonic clock."""
        return cast("int", self.command("clock"))

    def parse(self, record: bytes) -> dict[str, Any]:
        """Return the fields of a lock file as Hudi parses it."""
        return cast("dict[str, Any]", self.command("parse", record.decode()))

    def command(self, *words: object) -> object:
        """Send one command and return its result."""
        self.start_command(*words)
        return self.receive()

    def start_command(self, *words: object) -> None:
        """Send one command; `receive` returns its result."""
        self.send("\t".join(map(str, words)))


@contextmanager
def hudi_writer(
    hudi: Hudi,
    server: S3Server,
    base_path: str,
    *,
    validity_s: int = 10,
    renew_s: int = 1,
    endpoint: str | None = None,
) -> Iterator[HudiWriter]:
    """Run a Java writer on the table at `base_path`, and wait until it is ready.

    It does not hold the lock. `endpoint` may be a proxy in front of the server.
    """
    path = ":".join(map(str, hudi.class_path))
    command = ["java", "-Xmx256m", *JVM_OPTIONS, _LOG, "-cp", path, "HudiWriter", base_path]
    with (
        tempfile.TemporaryDirectory(prefix="tidelock-java-") as folder,
        HudiWriter.run(
            [*command, str(validity_s), str(renew_s)],
            Path(folder),
            env=s3_environment(server, endpoint or server.endpoint),
        ) as writer,
    ):
        yield writer


def s3_environment(server: S3Server, endpoint: str) -> dict[str, str]:
    """Return the environment of a Java process that uses S3.

    Hudi's client has no setting for the endpoint; the AWS SDK reads it from the environment.
    """
    external = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **external,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
