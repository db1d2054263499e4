"""One Java process with one of Hudi's lock providers in it, told what to do line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tidelock.testing.java.hudi import Hudi
from tidelock.testing.servers.s3 import S3Server

# Short-lived processes: starting fast counts, running fast does not.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class HudiWriter:
    """A handle on the process. A command that Hudi answers with an exception raises here too."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        """Take over a process that was just started."""
        self._process = process
        self._log = log

    def try_lock(self) -> bool:
        """Look once, and take the lock if it is free."""
        return cast("bool", self.ask("try"))

    def lock(self, timeout_s: float) -> bool:
        """Wait for the lock as Hudi's writers do: one look a second."""
        return cast("bool", self.ask("lock", round(timeout_s * 1_000)))

    def unlock(self) -> None:
        """Release."""
        self.ask("unlock")

    @property
    def owner(self) -> str:
        """The owner in the record this writer holds the lock by; empty when it holds none."""
        return cast("str", self.ask("owner"))

    def clock_ns(self) -> int:
        """Return the monotonic clock as Java reads it."""
        return cast("int", self.ask("clock"))

    def parse(self, record: bytes) -> dict[str, Any]:
        """Return what Hudi's parser reads in a lock file."""
        return cast("dict[str, Any]", self.ask("parse", record.decode()))

    def ask(self, *command: object) -> object:
        """Send one command and return Hudi's answer."""
        self.tell(*command)
        return self.answer()

    def tell(self, *command: object) -> None:
        """Send one command; `answer` collects what becomes of it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, command)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> object:
        """Wait for the answer to the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the Java writer ended:\n{self._log.read_text()[-3_000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"Hudi refused: {answer['error']}")
        return answer["value"]

    def kill(self) -> None:
        """End the process at once: no shutdown hook runs, nothing is released."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Let the process close its provider and end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.kill()
        self._process.stdout.close()


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
    """Run a Java writer on the table at `base_path`; `endpoint` may be a proxy before the server.

    It is ready when this returns; it holds nothing.
    """
    path = ":".join(map(str, hudi.class_path))
    command = ["java", *_JVM, _LOG, "-cp", path, "HudiWriter", base_path]
    with tempfile.NamedTemporaryFile(prefix="tidelock-java-", suffix=".log") as log:
        process = subprocess.Popen(
            [*command, str(validity_s), str(renew_s)],
            env=s3_environment(server, endpoint or server.endpoint),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        writer = HudiWriter(process, Path(log.name))
        try:
            writer.answer()
            yield writer
        finally:
            writer.close()


def s3_environment(server: S3Server, endpoint: str) -> dict[str, str]:
    """Return the variables by which a Java process finds S3.

    Hudi's client has no setting for an endpoint; the AWS SDK takes one from the environment.
    """
    foreign = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **foreign,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
